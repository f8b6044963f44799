"""Methods that readers of the five papers compare with next: rotated quantisers, and DeComFL with LeNet-5."""

# ruff: noqa: E501 (lines of a page)

from collections.abc import Callable
from pathlib import Path

from fedcomp.compressor.rotations.lloyd_max import lloyd_max
from scripts.reproduce.experiment import Experiment
from scripts.reproduce.markdown import Cell, made_with, picture, table
from scripts.reproduce.records import Folder, Records, Run

BITS = (1, 2, 3, 4)
QUANTISERS = Experiment(
    "neighbours_quantisers",
    ["experiment=neighbours/quantisers"],
    "dataset.kind=gaussian,sparse compressor.bits=1,2 rounds=5 eval_every=5",
    ["mse", "mse/closed_form", "mse/error", "bpp/uplink"],
    ["compressor.bits", "dataset.kind", "num_clients"],
    {"mse": "neighbours_quantisers.png"},
    before=(
        Path("outputs/updates/updates_10.npy"),
        "-m scripts.record_updates --out outputs/updates dataset=mnist model=lenet5 partition=dirichlet num_clients=10 "
        "client.lr=0.05 client.steps=20",
    ),
)
EXPERIMENTS = (QUANTISERS,)

MIN_MSE, MSE, EDEN, PROD, QUIC = METHODS = (
    "EDEN (min_mse)",
    "TurboQuant (mse)",
    "EDEN",
    "TurboQuant (prod)",
    "QUIC-FL",
)
KINDS = {"gaussian": "Gaussian", "lognormal": "log-normal", "sparse": "sparse", "file": "updates"}

DECOMFL = """\
Test accuracy (%), seed 0, i.i.d., all 10 clients, K = 1 step along P = 20 directions, momentum 0.9:

| `algorithm.lr` | batch | round 60 | 100 | 200 | 300 | 400 | 500 | 600 |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| 0.001, the published one | 32 | 9.6 | 9.6 | 9.7 | 19.3 | | | |
| 0.003 | 32 | 9.6 | 17.8 | 43.3 | NaN in 293 | | | |
| 0.003, from round 220 on 0.0012 | 8 | 9.6 | 25.8 | 41.2 | 63.9 | NaN in 380 | | |
| 0.003, from round 200 on 0.00045 | 8 | 9.6 | 25.8 | 41.2 | 40.3 | 42.2 | 66.9 | 76.6 |

- The last run has sent 8.06 Mbit in both directions by then (11.5 by the paper's count); FedAvg sends 39.5 Mbit in one round.
- A round goes η/(1 − momentum) = 0.01 to 0.03 along the gradient, where FedAvg's five steps of 0.1 go up to 0.5, and the loss
  of this network stays at 2.30 for the first hundred of such rounds.
- Nor can the rate be raised: the noise of the directions is (D + 1)/P = 3,085 times the squared gradient, and diverges
  as soon as the loss falls and its curvature grows. So the rate that leaves the plateau is too large after it, for which
  `algorithm.stages` is there.
- The published curves are of a network of half the size (28,938 parameters), 1,000 rounds and more: 91.5 to 94.4 % after
  1,000 with K = 1, 96.8 to 97.6 % with K = 10, which costs ten times the evaluations here."""
"""A table by hand, of runs of the command above: no records were kept."""


def page(folder: Folder) -> str:
    """docs/results/neighbours.md."""
    runs = folder[QUANTISERS]
    return f"""\
# Neighbours of the five papers

Methods that readers of the five papers compare with next. The page is written by
`make reproduce PAPER=neighbours SCALE=paper`.

## Accuracy for the same bits

`fedcomp experiment=neighbours/same_bits` runs a method of some family with a budget of true bits in both directions:
[tables, pictures, rates and local steps](same_bits.md).

## Rotated quantisers

{made_with(QUANTISERS, runs)}

Vectors of length 1: Gaussian, log-normal, sparse (1 % of the entries) with 8,192 entries, and updates of LeNet-5 on MNIST
(61,706 entries, 10 clients, Dirichlet 0.5; seen in the report as `file`), which this command records first:

```
python -m scripts.record_updates --out outputs/updates dataset=mnist model=lenet5 partition=dirichlet num_clients=10 client.lr=0.05 client.steps=20
```

{picture("Squared error against true bits an entry", "neighbours_quantisers.png", runs)}

Squared error of one vector at 1 / 2 / 3 / 4 bits, a mean over 25 repetitions{_largest_deviation(runs)}:

{_table(runs, "1", BITS)}

Of the mean of 10 vectors at 1 / 2 bits, each rotated by itself (QUIC-FL: all alike):

{_table(runs, "10", BITS[:2])}

{_length(runs)}

{_conclusions(runs)}

## DeComFL with LeNet-5

DeComFL learns LeNet-5 on MNIST, in hundreds of rounds; after 20 it is where it began, at 9.6 %, with any rate:

```
fedcomp algorithm=decomfl dataset=mnist model=lenet5 num_clients=10 algorithm.batch_size=8 algorithm.lr=0.003 'algorithm.stages={{200: [0.15, 1]}}' rounds=600 eval_every=20
```

{DECOMFL}
"""


