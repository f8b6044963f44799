"""A model that server and clients share, through any downlink compressor: how it gets down, what everybody then has.

As FedAvg does it (algorithm/fedavg.py): a `near_lossless` codec carries the model itself, at the round's start and
to those who take part; any other carries the server's step, at the round's end and to all clients, so that idle ones
keep the same model too, and the server takes the step that it sent. Shape legend: D parameters, N clients in all.
"""

from __future__ import annotations

from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.compressor import Compressor, Memory
from fedcomp.core.cohort import Cohort


def send_down(
    name: str, downlink: Compressor, x: Tensor, memory: Memory, num_receivers: int, ctx: Context
) -> tuple[Tensor, Memory]:
    """The server broadcasts x [D] in the message called `name`; what each decodes [D], and the server's memory."""
    sender = ctx.server(x)
    common, private_key = ctx.common(name, sender), ctx.private_key(name)
    return downlink.send_down(x, memory, sender, num_receivers, ctx.link, common, private_key)


def at_start(
    downlink: Compressor, theta: Tensor, memory: Memory, cohort: Cohort, ctx: Context
) -> tuple[Tensor, Memory]:
    """The server's model theta [D] as the cohort has it when it begins to work, and the downlink's memory."""
    if not downlink.codec.near_lossless:
        return theta, memory
    return send_down("model", downlink, theta, memory, cohort.size, ctx)


def at_end(downlink: Compressor, old: Tensor, new: Tensor, memory: Memory, ctx: Context) -> tuple[Tensor, Memory]:
    """The model [D] after the round: `new`, or what the step from `old` to it became on the way to all N clients."""
    if downlink.codec.near_lossless:
        return new, memory
    step, memory = send_down("step", downlink, new - old, memory, ctx.clients.num_clients, ctx)
    return old + step, memory
