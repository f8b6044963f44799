"""A small simulation for checks: clients with unequal, odd numbers of samples; optional BatchNorm."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fedcomp.algorithm.contract import Algorithm
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.evaluation.per_client import PerClient
from fedcomp.model.build import build
from fedcomp.model.contract import AnyModel
from fedcomp.participation.bernoulli import Bernoulli
from fedcomp.participation.contract import Participation
from fedcomp.participation.full import Full
from fedcomp.participation.uniform import Uniform
from fedcomp.random.keys import Key
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger, Link

SIZES = (7, 12, 1, 9, 20, 5, 8)
NUM_CLIENTS = len(SIZES)
NUM_FEATURES, NUM_CLASSES = 5, 3
DEVICE = torch.device("cpu")
"""Device of the simulations; tests on a GPU set it."""
RUN = Key(("run", 0))
FULL, SOME, NOBODY = Full(), Uniform(num_participants=3), Bernoulli(probability=1e-9)


def dataset(seed: int = 0, scale: float = 1.0) -> Dataset:
    """Three noisy classes in five dimensions."""
    generator = torch.Generator().manual_seed(seed)
    num = sum(SIZES) + 40
    y = torch.randint(0, NUM_CLASSES, (num,), generator=generator)
    centres = torch.randn(NUM_CLASSES, NUM_FEATURES, generator=generator) * 2
    x = scale * (centres[y] + torch.randn(num, NUM_FEATURES, generator=generator))
    train, test = Samples(x[:-40], y[:-40]), Samples(x[-40:], y[-40:])
    return Dataset("toy", train, test, "classification", NUM_CLASSES)


def zeros(data: Dataset) -> Dataset:
    """The same samples with inputs that are all zero."""
    train, test = (replace(samples, x=torch.zeros_like(samples.x)) for samples in (data.train, data.test))
    return replace(data, train=train, test=test)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(NUM_FEATURES, 4), nn.ReLU(), nn.Linear(4, NUM_CLASSES))


def with_batch_norm() -> nn.Module:
    """No bias before the normalisation: its gradient would be 0 up to rounding, and some methods send its sign."""
    linear = nn.Linear(NUM_FEATURES, 4, bias=False)
    return nn.Sequential(linear, nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, NUM_CLASSES))


def model_of(module: Any, data: Dataset, key: Key = RUN, train: Iterable[Tensor] = ()) -> AnyModel:
    """The model that a module or a factory makes for these data."""
    return build(
        module,
        key.fold_in("model"),
        data.input_shape,
        data.num_outputs,
        data.task,
        train,
        target_shape=data.target_shape,
        vocab_size=data.vocab_size,
        unlabelled=data.unlabelled,
        some_tokens=data.some_tokens,
        padding_token=data.padding_token,
    )


def simulation(
    algorithm: Algorithm,
    module: Any = mlp,
    participation: Participation | None = None,
    chunk_size: int = 100,
    link: type[Link] = Link,
    rounds: int = 4,
    data: Dataset | None = None,
    sizes: tuple[int, ...] = SIZES,
) -> Simulation:
    """A simulation of the algorithm with these clients; participation None: some of them, or all if it needs them."""
    key = RUN
    data = dataset() if data is None else data.to(torch.device("cpu"))  # as before a run moves it
    ends = torch.tensor(sizes).cumsum(0).tolist()
    parts = [torch.arange(end - size, end) for size, end in zip(sizes, ends)]
    train = data.inputs(Samples(data.train.x[: ends[-1]], data.train.y[: ends[-1]]))
    model = model_of(module, data, key, train)
    shards = ClientShards.of(parts, DEVICE)
    moved = data.to(DEVICE)
    own = PerClient() if algorithm.personalised else None
    rule = participation or (FULL if algorithm.full_participation else SOME)
    return Simulation(
        algorithm, moved, shards, model, rule, key, rounds, chunk_size, link, device=DEVICE, per_client=own
    )


def part_of(data: Dataset, num_test: int = 40) -> Dataset:
    """A few samples of a data set, as many as the clients here have, and of its test samples."""

    def drawn(samples: Samples, num: int) -> Samples:
        if len(samples) < num:
            raise ValueError(f"dataset={data.name} has {len(samples)} samples where the checks take {num}")
        order = Key(("check", "samples")).bits(torch.zeros(1, dtype=torch.int64), len(samples))[0].argsort()[:num]
        return Samples(samples.x[order], samples.y[order])

    return replace(data, train=drawn(data.train, sum(SIZES)), test=drawn(data.test, min(num_test, len(data.test))))


def run(
    sim: Simulation, state: Any = None, first: int = 0, last: int | None = None, ledger: Ledger | None = None
) -> Any:
    """Rounds `first` to `last` (exclusive); returns the state."""
    ledger = ledger if ledger is not None else Ledger()
    state = sim.init() if state is None else state
    for index in range(first, sim.rounds if last is None else last):
        state, _ = sim.round(index, state, ledger)
    return state


@dataclass(frozen=True)
class InFloat64(Dataset):
    """The same samples as float64: sums of so few float32 values are then exact."""

    def normalise(self, raw: Tensor) -> Tensor:
        return super().normalise(raw).double()


def in_float64(sim: Simulation) -> Simulation:
    """The same simulation with clients that compute in float64.

    Sums in another order then differ by about 1e-15, and their results are rounded to float32, which is 10^8 times as
    coarse: they are equal bit for bit, except for about one value in 10^7 that is halfway between two floats. So signs,
    top-k indices and drawn masks, which one bit can change, are equal too. In float32 about one in thirty of these
    simulations has a difference. No module here has an entry that is 0 up to rounding, for which this would fail.
    """
    fields = {name: getattr(sim.dataset, name) for name in Dataset.__dataclass_fields__}
    return replace(sim, dataset=InFloat64(**fields), dtype=torch.float64)
