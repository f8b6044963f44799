"""A model that server and clients share, through any downlink compressor: how it gets down, what everybody then has.

As FedAvg does it (algorithm/fedavg.py): a codec that is `faithful` carries the model itself, at the round's start and
to those who take part; any other carries the server's step, at the round's end and to all clients, so that idle ones
keep the same model too, and the server takes the step that it sent. Shape legend: D parameters, N clients in all.
"""

from __future__ import annotations

from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.cohort import Cohort
from fedcomp.compressor import Compressor, Memory


def at_start(
    downlink: Compressor, theta: Tensor, memory: Memory, cohort: Cohort, ctx: Context
) -> tuple[Tensor, Memory]:
    """The server's model theta [D] as the cohort has it when it begins to work, and the downlink's memory."""
    if not downlink.codec.faithful:
        return theta, memory
    sender = ctx.server(theta)
    return downlink.send_down(
        theta, memory, sender, cohort.size, ctx.link, ctx.common("model", sender), ctx.coin("model")
    )


def at_end(downlink: Compressor, old: Tensor, new: Tensor, memory: Memory, ctx: Context) -> tuple[Tensor, Memory]:
    """The model [D] after the round: `new`, or what the step from `old` to it became on the way to all N clients."""
    if downlink.codec.faithful:
        return new, memory
    sender = ctx.server(new)
    common, coin = ctx.common("step", sender), ctx.coin("step")
    step, memory = downlink.send_down(new - old, memory, sender, ctx.clients.num_clients, ctx.link, common, coin)
    return old + step, memory
