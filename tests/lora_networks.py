"""Small networks with low-rank adapters over a frozen base, for tests of methods: factories for `AlgorithmCase.module`.

The base is the same for every key, as a pretrained one is; the adapters are drawn from the run's.
"""

import math

from torch import nn

from fedcomp.check.world import NUM_CLASSES, NUM_FEATURES
from fedcomp.model.flat import draw
from fedcomp.model.lora.add import add_lora
from fedcomp.model.lora.linear import LoraLinear
from fedcomp.random.keys import Key

BASE = Key(("tests", "base"))
RANK, ALPHA, HIDDEN = 2, 4.0, 6
"""So s = 2; D = 2 (5 + 6) + 2 (6 + 3) = 40 with both adapters, of which A has 22 and B 18."""


def lora_mlp(trains: str = "both", rank: int = RANK) -> nn.Module:
    """A perceptron 5-6-3 for `fedcomp.check.world`'s data, adapters on both layers."""
    return add_lora(draw(_mlp, BASE), rank, ALPHA, trains=trains)


def lora_mlp_b() -> nn.Module:
    """`lora_mlp` with A frozen: D = 18."""
    return lora_mlp("b")


def lora_mlp_head() -> nn.Module:
    """An adapter on the first layer, the last one trained as a head: D = 22 + 21, the head last."""
    return add_lora(draw(_mlp, BASE), RANK, ALPHA, head=("2",))


def lora_of(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    """A perceptron for any data, adapters on both layers."""
    base = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), 16), nn.ReLU(), nn.Linear(16, num_outputs))
    return add_lora(base, RANK, ALPHA)


def lora_b_of(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    """`lora_of` with A frozen."""
    module = lora_of(input_shape, num_outputs)
    for layer in module.modules():
        if isinstance(layer, LoraLinear):
            layer.lora_A.requires_grad_(False)
    return module


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(NUM_FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, NUM_CLASSES))
