"""Linear models: least squares for regression, softmax regression for classification."""

import math
from collections.abc import Sequence

from torch import nn


def linear(
    input_shape: Sequence[int], num_outputs: int, bias: bool = True, start: float | None = None
) -> nn.Sequential:
    """x W^T + b over all of a sample's values; with cross-entropy this is softmax regression."""
    layer = nn.Linear(math.prod(input_shape), num_outputs, bias=bias)
    if start is not None:
        for parameter in layer.parameters():
            nn.init.constant_(parameter, start)
    return nn.Sequential(nn.Flatten(), layer)


def logistic(input_shape: Sequence[int], num_outputs: int, task: str, bias: bool = True) -> nn.Sequential:
    """Softmax regression: `linear` for classification; ValueError for any other task."""
    if task != "classification":
        raise ValueError(f"model=logistic is for classification, the dataset's task is {task}; choose model=linear")
    return linear(input_shape, num_outputs, bias)
