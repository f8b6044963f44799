"""Multilayer perceptrons: linear layers with ReLU between them."""

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import nn


def mlp(
    input_shape: Sequence[int],
    num_outputs: int,
    hidden: Sequence[int] = (32,),
    bias: bool = True,
    relu_on_logits: bool = False,
) -> nn.Sequential:
    """A perceptron from all of a sample's values to `num_outputs`; images are flattened."""
    if any(width < 1 for width in hidden):
        raise ValueError(f"model.hidden is {list(hidden)}; every width must be at least 1")
    widths = [math.prod(input_shape), *hidden, num_outputs]
    layers: list[nn.Module] = [nn.Flatten()]
    for num_in, num_out in pairwise(widths):
        layers += [nn.Linear(num_in, num_out, bias=bias), nn.ReLU()]
    return nn.Sequential(*(layers if relu_on_logits else layers[:-1]))
