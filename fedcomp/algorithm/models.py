"""The model that a method keeps from round to round, and the models that are evaluated.

Shape legend: D parameters, C running statistics, K models.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class ModelState:
    """What lives from round to round: the server's model; the state of a method that remembers more inherits from it.

    Attributes:
        theta: [D] its parameters. stats: [C] its running statistics.
    """

    theta: Tensor
    stats: Tensor


@dataclass(frozen=True)
class Models:
    """Models to evaluate side by side; what is logged is their mean.

    Attributes: theta: [K, D] parameters. stats: [K, C] running statistics.
        change: [n] of the adapted matrices of all K, as `Clients.moved` takes it; [0]: none.
    """

    theta: Tensor
    stats: Tensor
    change: Tensor = field(default_factory=lambda: torch.empty(0))
