"""Random weights that are never trained: what masks choose from.

V. Ramanujan et al., "What's hidden in a randomly weighted neural network?", CVPR 2020 ("signed Kaiming constant");
B. Isik et al., "Sparse random networks for communication-efficient federated learning" (FedPM), ICLR 2023.

A tensor's weights have the standard deviation c = gain / sqrt(fan_in). With half of the weights kept, a ReLU layer
multiplies the second moment by gain^2 / 4: 0.5 (`kaiming`), 1.85 (`e_fan_in`, FedPM's code), 1 (`two_over_fan_in`).

Shape legend: D parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedcomp.core.parameter_layout import ParameterSubset, ParameterTensor, is_normalisation
from fedcomp.core.ranges import CheckedOptions
from fedcomp.random.keys import Key

Frozen = Literal["signed_constant", "uniform", "normal", "model"]
GAINS = {"kaiming": math.sqrt(2), "e_fan_in": math.e, "two_over_fan_in": 2.0}


@dataclass(frozen=True)
class FrozenWeights(CheckedOptions):
    """The distribution of weights that are drawn once and never trained.

    Attributes:
        frozen: signed_constant, +-c; uniform on (-c sqrt 3, c sqrt 3); normal, N(0, c^2); model, the model's
            own first weights.
        gain: kaiming, e_fan_in, two_over_fan_in, or a positive number.
    """

    frozen: Frozen = "signed_constant"
    gain: str | float = "kaiming"
    prefix = "algorithm."

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gain not in GAINS and not (isinstance(self.gain, int | float) and 0 < self.gain < float("inf")):
            raise ValueError(f"algorithm.gain={self.gain} must be one of {', '.join(GAINS)}, or a positive number")

    def draw(self, own: Tensor, tensors: tuple[ParameterTensor, ...], key: Key) -> Tensor:
        """[D] weights; `own` [D] are the model's own, which normalisation layers keep (scale 1, shift 0)."""
        if self.frozen == "model":
            return own
        row = torch.zeros(1, dtype=torch.int64, device=own.device)
        if self.frozen == "signed_constant":
            drawn = key.rademacher(row, own.shape[0])[0]
        elif self.frozen == "normal":
            drawn = key.normal(row, own.shape[0])[0]
        else:
            drawn = (key.uniform(row, own.shape[0])[0] * 2 - 1) * math.sqrt(3)
        gain = GAINS[self.gain] if isinstance(self.gain, str) else float(self.gain)
        scales = [torch.full((one.size,), gain / math.sqrt(one.fan_in), device=own.device) for one in tensors]
        kept = ParameterSubset.of(tensors, is_normalisation)
        return kept.put(drawn * torch.cat(scales), kept.take(own))


def first_probabilities(theta0: str | float, like: Tensor, key: Key) -> Tensor:
    """[D] first probabilities of a mask: sigma(s) with s ~ N(0, 1) for "normal", else that number everywhere.

    Raises ValueError: neither "normal" nor a number in (0, 1).
    """
    if theta0 == "normal":
        row = torch.zeros(1, dtype=torch.int64, device=like.device)
        return torch.sigmoid(key.normal(row, like.shape[0])[0])
    if not isinstance(theta0, float | int) or not 0 < theta0 < 1:
        raise ValueError(f"algorithm.theta0={theta0} must be normal, or a number between 0 and 1")
    return torch.full_like(like, float(theta0))
