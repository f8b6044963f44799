"""Language models and classifiers of Hugging Face's transformers: `model=hf model.path=DIR`.

What is trained is a low-rank adapter over the frozen network, with a head where there is one, or the network as it is.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from torch import nn

from fedcomp.core.ranges import Whole, checked
from fedcomp.core.validate import as_typed
from fedcomp.model.flat import draw
from fedcomp.model.hf.export import classifier_layers
from fedcomp.model.hf.folder import CONFIG, Wanted, config_from, config_of, drawn, files_read, is_causal, load
from fedcomp.model.hf.library import transformers
from fedcomp.model.hf.network import OWN_POSITIONS, HfNetwork
from fedcomp.model.lora.add import ALL_LINEAR, AInit, Alpha, Dropout, Rank, Trains, add_lora, linear_size, within
from fedcomp.model.lora.linear import train_as_head
from fedcomp.random.keys import Key

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
RANDOM = Key(("model", "hf", "random"))
"""Draws random networks: one for all seeds, as a pretrained one would be."""


@checked("model.")
def network(
    input_shape: Sequence[int],
    num_outputs: int,
    task: str,
    target_shape: Sequence[int] = (),
    vocab_size: int | None = None,
    path: str | None = None,
    initial: Literal["pretrained", "random"] = "pretrained",
    config: Mapping[str, Any] | None = None,
    adapter: Literal["lora", "none"] = "lora",
    rank: Rank = 8,
    alpha: Alpha = 16.0,
    targets: str | Sequence[str] = ALL_LINEAR,
    dropout: Dropout = 0.0,
    rslora: bool = False,
    trains: Trains = "both",
    a_init: AInit = "uniform",
    train_head: bool | str = "auto",
    dtype: Literal["float32", "bfloat16"] = "float32",
    attention: Literal["sdpa", "eager"] = "sdpa",
    base_dropout: bool = False,
    pad_token: Annotated[int | None, Whole(0, "a token's number")] = None,
    checkpointing: bool = False,
    padding_token: int | None = None,
) -> HfNetwork:
    """The network of a folder for a dataset of tokens: a causal language model, or a classifier of sequences.

    Args:
        initial: "random": weights drawn once for all seeds, for tests and timing; of the folder, or of a `config` with
            `model_type` and its sizes.
        adapter: the options up to `a_init` are `add_lora`'s.
        checkpointing: keep the inputs of layers alone, and compute the rest again for the backward pass.
    Raises:
        ValueError: an option that is wrong or does not fit, a folder that cannot be read, or no library.
    """
    if train_head not in (True, False, "auto"):
        raise ValueError(f"model.train_head={as_typed(train_head)} must be true, false or auto")
    if adapter == "none" and dtype != "float32":
        raise ValueError(f"model.dtype={dtype} is of frozen weights, but model.adapter=none trains all: take float32")
    if vocab_size is None or task not in ("next_token", "classification"):
        raise ValueError("model=hf reads tokens, which this dataset does not have: take dataset=text or another model")
    classifies = task == "classification"
    classes = num_outputs if classifies else None
    own = _config(path, initial, config, vocab_size)
    causal = is_causal(own)
    pad = _fitted(own, input_shape[0], vocab_size, classes, pad_token, padding_token, causal)
    wanted = Wanted(classes, DTYPES[dtype], attention)
    base, new = _base(path, initial, own, wanted)
    last = _last_layers(base, classifies)
    heads = last if train_head is True or (train_head == "auto" and classifies) else ()
    _check_new(new, last if classifies else heads, path)
    new_head = bool(heads) and (initial == "random" or bool(new)) and classifies
    if adapter == "lora":
        train_as_head(base, heads, own.tie_word_embeddings and not classifies)
    every = None if classifies else bool(target_shape)
    made = HfNetwork(base, causal, pad, num_outputs, every, heads, new_head, base_dropout, checkpointing)
    if adapter == "lora":
        made.redraw()  # the head before the adapters, as when first values are drawn again
        add_lora(base, rank, alpha, targets, dropout, rslora, trains, a_init, heads, last, layer_size)
    if base.device.type != "meta":
        made.check_masks(input_shape[0], vocab_size)
    return made


def model_files(path: str | None = None, initial: str = "pretrained", **_: object) -> list[Path]:
    """What `network` reads, of those that are there; a tokenizer's files are the dataset's."""
    folder = None if path is None else Path(path).expanduser()
    return [] if folder is None else [folder / CONFIG] if initial == "random" else files_read(folder)


def layer_size(part: nn.Module) -> tuple[int, int] | None:
    """(i, o) of a linear layer, also of GPT-2's, whose weight is stored as [i, o]."""
    if type(part) is transformers().pytorch_utils.Conv1D:
        weight = part.get_parameter("weight")
        return weight.shape[0], weight.shape[1]
    return linear_size(part)


