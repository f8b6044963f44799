"""Running statistics of BatchNorm on the wire: a second vector, sent dense, averaged, counted.

Shape legend: M clients of the cohort, C running statistics.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.cohort import Cohort
from fedcomp.compressor.dense import Dense


def send_stats(stats: Tensor, num_receivers: int, ctx: Context) -> Tensor:
    """Broadcast running statistics [C] dense; nothing is sent where a model has none."""
    if not stats.shape[0]:
        return stats
    codec, common = Dense(), replace(ctx.common("stats", ctx.server(stats)), layers=(stats.shape[0],))
    payload = ctx.link.broadcast(codec.encode(stats[None], common, ctx.coin("stats")), num_receivers)
    return codec.decode(payload, common)[0]


def gather_stats(stats: Tensor, cohort: Cohort, ctx: Context) -> Tensor:
    """Clients send running statistics [M, C] dense; the server's weighted mean [C], weights normalised to sum 1."""
    if not stats.shape[1]:
        return stats.new_zeros(0)
    codec, common = Dense(), replace(ctx.common("stats", cohort), layers=(stats.shape[1],))
    received = codec.decode(ctx.link.up(codec.encode(stats, common, ctx.coin("stats"))), common)
    return torch.mv(received.t(), cohort.weight / cohort.weight.sum())
