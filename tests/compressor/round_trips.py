"""Round trips of a codec, one or many independent ones, their means and errors. S draws, M rows, D entries."""

import torch
from torch import Tensor

from fedcomp.compressor import Estimator
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.parts import Codec


def gauss(*shape: int, seed: int = 0) -> Tensor:
    """Normal entries."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def known(num: int, dim: int, *path: int | str) -> SharedKnowledge:
    """What both ends know about a message of senders 2, 3, ... of vectors with one layer."""
    return SharedKnowledge(Key(("drawing", *path)), torch.arange(2, 2 + num), (dim,))


def passed(codec: Codec, x: Tensor, shared: SharedKnowledge) -> Tensor:
    """[M, D] what the messages of rows x [M, D] are decoded to."""
    return codec.decode(codec.encode(x, shared, shared.key.fold_in("coin")), shared)


def round_trip(codec: Codec, x: Tensor, layers: tuple[int, ...] | None = None) -> Tensor:
    """[M, D] the same of senders 0, 1, ... and tensors of these sizes (None: one)."""
    return passed(codec, x, SharedKnowledge(Key(("repeated",)), torch.arange(len(x)), layers or (x.shape[1],)))


def draws(codec: Codec, x: Tensor, num_draws: int) -> Tensor:
    """[S, M, D] decoded vectors of x [M, D], each time by senders of their own, and so with fresh randomness."""
    return passed(codec, x.repeat(num_draws, 1), known(num_draws * x.shape[0], x.shape[1])).view(num_draws, *x.shape)


def joint_draws(codec: Codec, x: Tensor, num_draws: int) -> Tensor:
    """The same for codecs in which one sender's message depends on who the others are: one cohort after another."""
    return torch.stack([passed(codec, x, known(*x.shape, draw)) for draw in range(num_draws)])


def mean_square(errors: Tensor) -> tuple[Tensor, Tensor]:
    """[M] mean over draws of ||error||^2, for errors [S, M, D], and its standard error [M]; both float64."""
    squares = errors.double().square().sum(-1)
    return squares.mean(0), squares.std(0) / len(squares) ** 0.5


def estimates(
    codec: Codec,
    estimator: Estimator,
    x: Tensor,
    num_draws: int,
    weight: Tensor | None = None,
    memory: Tensor | None = None,
) -> Tensor:
    """[S, D] what the receiver estimates in rounds of one memory (None: an empty one) and weights (None: 1/n)."""
    num, dim = x.shape
    cohort = Cohort.of(range(2, 2 + num), torch.full((num,), 1 / num) if weight is None else weight)
    memory = estimator.init(num + 2, x[0]) if memory is None else memory
    found = []
    for draw in range(num_draws):
        shared = known(num, dim, draw)
        payload = codec.encode(x, shared, shared.key.fold_in("coin"))
        found.append(estimator.estimate(codec, payload, memory, cohort, shared)[0])
    return torch.stack(found)


def decode_repeated(codec: Codec, u: Tensor, layers: tuple[int, ...], num: int = 4000) -> Tensor:
    """[num, D] what `num` senders' messages of u [D] are decoded to."""
    return round_trip(codec, u.expand(num, -1), layers)


def check_mean_and_error(decoded: Tensor, u: Tensor, mean: Tensor, error: float) -> None:
    """The mean of each entry and of ||C(u) - u||^2 are as given, within 5 standard errors of the sample."""
    num = len(decoded)
    decoded, scale = decoded.double(), float(u.abs().max())
    off = (decoded.mean(0) - mean).abs()
    assert (off <= 5 * decoded.std(0) / num**0.5 + 1e-6 * scale).all()
    squared = (decoded - u).square().sum(1)
    assert abs(float(squared.mean()) - error) <= 5 * float(squared.std()) / num**0.5 + 1e-5 * error


def heavy(dim: int) -> Tensor:
    """[D] entries of very different size, some of them zero."""
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(dim, generator=generator) * torch.rand(dim, generator=generator).mul(3).exp()
    u[::7] = 0.0
    return u


def vector(kind: str, dim: int) -> Tensor:
    """[D] gaussian: normal entries; lognormal: all positive."""
    x = gauss(dim, seed=dim)
    return x if kind == "gaussian" else x.exp()


def error(y: Tensor, x: Tensor) -> tuple[float, float]:
    """(vNMSE, its standard error): mean over rows of ||y - x||^2 / ||x||^2."""
    each = (y - x).double().square().sum(1) / x.double().square().sum()
    return float(each.mean()), float(each.std() / len(each) ** 0.5)


def bias(y: Tensor, x: Tensor) -> float:
    """||mean y - x||^2 over vNMSE / n ||x||^2: near 1 where the messages are unbiased, n where they are all alike."""
    off = float((y.double().mean(0) - x).square().sum() / x.double().square().sum())
    return off * len(y) / error(y, x)[0]
