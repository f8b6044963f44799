"""Reads a network of Hugging Face's transformers from a folder as `save_pretrained` writes it: never from a hub."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedcomp.core.first_line import first_line
from fedcomp.model.hf.library import transformers

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
SMALL = "shakespeare_llama_"
"""How the folder's name begins that scripts/pretrain_small.py writes, before the hash of what it is made from."""
_CAUSES = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, ImportError)


@dataclass(frozen=True)
class Wanted:
    """What a folder's network is to be.

    Attributes:
        classes: of whole sequences; None: a causal language model.
        dtype: of its weights. attention: transformers' name of the implementation.
    """

    classes: int | None
    dtype: torch.dtype
    attention: str


def files_read(folder: Path) -> list[Path]:
    """The files that `config_of` and `load` read, of those that are there. ValueError: the index is damaged."""
    names = [CONFIG, "generation_config.json", INDEX]
    names += _parts(folder) if (folder / INDEX).is_file() else [WEIGHTS]
    return [folder / name for name in names if (folder / name).is_file()]


def _parts(folder: Path) -> list[str]:
    """The files of weights that the folder's index names. ValueError: it names none."""
    try:
        index = json.loads((folder / INDEX).read_bytes())
        parts = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(parts, dict) or not parts or not all(isinstance(name, str) for name in parts.values()):
            raise ValueError("it has no weight_map of weights and files")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"model.path={folder}: its {INDEX}, which says in which file each weight is, is damaged "
            f"({first_line(error)}): copy the folder again, or save it again with save_pretrained"
        ) from error
    return sorted(set(parts.values()))


def config_of(folder: Path) -> Any:
    """The folder's config. ValueError: it is none, or needs code or quantised weights."""
    if not folder.is_dir():
        remedy = (
            "python scripts/pretrain_small.py makes it, in minutes"
            if folder.name.startswith(SMALL)
            else "give one as save_pretrained writes it (a model's name on a hub is never fetched)"
        )
        raise ValueError(f"model.path={folder}: there is no such folder; {remedy}")
    if not (folder / CONFIG).is_file():
        raise ValueError(f"model.path={folder} has no {CONFIG}: give a folder as save_pretrained writes it")
    library = transformers()
    try:
        config = library.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever the library and those below it raise for wrong sizes
        raise ValueError(
            f"model.path={folder}: its {CONFIG} is of no network that transformers {library.__version__} has "
            f"({_wrong(error)})"
        ) from error
    if getattr(config, "quantization_config", None) is not None:
        raise ValueError(f"model.path={folder} has quantised weights, which cannot be read: give them unquantised")
    return config


def config_from(options: Mapping[str, Any]) -> Any:
    """The config of a network that is described in YAML: `model_type` and its sizes. ValueError: there is none such."""
    library, own = transformers(), dict(options)
    try:
        return library.AutoConfig.for_model(own.pop("model_type"), **own)
    except Exception as error:  # as in config_of
        raise ValueError(
            f"model.config must have a model_type that transformers knows, such as llama, and options that it takes "
            f"({_wrong(error)})"
        ) from error


def _wrong(error: Exception) -> str:
    """What is wrong with a config, without the names of all networks."""
    cause = error.__cause__ if type(error).__name__.startswith("StrictDataclass") else error
    return first_line(cause or error).partition(". Should contain")[0]


def is_causal(config: Any) -> bool:
    """Whether a position reads only those before it. ValueError for networks with an encoder and a decoder."""
    library = transformers()
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"model=hf: {config.model_type} has an encoder and a decoder: take a decoder, or an encoder")
    return getattr(config, "is_decoder", False) or type(config) not in library.MODEL_FOR_MASKED_LM_MAPPING


def load(folder: Path, config: Any, wanted: Wanted) -> tuple[nn.Module, tuple[str, ...]]:
    """The folder's network in evaluation mode, and the parts of which it has no weights, by name: they are random.

    Raises ValueError: weights are missing, damaged or of another network.
    """
    if not (folder / WEIGHTS).is_file() and not (folder / INDEX).is_file():
        pickled = any(folder.glob("*.bin"))
        what = "only pickled weights (*.bin), which are not read" if pickled else f"no {WEIGHTS}"
        raise ValueError(f"model.path={folder} has {what}: save it again with save_pretrained, as safetensors")
    files_read(folder)  # which says so where the index is damaged
    from safetensors import SafetensorError

    try:
        network, found = _auto(wanted).from_pretrained(
            folder,
            config=config,
            dtype=wanted.dtype,
            attn_implementation=wanted.attention,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except (*_CAUSES, SafetensorError) as error:
        raise ValueError(f"model.path={folder} cannot be read ({_reason(error)})") from error
    mismatched = (one if isinstance(one, str) else one[0] for one in found["mismatched_keys"])
    new = dict.fromkeys(name.rpartition(".")[0] for name in (*sorted(found["missing_keys"]), *sorted(mismatched)))
    return network.eval(), tuple(new)


def drawn(config: Any, wanted: Wanted) -> nn.Module:
    """A network of random weights, from torch's global generator. ValueError: the config does not fit."""
    try:
        made = _auto(wanted).from_config(config, dtype=wanted.dtype, attn_implementation=wanted.attention)
    except _CAUSES as error:
        raise ValueError(f"model.config: transformers cannot make such a network ({_reason(error)})") from error
    return made.eval()


def _reason(error: Exception) -> str:
    line = first_line(error)
    return "it has no attention=sdpa: take model.attention=eager" if "attn_implementation" in line else line


def _auto(wanted: Wanted) -> Any:
    library = transformers()
    return library.AutoModelForCausalLM if wanted.classes is None else library.AutoModelForSequenceClassification
