"""All local SGD steps of small perceptrons in one launch on a GPU: a program trains one client.

Replaying a captured step launches a few dozen kernels of some microseconds, however small the network. Here the
parameters of a network with one hidden layer stay in registers from the first step to the last; samples are gathered
and normalised as they are read. Products are sums of float32 products (no TensorFloat-32) in an order of their own, so
results differ from the plain loop's by rounding.

Shape legend: M clients, S steps, B batch, F features, H hidden units, C classes, n samples; FP, HP, CP, BP are these
rounded up to powers of two, at least 16.
"""
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def"

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from fedcomp.core.to_device import to_device
from fedcomp.model.contract import SgdSteps

LIMITS, MAX_WEIGHTS = {"FP": 64, "HP": 64, "CP": 16, "BP": 16}, 2048
"""The largest of each, and of FP HP, with which no register spills."""
NUM_WARPS = 8
CHANGING = ["num_clients", "num_steps", "batch", "dim", "rate", "decay", "weight_1", "bias_1", "weight_2", "bias_2"]
"""Arguments whose values do not cause a recompilation."""


@triton.jit(do_not_specialize=CHANGING)
def train_kernel(
    theta,
    samples,
    targets,
    sample_indices,
    counts,
    offset,
    scale,
    out,
    losses,
    num_clients,
    num_steps,
    batch,
    dim,
    rate,
    decay,
    weight_1,
    bias_1,
    weight_2,
    bias_2,
    F: tl.constexpr,
    H: tl.constexpr,
    C: tl.constexpr,
    FP: tl.constexpr,
    HP: tl.constexpr,
    CP: tl.constexpr,
    BP: tl.constexpr,
    ONE_SCALE: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):
    """out [M, D] and losses [M], the sum over steps of the mean loss; see `train`."""
    client = tl.program_id(0).to(tl.int64)
    f, h, o, b = tl.arange(0, FP), tl.arange(0, HP), tl.arange(0, CP), tl.arange(0, BP)
    in_1 = (h[:, None] < H) & (f[None, :] < F)
    in_2 = (o[:, None] < C) & (h[None, :] < H)
    at_1, at_2 = h[:, None] * F + f[None, :], o[:, None] * H + h[None, :]
    row = theta + client * dim
    w1 = tl.load(row + weight_1 + at_1, mask=in_1, other=0.0)
    w2 = tl.load(row + weight_2 + at_2, mask=in_2, other=0.0)
    b1, b2 = tl.zeros([HP], tl.float32), tl.zeros([CP], tl.float32)
    if HAS_BIAS:
        b1 = tl.load(row + bias_1 + h, mask=h < H, other=0.0)
        b2 = tl.load(row + bias_2 + o, mask=o < C, other=0.0)
    where = tl.zeros([FP], tl.int32) if ONE_SCALE else f
    shift = tl.load(offset + where, mask=f < F, other=0.0)
    factor = tl.load(scale + where, mask=f < F, other=0.0)
    total = 0.0
    for step in range(num_steps):
        place = step * num_clients + client
        count = tl.load(counts + place)
        real = b < count
        number = tl.load(sample_indices + place * batch + b, mask=real, other=0)
        inside = real[:, None] & (f[None, :] < F)
        raw = tl.load(samples + number[:, None] * F + f[None, :], mask=inside, other=0).to(tl.float32)
        x = tl.where(inside, shift[None, :] + raw * factor[None, :], 0.0)
        target = tl.load(targets + number, mask=real, other=0)

        z1 = tl.dot(x, tl.trans(w1), input_precision="ieee") + b1[None, :]
        a1 = tl.maximum(z1, 0.0)
        z2 = tl.dot(a1, tl.trans(w2), input_precision="ieee") + b2[None, :]
        z2 = tl.where(o[None, :] < C, z2, float("-inf"))
        z2 = z2 - tl.max(z2, 1)[:, None]
        exponentials = tl.exp(z2)
        sums = tl.sum(exponentials, 1)
        chosen = o[None, :] == target[:, None]
        share = 1.0 / tl.maximum(count, 1).to(tl.float32)
        loss = tl.log(sums) - tl.sum(tl.where(chosen, z2, 0.0), 1)
        total += tl.sum(tl.where(real, loss, 0.0), 0) * share

        g2 = (exponentials / sums[:, None] - tl.where(chosen, 1.0, 0.0)) * share
        g2 = tl.where(real[:, None], g2, 0.0)
        g1 = tl.where(z1 > 0.0, tl.dot(g2, w2, input_precision="ieee"), 0.0)
        length = tl.where(count > 0, rate, 0.0)  # a client that is done stays, also under weight decay
        w2 -= length * (tl.dot(tl.trans(g2), a1, input_precision="ieee") + decay * w2)
        w1 -= length * (tl.dot(tl.trans(g1), x, input_precision="ieee") + decay * w1)
        if HAS_BIAS:
            b2 -= length * (tl.sum(g2, 0) + decay * b2)
            b1 -= length * (tl.sum(g1, 0) + decay * b1)
    row = out + client * dim
    tl.store(row + weight_1 + at_1, w1, mask=in_1)
    tl.store(row + weight_2 + at_2, w2, mask=in_2)
    if HAS_BIAS:
        tl.store(row + bias_1 + h, b1, mask=h < H)
        tl.store(row + bias_2 + o, b2, mask=o < C)
    tl.store(losses + client, total)


def sizes(num_in: int, num_hidden: int, num_out: int, batch: int) -> dict[str, int] | None:
    """The kernel's constants for these sizes, of at most `batch` samples; None where registers would spill."""
    exact = {"F": num_in, "H": num_hidden, "C": num_out}
    padded = {f"{name}P": max(16, triton.next_power_of_2(size)) for name, size in (exact | {"B": batch}).items()}
    fits = all(padded[name] <= most for name, most in LIMITS.items()) and padded["FP"] * padded["HP"] <= MAX_WEIGHTS
    return exact | padded if fits else None


def train(
    samples: tuple[Tensor, Tensor],
    constants: dict[str, int],
    places: tuple[int, int | None, int, int | None],
    steps: SgdSteps,
) -> tuple[Tensor, Tensor]:
    """As `contract.TrainFused`.

    Args:
        samples: x [n, F] and classes y [n] int64. constants: `sizes`. places: where the first layer's weight and bias
            begin in a row, and the second one's; None: there are no biases.
    """
    num_steps, num_clients, batch = steps.sample_indices.shape
    theta = steps.theta.contiguous()
    out, losses = torch.empty_like(theta), theta.new_empty(num_clients)
    offset, scale = steps.normalisation
    kernel: Any = train_kernel
    kernel[(num_clients,)](
        theta,
        samples[0],
        samples[1],
        steps.sample_indices.contiguous(),
        to_device(steps.counts.of_steps.astype(np.int32), theta.device),
        offset.contiguous(),
        scale.contiguous(),
        out,
        losses,
        num_clients,
        num_steps,
        batch,
        theta.shape[1],
        steps.rate,
        steps.decay,
        *(place or 0 for place in places),
        **constants,
        ONE_SCALE=offset.numel() == 1,
        HAS_BIAS=places[1] is not None,
        num_warps=NUM_WARPS,
    )
    return out, losses
