"""Random weights that are never trained: what masks choose from.

V. Ramanujan et al., "What's hidden in a randomly weighted neural network?", CVPR 2020 ("signed Kaiming constant");
B. Isik et al., "Sparse random networks for communication-efficient federated learning" (FedPM), ICLR 2023.

A tensor's weights have the standard deviation c = gain / sqrt(fan_in). With half of the weights kept, a ReLU layer
multiplies the second moment by gain^2 / 4: 0.5 (`kaiming`), 1.85 (`e_fan_in`, FedPM's code), 1 (`two_over_fan_in`).

Shape legend: D parameters.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Setup
from fedcomp.core.parameter_layout import ParameterSubset, ParameterTensor, is_normalisation
from fedcomp.core.ranges import CheckedOptions, Within
from fedcomp.random.keys import Key

GAINS = {"kaiming": math.sqrt(2), "e_fan_in": math.e, "two_over_fan_in": 2.0}
Gain = Literal["kaiming", "e_fan_in", "two_over_fan_in"] | Annotated[float, Within("(0, inf)")]


@dataclass(frozen=True)
class FrozenWeights(CheckedOptions):
    """Options of weights that are drawn once and never trained, and of the first probabilities of masks over them.

    Attributes:
        frozen: signed_constant, +-c; uniform on (-c sqrt 3, c sqrt 3); normal, N(0, c^2); model, the model's own first
            weights.
        theta0: normal, sigma(s) with s ~ N(0, 1), or a number for all.
    """

    frozen: Literal["signed_constant", "uniform", "normal", "model"] = "signed_constant"
    gain: Gain = "kaiming"
    theta0: Literal["normal"] | Annotated[float, Within("(0, 1)", "a probability")] = "normal"
    prefix = "algorithm."

    when_slow = (
        "masks over frozen weights learn slowly, and a small network has few good ones: more rounds, or a wider model"
    )

    def first_masks(self, theta: Tensor, part: ParameterSubset, setup: Setup) -> tuple[Tensor, Tensor]:
        """(frozen weights [D], theta_0 [D], 1 where nothing is masked), from the run's seed."""
        weights = self.draw_weights(theta, setup.tensors, setup.key.fold_in("weights"))
        drawn = self.first_probabilities(theta, setup.key.fold_in("theta"))
        return weights, part.put(torch.ones_like(theta), part.take(drawn))

    def draw_weights(self, own: Tensor, tensors: tuple[ParameterTensor, ...], key: Key) -> Tensor:
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

    def first_probabilities(self, like: Tensor, key: Key) -> Tensor:
        """[D] theta_0."""
        if self.theta0 == "normal":
            row = torch.zeros(1, dtype=torch.int64, device=like.device)
            return torch.sigmoid(key.normal(row, like.shape[0])[0])
        return torch.full_like(like, float(self.theta0))