def _fitted(
    config: Any, length: int, vocab_size: int, classes: int | None, pad: int | None, padding: int | None, causal: bool
) -> int | None:
    """Writes the dataset's sizes into the network's config. Returns its padding token; ValueError: they do not fit.

    `classes`: of whole sequences; None: a position's output is the next token. `pad`: as the user has given it.
    `padding`: of the dataset, whose token a network has that has none of its own.
    """
    text = config.get_text_config()
    if vocab_size > text.vocab_size:
        raise ValueError(
            f"the dataset has {vocab_size} tokens, but the network's embedding {text.vocab_size}: take the "
            "tokenizer that belongs to the network"
        )
    own = getattr(text, "pad_token_id", None)
    pad = next((one for one in (pad, own, padding) if one is not None and one >= 0), None)
    if pad is not None and pad >= text.vocab_size:
        raise ValueError(f"model.pad_token={pad} is none of the network's {text.vocab_size} tokens: give one of them")
    for name in ("max_position_embeddings", "sliding_window"):
        most = getattr(text, name, None)
        if most is not None and config.model_type in OWN_POSITIONS and name == "max_position_embeddings":
            most -= 1 + (pad or 0)  # they are counted from the padding token's number on
        if most is not None and length > most:
            raise ValueError(f"samples have {length} tokens, but the network takes {most} ({name}): cut them shorter")
    if classes is not None and pad is None:
        raise ValueError(
            "a classifier of sequences needs a padding token, and the network has none: give model.pad_token"
        )
    if classes is not None and padding not in (None, pad):
        raise ValueError(
            f"short samples are filled up with token {padding}, but token {pad} is what the network takes for padding: "
            f"take the tokenizer that belongs to the network, or give model.pad_token={padding}"
        )
    if classes is None and not causal:
        raise ValueError(f"{config.model_type} is no causal language model: take a task with classes, or a decoder")
    if classes is not None:
        config.num_labels = classes
        config.problem_type = "single_label_classification"
    text.pad_token_id = pad
    text.use_cache = config.use_cache = False
    return pad


def _config(path: str | None, initial: str, config: Mapping[str, Any] | None, vocab_size: int) -> Any:
    if path is not None:
        if config is not None:
            raise ValueError(
                f"model.config describes a network in place of a folder: leave it or model.path={path} out"
            )
        return config_of(Path(path).expanduser())
    if initial == "pretrained":
        raise ValueError("model=hf needs model.path=DIR, as save_pretrained writes it, or model.initial=random")
    if config is None:
        raise ValueError("model.initial=random needs model.path=DIR or model.config, such as {model_type: llama, ...}")
    return config_from({"vocab_size": vocab_size, **config})


def _base(path: str | None, initial: str, config: Any, wanted: Wanted) -> tuple[Any, tuple[str, ...]]:
    """The network, and its new parts; what is drawn comes from a fixed key, and leaves torch's generator as it was."""
    new: tuple[str, ...] = ()

    def make() -> nn.Module:
        nonlocal new
        if path is None or initial == "random" or torch.get_default_device().type == "meta":
            return drawn(config, wanted)  # on the meta device its sizes are asked for
        network, new = load(Path(path).expanduser(), config, wanted)
        return network

    return draw(make, RANDOM), new


def _last_layers(network: Any, classifies: bool) -> tuple[str, ...]:
    """Names of the parts behind the last hidden states."""
    if classifies:
        return classifier_layers(network)
    head = network.get_output_embeddings()
    return tuple(name for name, part in network.named_modules() if part is head)


def _check_new(new: Sequence[str], heads: Sequence[str], path: str | None) -> None:
    missing = [name for name in new if not within(name, heads)]
    if missing:
        raise ValueError(f"model.path={path}: its weights lack {', '.join(missing[:3])}, or have them in another size")
