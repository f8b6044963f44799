"""Exported folders give the same logits in PEFT and in transformers."""

import copy
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from fedcomp.model.hf.export import write_folder
from tests.model.hf.networks import CONFIGS, module, tokens

transformers = pytest.importorskip("transformers", reason="pip install 'fedcomp[hf]'")
peft = pytest.importorskip("peft", reason="pip install peft")
load_file = pytest.importorskip("safetensors.torch").load_file


@pytest.mark.parametrize(
    ("name", "classifies", "options"),
    [
        ("llama", True, {}),
        ("gpt2", False, {"targets": ["c_attn", "c_proj"]}),
        ("opt", False, {"targets": ["q_proj", "v_proj"]}),
        ("bert", True, {"train_head": False}),
    ],
    ids=["a head", "W transposed", "in another order", "a frozen head"],
)
def test_a_folder_has_the_same_logits(name, classifies, options, tmp_path) -> None:
    """Layers that store W transposed, another order in the model than in the file, and a head that PEFT looks for."""
    net = module(name, classifies, **options).eval()
    base = copy.deepcopy(net.network)
    for one, layer in list(base.named_modules()):
        if hasattr(layer, "lora_A"):
            base.set_submodule(one, layer.base)
    with torch.no_grad():
        for one in net.parameters():
            if one.requires_grad:
                one.add_(0.1 * torch.randn(one.shape, generator=torch.Generator().manual_seed(one.numel())))
        x = tokens(3)
        wanted = net(x)
        before = net.network.get_input_embeddings().weight.clone()
        for number in (0, 1):
            write_folder(net, tmp_path / f"adapter{number}")
        write_folder(net, tmp_path / "network", merge=True)
        given = {"input_ids": x, "attention_mask": torch.ones_like(x)}
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # tensors that are missing, a wrong fan_in_fan_out
            own = peft.PeftModel.from_pretrained(base, tmp_path / "adapter0").eval()
        auto = transformers.AutoModelForSequenceClassification if classifies else transformers.AutoModelForCausalLM
        whole = auto.from_pretrained(tmp_path / "network").eval()
        for loaded in (own, whole):
            logits = loaded(**given).logits
            torch.testing.assert_close(logits if classifies else logits.mT, wanted, rtol=1e-5, atol=1e-6)
    assert torch.equal(net.network.get_input_embeddings().weight, before)
    for file in (tmp_path / "adapter0").iterdir():
        assert file.read_bytes() == (tmp_path / "adapter1" / file.name).read_bytes()
    kept = json.loads((tmp_path / "adapter0" / "adapter_config.json").read_text())
    assert (kept["fan_in_fan_out"], kept["lora_alpha"], kept["r"]) == (name == "gpt2", 8.0, 4)


WRITES = """
import sys
from pathlib import Path
from fedcomp.model.hf.export import write_folder
from tests.model.hf.networks import module
base, out = sys.argv[1:]
given = {"initial": "pretrained", "config": None, "path": base}
adapted = module("opt", True, targets=["q_proj", "v_proj", "fc1"], **given)
write_folder(adapted, Path(out + "_adapter"))
write_folder(adapted, Path(out + "_merged"), merge=True)
write_folder(module("opt", True, adapter="none", **given), Path(out + "_whole"))
"""


def test_processes_with_other_hash_seeds_write_the_same_bytes_and_no_path(tmp_path) -> None:
    """Of a network that was read from a folder; shared weights once."""
    tied = CONFIGS["opt"] | {"tie_word_embeddings": True}
    write_folder(module("opt", adapter="none", config=tied), tmp_path / "base")
    for seed in "12":
        given = os.environ | {"PYTHONHASHSEED": seed}
        call = [sys.executable, "-c", WRITES, str(tmp_path / "base"), str(tmp_path / seed)]
        subprocess.run(call, env=given, check=True)
    for kind in ("adapter", "merged", "whole"):
        files = sorted(file.name for file in (tmp_path / f"1_{kind}").iterdir())
        assert files == sorted(file.name for file in (tmp_path / f"2_{kind}").iterdir())
        for name in files:
            written = (tmp_path / f"1_{kind}" / name).read_bytes()
            assert written == (tmp_path / f"2_{kind}" / name).read_bytes(), name
            assert not any(str(path).encode() in written for path in (tmp_path, Path.home(), Path.cwd())), name
    weights = load_file(tmp_path / "base" / "model.safetensors")
    assert [name for name in weights if "embed_tokens" in name or "head" in name] == [
        "model.decoder.embed_tokens.weight"
    ]
