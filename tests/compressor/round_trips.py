"""Many independent round trips of a codec, and their mean squares with standard errors. S draws, M rows, D entries."""

import torch
from torch import Tensor

from fedcomp.compressor import Codec, Estimator
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge


def known(num: int, dim: int, *path: int | str) -> SharedKnowledge:
    """What both ends know about a message of senders 2, 3, ... of vectors with one layer."""
    return SharedKnowledge(Key(("drawing", *path)), torch.arange(2, 2 + num), (dim,))


def draws(codec: Codec, x: Tensor, num_draws: int) -> Tensor:
    """[S, M, D] decoded vectors of x [M, D], each time by senders of their own, and so with fresh randomness."""
    shared = known(num_draws * x.shape[0], x.shape[1])
    rows = x.repeat(num_draws, 1)
    return codec.decode(codec.encode(rows, shared, shared.key.fold_in("coin")), shared).view(num_draws, *x.shape)


def joint_draws(codec: Codec, x: Tensor, num_draws: int) -> Tensor:
    """The same for codecs in which one sender's message depends on who the others are: one cohort after another."""
    shared = [known(*x.shape, draw) for draw in range(num_draws)]
    return torch.stack([codec.decode(codec.encode(x, one, one.key.fold_in("coin")), one) for one in shared])


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
