"""Tiny random networks of transformers."""

import functools
from typing import Any

import torch

from fedcomp.model.build import build
from fedcomp.model.flat import draw
from fedcomp.model.hf.hf import network
from fedcomp.random.keys import Key

KEY = Key(("test", "hf"))
VOCAB, LENGTH, CLASSES, PAD = 40, 10, 3, 0
_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": VOCAB, "pad_token_id": PAD}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {**_SIZES, "model_type": "llama", "intermediate_size": 64, "num_key_value_heads": 2},
    "gpt2": {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    | {"vocab_size": VOCAB, "pad_token_id": PAD, "bos_token_id": 1, "eos_token_id": 1},
    "opt": {**_SIZES, "model_type": "opt", "ffn_dim": 64, "max_position_embeddings": 64, "word_embed_proj_dim": 32},
    "bert": {**_SIZES, "model_type": "bert", "intermediate_size": 64, "max_position_embeddings": 64},
}


def _made(name: str, classifies: bool, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A random network's factory, and the data that it is for."""
    options = {"initial": "random", "config": CONFIGS[name], "rank": 4, "alpha": 8.0} | options
    given = {"num_outputs": CLASSES, "task": "classification", "target_shape": ()}
    if not classifies:
        given = {"num_outputs": VOCAB, "task": "next_token", "target_shape": (LENGTH,)}
    return functools.partial(network, **options), given | {"input_shape": (LENGTH,), "vocab_size": VOCAB}


def built(name: str = "llama", classifies: bool = False, key: Key = KEY, **options: Any):
    """A random network as a model."""
    factory, data = _made(name, classifies, options)
    return build(factory, key, **data, some_tokens=not classifies)


def module(name: str = "llama", classifies: bool = False, key: Key = KEY, **options: Any):
    """It as a module."""
    factory, data = _made(name, classifies, options)
    return draw(lambda: factory(**data), key)


def tokens(*shape: int, padded: bool = False, seed: int = 0) -> torch.Tensor:
    """Random tokens [*shape, L]; every second sequence ends with padding if `padded`."""
    found = torch.randint(1, VOCAB, (*shape, LENGTH), generator=torch.Generator().manual_seed(seed))
    if padded:
        found[..., ::2, LENGTH - 4 :] = PAD
    return found
