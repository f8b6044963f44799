"""FedMRN and what it compares with (Li et al., ACM MM 2024, arXiv:2408.03220)."""

from __future__ import annotations

from fedcomp.reporting.tables import published
from scripts.reproduce.experiment import Experiment
from scripts.reproduce.markdown import every, less, made_with, spread, verdict
from scripts.reproduce.printed import beside, mean
from scripts.reproduce.records import Folder, Records

METRICS = ("test/accuracy", "train/loss", "bpp/uplink", "paper/bpp/uplink", "bits/uplink", "bits/total")
METHOD, SPLIT = "experiment/fedmrn/method@_global_", "experiment/fedmrn/split@_global_"
"""The config groups of the methods and of the partitions."""
SPLITS = {"non_iid_2": "Non-IID-2", "iid": "IID", "non_iid_1": "Non-IID-1"}
"""Our name of a split -> the paper's; the one that tells methods apart best comes first."""
FIRST = "fedavg,fedmrn,signsgd,eden,fedmrns,drive,terngrad,topk"
FAR_BELOW = "fedsparsify,fedpm"
SMALL = "rounds=2 client.epochs=1 num_clients=20 participation.num_participants=2"


def _table1(split: str) -> Experiment:
    data = "experiment/fedmrn/data@_global_=fashion_mnist"
    base = f"experiment=fedmrn/table1 {data} {SPLIT}={split} seed=0 name=fedmrn_table1_{split}"
    return Experiment(
        f"fedmrn_table1_{split}",
        [f"{base} {METHOD}={methods}" for methods in (FIRST, FAR_BELOW)],
        f"{SMALL} {METHOD}=fedavg,fedmrn",
        METRICS,
        (),
        {"curves": f"fedmrn_table1_{split}.png"},
    )


TABLE_1 = {split: _table1(split) for split in SPLITS}
MNIST = Experiment(
    "fedmrn_mnist_small",
    ["experiment=fedmrn/mnist_small", f"experiment=fedmrn/mnist_small {METHOD}={FAR_BELOW} seed=0"],
    f"rounds=2 eval_every=2 client.epochs=1 seed=0 {METHOD}=fedavg,fedmrn,signsgd",
    METRICS,
    (),
    {"curves": "fedmrn_mnist_small.png"},
)
ABLATION = Experiment(
    "fedmrn_ablation", ["experiment=fedmrn/ablation seed=0"], f"{SMALL} {METHOD}=fedmrn,without_sm", METRICS
)
NOISE = Experiment(
    "fedmrn_noise",
    ["experiment=fedmrn/noise seed=0 experiment/fedmrn/data@_global_=fashion_mnist"],
    f"{SMALL} {METHOD}=fedmrn algorithm.noise=uniform algorithm.alpha=1e-2",
    METRICS,
    ["algorithm.noise", "algorithm.alpha"],
    {"alpha": "fedmrn_noise.png"},
)
EXPERIMENTS = (MNIST, *TABLE_1.values(), ABLATION, NOISE)


def page(folder: Folder) -> str:
    """docs/results/fedmrn.md."""
    mnist, ablation, noise = folder[MNIST], folder[ABLATION], folder[NOISE]
    tables = {split: folder[experiment] for split, experiment in TABLE_1.items()}
    return f"""\
# FedMRN

Accuracies are the best over the rounds, as the paper's program logs them. The page is written by
`make reproduce PAPER=fedmrn SCALE=paper`.

| claim of the paper | Fashion-MNIST, 3 labels a client | MNIST, 3 labels a client |
| --- | --- | --- |
| FedMRN is as accurate as FedAvg, within a point | {_near(tables["non_iid_2"])} | {_near(mnist)} |
| it is above SignSGD | {_above(tables["non_iid_2"], "SignSGD")} | {_above(mnist, "SignSGD")} |
| it is above EDEN | {_above(tables["non_iid_2"], "EDEN")} | {_above(mnist, "EDEN")} |
| FedPM and FedSparsify are far below (2 points) | {_far(tables["non_iid_2"])} | {_far(mnist)} |

The paper counts 1 bit per parameter, a compression by 32. BatchNorm's scales, shifts and statistics are sent as
floats, and are counted here.

Differences from the paper and its program: clients are weighted by samples (the program: by mini-batches); each
message has a seed of 64 bits (the program has 1,001 noises in all); labels are split by a stable sort; data are
normalised by the training set only; FedPM is as in its own paper (Adam on scores, signed constants, BatchNorm
without scale and shift), since the version in the comparison is not published.

Two statements of the paper are corrected, with tests: progressive masking reduces the error by √((S + 1)/(2S)), not
by √(Στ²/S³), and masks over uniform noise are biased (`tests/algorithm/test_fedmrn.py`,
`tests/compressor/test_masked_noise.py`).

## MNIST, a small task

{made_with(MNIST, mnist)}

`cnn4_bn`, 30 clients of 3 labels, 5 a round, 30 rounds of 2 epochs; FedMRN's rates and noise.

{_ours(mnist)}

![FedMRN beside FedAvg, EDEN, SignSGD, FedSparsify and FedPM](fedmrn_mnist_small.png)

{_table_1(tables)}

## Ablation (figure 4)

{made_with(ABLATION, ablation)}

{_ours(ablation)}

## Noise (figure 5)

{made_with(NOISE, noise)}

![Accuracy over the magnitude of the noise](fedmrn_noise.png)
"""


def _table_1(tables: dict[str, Records]) -> str:
    printed = published.load("fedmrn")
    parts = []
    for split, name in SPLITS.items():
        own = tables[split]
        text = f"## Table 1, Fashion-MNIST, {name}\n\n{made_with(TABLE_1[split], own)}"
        if own:
            rows = {row.method: row for row in printed if row.dataset == "FMNIST" and row.partition == name}
            text += f"\n\n{beside(rows, own, [_UPLINK])}\n\n![Accuracy against bits](fedmrn_table1_{split}.png)"
        parts.append(text)
    return "\n\n".join(parts)


def _ours(records: Records) -> str:
    return beside({}, records, [_UPLINK]) if records else ""


def _uplink(runs: Records) -> str:
    return spread(runs.collect(lambda run: run.last("bpp/uplink")), "{:.3g}".format)


_UPLINK = ("uplink, bits per parameter", _uplink)


def _near(records: Records) -> str:
    reference = mean(records, "FedAvg")
    return verdict(less(None if reference is None else reference - 0.01, mean(records, "FedMRN")))


def _above(records: Records, other: str) -> str:
    return verdict(less(mean(records, other), mean(records, "FedMRN")))


def _far(records: Records) -> str:
    reference = mean(records, "FedMRN")
    limit = None if reference is None else reference - 0.02
    return verdict(every([less(mean(records, name), limit) for name in ("FedPM", "FedSparsify")]))
