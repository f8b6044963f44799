"""Ranks by client: how many components of each adapter a client has.

Component j of an adapted matrix is row j of A and column j of B. A client of rank r_k has the first r_k of the model's
components; the scale s is the model's for all, that is alpha_k = s r_k, as in FLoRA's program.

Shape legend: N clients, K adapted matrices.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Setup, Weights
from fedcomp.algorithm.lora.components import DENSE, Components
from fedcomp.client import LocalSolver
from fedcomp.compressor import Compressor
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.core.validate import is_number, is_whole

Ranks = Sequence[int] | Mapping[int, float] | None
"""A rank for every client, {rank: share of the clients}, or the model's rank for all."""


@dataclass(frozen=True)
class RankedAdapters(Algorithm):
    """Options of a method whose clients have adapters of ranks of their own.

    Attributes:
        client: trains the adapter that it is sent; its memories begin anew in every round.
        uplink: carries the factors, if it is lossy their change since they were sent down.
    """

    client: LocalSolver
    ranks: Ranks = None
    weights: Weights = "samples"
    uplink: Compressor = DENSE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ranks is None:
            return
        if not self.ranks or not all(is_whole(rank) and rank >= 1 for rank in self.ranks):
            raise ValueError(
                f"algorithm.ranks={self.ranks} must be a list with a rank, 1 or more, for every client, or {{rank: "
                "share} such as {4: 0.5, 8: 0.5}, or null for the model's rank"
            )
        if isinstance(self.ranks, Mapping):
            shares = list(self.ranks.values())
            if not all(is_number(share) and share > 0 for share in shares) or abs(sum(shares) - 1) > 1e-6:
                raise ValueError(f"algorithm.ranks={self.ranks} must have positive shares that sum to 1")

    def first_ranks(self, theta: Tensor, setup: Setup) -> Tensor:
        """[N, K] every client's ranks. ValueError: the model has no adapters, or other ranks."""
        components = Components.of(setup.tensors)
        ranks = ranks_of_clients(self.ranks, components.layout, setup, theta)
        components.check_codec(self.uplink, ranks, setup.tensors)
        return ranks


def ranks_of_clients(ranks: Ranks, layout: LoraLayout, setup: Setup, like: Tensor) -> Tensor:
    """[N, K] int64 rank of every client in every matrix, on the device of `like`; shares are drawn from the run's key.

    ValueError: a list that is not one rank a client, or a rank above the model's.
    """
    largest = torch.tensor([matrix.rank for matrix in layout.matrices], device=like.device)
    everyone = torch.arange(setup.num_clients, device=like.device)
    if ranks is None:
        return largest.expand(setup.num_clients, -1).clone()
    top = max(matrix.rank for matrix in layout.matrices)
    if max(ranks) > top:
        raise ValueError(f"algorithm.ranks has {max(ranks)}, above the model's rank {top}: raise model.rank to it")
    if isinstance(ranks, Mapping):
        kinds = torch.tensor(list(ranks), device=like.device)
        ends = torch.tensor(list(ranks.values()), device=like.device).cumsum(0)[:-1]
        drawn = setup.key.fold_in("ranks").uniform(everyone, 1)
        own = kinds[(drawn >= ends).sum(1)]
    elif len(ranks) == setup.num_clients:
        own = torch.tensor(list(ranks), device=like.device)
    else:
        raise ValueError(
            f"algorithm.ranks has {len(ranks)} ranks, but there are {setup.num_clients} clients: give one to each, or "
            "{rank: share}"
        )
    return torch.minimum(own[:, None], largest)
