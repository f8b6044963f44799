"""A trained network of transformers as a folder: an adapter that PEFT loads, or a whole network.

Neither names a path of this machine. The same network gives the same bytes.
"""

import copy
import json
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from fedcomp.model.lora.add import within
from fedcomp.model.lora.linear import LoraLinear
from fedcomp.records.atomic_write import write_atomically


class Exported(Protocol):
    """What is read of a network: see `network.HfNetwork`."""

    network: Any
    every: bool | None
    head: tuple[str, ...]


def write_folder(module: Exported, folder: Path, merge: bool = False) -> None:
    """Write a folder: of the adapter where the network has one and `merge` is False, else of the whole network."""
    folder.mkdir(exist_ok=True)
    if merge or not _named(module):
        network = merged(module)
        network.config._name_or_path = ""
        network.save_pretrained(folder)
        return
    from safetensors.torch import save

    write_atomically(folder / "adapter_config.json", json.dumps(_config(module), indent=2, sort_keys=True).encode())
    write_atomically(folder / "adapter_model.safetensors", save(_tensors(module), {"format": "pt"}))


def classifier_layers(network: Any) -> tuple[str, ...]:
    """Names of the parts of a classifier behind its last hidden states."""
    return tuple(name for name in ("score", "classifier", "pre_classifier") if hasattr(network, name))


def _heads(module: Exported) -> list[str]:
    """The parts beside adapters: those that are trained, and a classifier's frozen ones, which PEFT looks for."""
    heads = module.head or (classifier_layers(module.network) if module.every is None else ())
    return sorted(head for head in heads if not any(within(name, [head]) for name in _named(module)))


def _named(module: Exported) -> dict[str, LoraLinear]:
    return {name: part for name, part in module.network.named_modules() if isinstance(part, LoraLinear)}


def _config(module: Exported) -> dict[str, Any]:
    layers = _named(module)
    one = next(iter(layers.values()))
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if module.every is not None else "SEQ_CLS" if _heads(module) else None,
        "base_model_name_or_path": None,
        "r": one.rank,
        "lora_alpha": one.scale * one.rank,
        "lora_dropout": 0.0 if one.dropout is None else one.dropout.p,
        "bias": "none",
        "target_modules": sorted(layers),
        "fan_in_fan_out": not isinstance(one.base, torch.nn.Linear),
        "modules_to_save": _heads(module) or None,
    }


def _tensors(module: Exported) -> dict[str, Tensor]:
    found = {}
    for name, layer in _named(module).items():
        for factor in ("lora_A", "lora_B"):
            found[f"base_model.model.{name}.{factor}.weight"] = getattr(layer, factor).detach().contiguous()
    for head in _heads(module):
        for name, tensor in module.network.get_submodule(head).named_parameters():
            found[f"base_model.model.{head}.{name}"] = tensor.detach().contiguous()
    return dict(sorted(found.items()))


@torch.no_grad()
def merged(module: Exported) -> Any:
    """transformers' network with W + s B A in place of adapted layers; added in float32. The module stays."""
    network = copy.deepcopy(module.network)
    for name, layer in _named(module).items():
        change = layer.scale * layer.lora_B @ layer.lora_A
        base = copy.deepcopy(layer.base)
        weight = base.get_parameter("weight")
        own = change if isinstance(base, torch.nn.Linear) else change.mT
        weight.copy_(weight.float() + own)
        network.set_submodule(name, base)
    return network
