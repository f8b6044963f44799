"""Vectors that are sent uncompressed, beside the compressed ones or instead: a whole model, statistics of BatchNorm.

No paper counts running statistics, so their `paper_bits` are 0; the ledger counts them.

Shape legend: M clients of the cohort, C entries of a vector (running statistics).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.compressor.dense import Dense
from fedcomp.core.cohort import Cohort, Receivers


def send_stats(stats: Tensor, receivers: Receivers, ctx: Context) -> Tensor:
    """Broadcast running statistics [C] dense; nothing is sent where a model has none."""
    return send("stats", stats, receivers, ctx, paper_bits=0)


def send(name: str, vector: Tensor, receivers: Receivers, ctx: Context, paper_bits: int | None = None) -> Tensor:
    """Broadcast a vector [C] dense, in the message called `name`; returns it as received. No entries, no message.

    Args:
        paper_bits: as in `Payload`.
    """
    if not vector.shape[0]:
        return vector
    codec, common = Dense(), replace(ctx.common(name, ctx.server(vector)), layers=(vector.shape[0],))
    payload = replace(codec.encode(vector[None], common, ctx.private_key(name)), paper_bits=paper_bits)
    return codec.decode(ctx.link.broadcast(payload, receivers), common)[0]


def gather_stats(stats: Tensor, cohort: Cohort, ctx: Context) -> Tensor:
    """Clients send running statistics [M, C] dense; the server's weighted mean [C], weights normalised to sum 1."""
    return gather("stats", stats, cohort, ctx, paper_bits=0)


def gather(name: str, rows: Tensor, cohort: Cohort, ctx: Context, paper_bits: int | None = None) -> Tensor:
    """Clients send rows [M, C] dense, in the message called `name`; the server's mean [C] by normalised weights.

    Nothing is sent where there are no columns.
    """
    if not rows.shape[1]:
        return rows.new_zeros(0)
    codec, common = Dense(), replace(ctx.common(name, cohort), layers=(rows.shape[1],))
    payload = replace(codec.encode(rows, common, ctx.private_key(name)), paper_bits=paper_bits)
    received = codec.decode(ctx.link.up(payload), common)
    return torch.mv(received.t(), cohort.weight / cohort.weight.sum())
