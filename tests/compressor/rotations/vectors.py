"""Vectors of three kinds, and the error and bias of a codec's independent messages of one of them."""

import torch
from torch import Tensor

from fedcomp.compressor import Codec
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge


def vector(kind: str, dim: int) -> Tensor:
    """[D] gaussian: normal entries; lognormal: all positive; sparse: 1 % log-normal entries of random sign."""
    generator = torch.Generator().manual_seed(dim)
    x = torch.randn(dim, generator=generator)
    if kind == "gaussian":
        return x
    if kind == "lognormal":
        return x.exp()
    signs = torch.randn(dim, generator=generator).sign()
    kept = torch.randperm(dim, generator=generator)[: dim // 100]
    return torch.zeros(dim).index_copy(0, kept, (x.exp() * signs)[kept])


def decoded(codec: Codec, x: Tensor, num: int, *name: str | int) -> Tensor:
    """[num, D] what the messages of `num` senders of x [D] are decoded to, each in a round of its own.

    So those of a codec whose senders share a rotation are independent too.
    """
    rows = [
        _once(codec, x[None], SharedKnowledge(Key(("vectors", *name, i)), torch.tensor([i]), (len(x),)))
        for i in range(num)
    ]
    return torch.cat(rows)


def _once(codec: Codec, x: Tensor, known: SharedKnowledge) -> Tensor:
    return codec.decode(codec.encode(x, known, known.key.fold_in("private")), known)


def error(y: Tensor, x: Tensor) -> tuple[float, float]:
    """(vNMSE, its standard error): mean over rows of ||y - x||^2 / ||x||^2."""
    each = (y - x).double().square().sum(1) / x.double().square().sum()
    return float(each.mean()), float(each.std() / len(each) ** 0.5)


def bias(y: Tensor, x: Tensor) -> float:
    """||mean y - x||^2 over vNMSE / n ||x||^2: near 1 where the messages are unbiased, n where they are all alike."""
    off = float((y.double().mean(0) - x).square().sum() / x.double().square().sum())
    return off * len(y) / error(y, x)[0]
