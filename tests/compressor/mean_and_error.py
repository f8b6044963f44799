"""Many senders of one vector: the mean of what a random codec decodes, and of its squared error, in one call."""

import torch
from torch import Tensor

from fedcomp.compressor import Codec
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge


def decode_repeated(codec: Codec, u: Tensor, layers: tuple[int, ...], num: int = 4000) -> Tensor:
    """[num, D] what `num` senders' messages of u [D] are decoded to."""
    known = SharedKnowledge(Key(("repeated",)), torch.arange(num), layers)
    return codec.decode(codec.encode(u.expand(num, -1), known, Key(("coin",))), known)


def check_mean_and_error(decoded: Tensor, u: Tensor, mean: Tensor, error: float) -> None:
    """The mean of each entry and of ||C(u) - u||^2 are as given, within 5 standard errors of the sample."""
    num = len(decoded)
    decoded, scale = decoded.double(), float(u.abs().max())
    off = (decoded.mean(0) - mean).abs()
    assert (off <= 5 * decoded.std(0) / num**0.5 + 1e-6 * scale).all()
    squared = (decoded - u).square().sum(1)
    assert abs(float(squared.mean()) - error) <= 5 * float(squared.std()) / num**0.5 + 1e-5 * error


def heavy(dim: int, seed: int = 0) -> Tensor:
    """[D] entries of very different size, some of them zero."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(dim, generator=generator) * torch.rand(dim, generator=generator).mul(3).exp()
    u[::7] = 0.0
    return u
