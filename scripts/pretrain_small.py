#!/usr/bin/env python
"""Train the small Llama that the experiments `fine_tuning/...` start from, and save it as `model=hf` reads it.

A byte-level Llama of 689,664 parameters learns the first half of the speeches of tinyshakespeare, with their headings;
the experiments fine-tune it on roles of the second half. It takes minutes on one core, and is not repeated where its
folder exists: the folder's name has a hash of the settings and of the text.

    pip install 'fedcomp[hf]'
    python scripts/pretrain_small.py
"""

import argparse
import hashlib
import json
import math
import os
import shutil
import sys
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor
from torch.nn import functional

from fedcomp.dataset.byte_tokens import EOS, OFFSET, PAD, VOCABULARY
from fedcomp.dataset.shakespeare import SOURCE, speeches
from fedcomp.model.hf.folder import SMALL

ROOT = os.environ.get("FEDCOMP_DATA", "~/.cache/fedcomp")
MODEL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "pad_token_id": PAD,
    "eos_token_id": EOS,
    "bos_token_id": None,
}
TRAINING = {
    "speeches": 3548,  # half of the 7,097
    "validation": 0.05,  # the last share of their characters
    "window": 128,
    "batch": 32,
    "steps": 1000,
    "lr": 3e-3,
    "warm_up": 50,
    "final_lr": 0.05,  # of lr, at the end of a cosine
    "decay": 0.1,
    "betas": [0.9, 0.95],
    "clip": 1.0,
    "seed": 0,
}


def folder_of(text: Path) -> Path:
    """Where the model of these settings and this text lies."""
    settings = json.dumps([MODEL, TRAINING, hashlib.sha256(text.read_bytes()).hexdigest()], sort_keys=True)
    return text.parent / f"{SMALL}{hashlib.sha256(settings.encode()).hexdigest()[:8]}"


def main(arguments: list[str] | None = None) -> None:
    """Train and save, unless the folder exists."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=ROOT, help="folder of tinyshakespeare.txt, and of the result")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    text = Path(options.root).expanduser().absolute() / "tinyshakespeare.txt"
    if not text.is_file():
        sys.exit(f"no text at {text}: `curl --create-dirs -o {text} {SOURCE}` fetches it, or give --root")
    folder = folder_of(text)
    if folder.is_dir():
        print(f"{folder} exists: nothing to do")
        return
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        sys.exit("this script needs transformers: pip install 'fedcomp[hf]'")
    torch.set_num_threads(options.threads)
    torch.manual_seed(TRAINING["seed"])
    model = LlamaForCausalLM(LlamaConfig(**MODEL, dtype="float32"))
    record = train(model, tokens(text), time.monotonic())
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    model.save_pretrained(unfinished)
    (unfinished / "pretraining.json").write_text(json.dumps({"training": TRAINING, **record}, indent=1) + "\n")
    if folder.is_dir():  # another process was faster
        shutil.rmtree(unfinished)
    else:
        unfinished.rename(folder)
    print(f"saved in {folder}")


def tokens(text: Path) -> Tensor:
    """[n] the first half of the speeches with their headings, a blank line between them."""
    first = list(speeches(text))[: TRAINING["speeches"]]
    joined = "\n\n".join(f"{name}:\n" + "\n".join(lines) for name, _, lines in first)
    return torch.frombuffer(bytearray(joined.encode()), dtype=torch.uint8).long() + OFFSET


def train(model: torch.nn.Module, codes: Tensor, began: float) -> dict[str, object]:
    """Train in place; the validation losses by step, and the seconds."""
    window, batch, steps = TRAINING["window"], TRAINING["batch"], TRAINING["steps"]
    cut = round(len(codes) * (1 - TRAINING["validation"]))
    learnt, held_out = codes[:cut], codes[cut:]
    held_out = held_out[: len(held_out) // (window + 1) * (window + 1)].view(-1, window + 1)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=TRAINING["lr"], betas=tuple(TRAINING["betas"]), weight_decay=TRAINING["decay"]
    )
    draws = torch.Generator().manual_seed(TRAINING["seed"])
    found: dict[int, float] = {}
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = TRAINING["lr"] * rate(step)
        starts = torch.randint(len(learnt) - window, (batch, 1), generator=draws)
        optimiser.zero_grad()
        loss_of(model, learnt[starts + torch.arange(window + 1)]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), TRAINING["clip"])
        optimiser.step()
        if (step + 1) % 100 == 0 or step + 1 == steps:
            model.eval()
            with torch.no_grad():
                found[step + 1] = float(loss_of(model, held_out))
            model.train()
            print(
                f"step {step + 1}: validation loss {found[step + 1]:.4f}, perplexity {math.exp(found[step + 1]):.3f} a "
                f"byte, {time.monotonic() - began:.0f} s",
                flush=True,
            )
    return {"validation_loss": found, "seconds": round(time.monotonic() - began)}


def rate(step: int) -> float:
    """Share of the learning rate: a linear warm-up, then a cosine."""
    warm_up, least = TRAINING["warm_up"], TRAINING["final_lr"]
    if step < warm_up:
        return (step + 1) / warm_up
    done = (step - warm_up) / max(1, TRAINING["steps"] - warm_up)
    return least + (1 - least) * 0.5 * (1 + math.cos(math.pi * done))


def loss_of(model: torch.nn.Module, windows: Tensor) -> Tensor:
    """Mean cross-entropy of the next byte over windows [n, L + 1]."""
    logits = model(input_ids=windows[:, :-1], use_cache=False).logits
    return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


if __name__ == "__main__":
    main()
