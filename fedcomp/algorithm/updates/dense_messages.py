"""Running statistics of BatchNorm on the wire: a second vector, sent dense, averaged, counted; and others like it.

No paper counts these statistics, so they are nothing in its own count.

Shape legend: M clients of the cohort, C running statistics.
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
    """The same for any vector [C] that goes uncompressed, in the message called `name`.

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
    """The same for any rows [M, C] that go uncompressed, in the message called `name`; no columns, no message."""
    if not rows.shape[1]:
        return rows.new_zeros(0)
    codec, common = Dense(), replace(ctx.common(name, cohort), layers=(rows.shape[1],))
    payload = replace(codec.encode(rows, common, ctx.private_key(name)), paper_bits=paper_bits)
    received = codec.decode(ctx.link.up(payload), common)
    return torch.mv(received.t(), cohort.weight / cohort.weight.sum())