def _error(runs: Records, label: str, kind: str, bits: int, num_clients: str, metric: str = "mse") -> float | None:
    found = runs.where(label=label, dataset__kind=kind, compressor__bits=str(bits), num_clients=num_clients)
    return next(iter(found)).last(metric) if found else None


def _table(runs: Records, num_clients: str, bits: tuple[int, ...]) -> str:
    """Of each method its error by kind of vector, beside what theory says of dense ones; empty where nothing ran."""

    def cell(label_of: Callable[[Records], str], kind: str) -> Cell:
        return lambda own: _joined([_error(own, label_of(own), kind, each, num_clients) for each in bits])

    def label(own: Records) -> str:
        return next(iter(own)).about["label"]

    columns: list[tuple[str, Cell]] = [("theory, dense", lambda own: _theory(own, label(own), num_clients, bits))]
    columns += [(title, cell(label, kind)) for kind, title in KINDS.items()]
    rows = [(name + (", biased" if name in (MIN_MSE, MSE) else ""), runs.where(label=name)) for name in METHODS]
    return table("", rows, columns)


def _theory(runs: Records, label: str, num_clients: str, bits: tuple[int, ...]) -> str:
    """The closed forms that the runs logged; of biased ones that of a single message, which does not average out."""
    if label in (MIN_MSE, MSE):
        return _joined([lloyd_max(each).distortion for each in bits]) if num_clients == "1" else ""
    dense = [_error(runs, label, kind, each, num_clients, "mse/closed_form") for each in bits for kind in ("file",)]
    return _joined(dense)


def _joined(errors: list[float | None]) -> str:
    shown = ["" if one is None else f"{one:.{3 if one >= 0.1 else 4}f}".removeprefix("0") for one in errors]
    return " / ".join(shown) if any(shown) else ""


def _largest_deviation(runs: Records) -> str:
    def share(run: Run) -> float | None:
        deviation, error = run.last("mse/error"), run.last("mse")
        return None if deviation is None or not error else deviation / error

    found = runs.where(num_clients="1").collect(share)
    return f" (the largest standard error is {100 * max(found):.1f} % of its mean)" if found else ""


def _conclusions(runs: Records) -> str:
    """What is said of the runs, where those that decide it are there."""
    eden, prod, least = (_error(runs, label, "file", 1, "10") for label in (EDEN, PROD, MIN_MSE))
    if eden is None or prod is None or least is None:
        return ""
    due = _error(runs, EDEN, "file", 1, "10", "mse/closed_form")
    two, prod_two = (_error(runs, label, "file", 2, "10") for label in (EDEN, PROD))
    last, quic = (_error(runs, label, "file", 4, "1") for label in (EDEN, QUIC))
    return f"""What it settles:

- TurboQuant (mse) is EDEN (min_mse) with a scale that is not fitted: the same codes, and errors that differ in the fourth
  digit. Both are biased: the mean of 10 updates has {_joined([least])} at 1 bit, and EDEN, whose errors average out, {_joined([eden])}.
- Real updates are dense enough for a single rotation: EDEN's error is the theory's, {_joined([eden])} for the mean of 10 at 1 bit
  where {_joined([due])} is due. (With the rotation before, which did not mix all entries of vectors such as these, it was .0677.)
- TurboQuant (prod) with a rotation is level with EDEN at 1 bit ({_joined([prod])}), where both are the signs of a rotated vector.
  From 2 bits on it needs about half a bit more for the same error: {_joined([prod_two])} for {_joined([two])} at 2 bits. With the paper's
  Gaussian matrix it needs more than one: 3-bit prod has .1845, by its closed form and a test, and 2-bit EDEN .133.
- QUIC-FL is exactly unbiased for every vector with one rotation, level with EDEN at 4 bits ({_joined([quic])} and {_joined([last])} on
  updates), and spends 0.05 to 0.17 bits more on its exact entries. At 1 and 2 bits it is far behind."""


def _length(runs: Records) -> str:
    if not runs.where(dataset__kind="gaussian"):
        return ""
    return "(The Gaussian vector's length is 1.006: its errors are 1.2 % larger for that.)"
