"""Ranks by client: how many components of each adapter a client has.

Component j of an adapted matrix is row j of A and column j of B. A client of rank r_k has the first r_k of the model's
components; the scale s is the model's for all, that is alpha_k = s r_k, as in FLoRA's program.

Shape legend: N clients, K adapted matrices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Setup
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.core.validate import is_number, is_whole

Ranks = Sequence[int] | Mapping[int, float] | None
"""A rank for every client, {rank: share of the clients}, or the model's rank for all."""


def check_ranks(ranks: Ranks) -> None:
    """Raise ValueError unless they are a list of ranks, {rank: share} with shares that sum to 1, or null."""
    if ranks is None:
        return
    each = list(ranks)
    if not each or not all(is_whole(rank) and rank >= 1 for rank in each):
        raise ValueError(
            f"algorithm.ranks={ranks} must be a list with a rank, 1 or more, for every client, or {{rank: share}} such "
            "as {4: 0.5, 8: 0.5}, or null for the model's rank"
        )
    if isinstance(ranks, Mapping):
        shares = list(ranks.values())
        if not all(is_number(share) and share > 0 for share in shares) or abs(sum(shares) - 1) > 1e-6:
            raise ValueError(f"algorithm.ranks={ranks} must have positive shares that sum to 1")


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
