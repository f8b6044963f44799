"""FedMRN and what it compares with (Li et al., ACM MM 2024, arXiv:2408.03220)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from fedcomp.reporting.tables import published
from scripts.reproduce import fedmrn_masking, fedmrn_tasks
from scripts.reproduce.experiment import Experiment
from scripts.reproduce.fedmrn_tasks import DATA, METHOD, SPLIT
from scripts.reproduce.markdown import average, claims, every, less, made_with, picture, verdict
from scripts.reproduce.printed import ACCURACY, UPLINK, accuracies, beside, near
from scripts.reproduce.records import Folder, Records, Run

METRICS = (ACCURACY, "train/loss", "bpp/uplink", "paper/bpp/uplink", "bits/uplink", "bits/total")
SPLITS = {"non_iid_2": "Non-IID-2", "iid": "IID", "non_iid_1": "Non-IID-1"}
"""Our name of a split -> the paper's; the one that tells methods apart best comes first."""
FIRST = "fedavg,fedmrn,signsgd,eden,fedmrns,drive,terngrad,topk"
FAR_BELOW = "fedsparsify,fedpm"
COMPRESSED = ("SignSGD", "Top-k", "TernGrad", "DRIVE", "EDEN")
"""The baselines that compress the update after training."""
SMALL = "rounds=1 client.epochs=1 num_clients=20 participation.num_participants=2"


def _table1(split: str) -> Experiment:
    base = f"experiment=fedmrn/table1 {DATA}=fashion_mnist {SPLIT}={split} seed=0 name=fedmrn_table1_{split}"
    return Experiment(
        f"fedmrn_table1_{split}",
        [f"{base} {METHOD}={methods}" for methods in (FIRST, FAR_BELOW)],
        f"{SMALL} {METHOD}=fedavg,fedmrn",
        METRICS,
        curves={ACCURACY: f"fedmrn_table1_{split}.png"},
    )


TABLE_1 = {split: _table1(split) for split in SPLITS}
MNIST = Experiment(
    "fedmrn_mnist_small",
    [
        f"experiment=fedmrn/mnist_small {METHOD}=fedavg,fedmrn,eden,signsgd,fedmrns,{FAR_BELOW} seed=0",
        "experiment=fedmrn/mnist_small seed=1,2",
    ],
    f"rounds=1 eval_every=1 client.epochs=1 seed=0 {METHOD}=fedavg,fedmrn",
    METRICS,
    curves={ACCURACY: "fedmrn_mnist_small.png"},
)
EXPERIMENTS = (
    TABLE_1["non_iid_2"],
    MNIST,
    *fedmrn_tasks.EXPERIMENTS,
    TABLE_1["iid"],
    TABLE_1["non_iid_1"],
    *fedmrn_masking.EXPERIMENTS,
)


def page(folder: Folder) -> str:
    """docs/results/fedmrn.md."""
    mnist = folder[MNIST]
    tables = {split: folder[experiment] for split, experiment in TABLE_1.items()}
    first = tables["non_iid_2"]
    return f"""\
# FedMRN

Accuracies are the best over the rounds, as the paper's program logs them. The page is written by
`make reproduce PAPER=fedmrn SCALE=paper`.

{_claims(first, mnist, folder)}

The bit counts of the paper, 1 per parameter and a compression by 32, leave out the seed and BatchNorm's scales,
shifts and statistics, which are sent as floats and are counted here. Differences from the paper and its program:
clients are weighted by samples (the program: by mini-batches); each message has a seed of 64 bits (the program has
1,001 noises in all); labels are split by a stable sort; data are normalised by the training set only; FedPM is as in
its own paper (Adam on scores, signed constants, BatchNorm without scale and shift), since the version in the
comparison is not published. The paper does not print the learning rates of the other methods, which here are
FedAvg's, nor the protocol, which its program has: the best test accuracy over the rounds.

{_section("Table 1, Fashion-MNIST, Non-IID-2", "non_iid_2", first)}

## MNIST, a small task

{made_with(MNIST, mnist)}

`cnn4_bn`, 30 clients of 3 labels, 5 a round, 30 rounds of 2 epochs; FedMRN's rates and noise.

{beside({}, mnist, [UPLINK])}

{picture("FedMRN beside FedAvg, EDEN, SignSGD, FedSparsify and FedPM on MNIST", "fedmrn_mnist_small.png", mnist)}

{fedmrn_tasks.sections(folder)}

{_section("Table 1, Fashion-MNIST, IID", "iid", tables["iid"])}

{_section("Table 1, Fashion-MNIST, Non-IID-1", "non_iid_1", tables["non_iid_1"])}

{fedmrn_masking.sections(folder)}
"""


def _claims(first: Records, mnist: Records, folder: Folder) -> str:
    main = TABLE_1["non_iid_2"]
    rows: list[tuple[str, str, Experiment | str]] = [
        ("a client sends 1 bit per parameter and a seed", _one_bit(first or mnist), main if first else MNIST),
        *_accuracy_claims("Fashion-MNIST, 3 labels a client", main, first),
        *_accuracy_claims("MNIST, 3 labels a client", MNIST, mnist),
        *fedmrn_masking.claims(folder),
        *fedmrn_tasks.claims(folder),
        (
            "progressive masking reduces the error by √(Στ²/S³) (proposition 1)",
            "no, by √((S + 1)/(2S))",
            "tests/algorithm/test_fedmrn.py::test_error_of_a_step_and_the_corrected_proposition_1",
        ),
        (
            "the masked noise is unbiased",
            "not with uniform noise",
            "tests/compressor/test_masked_noise.py::test_uniform_noise_is_biased_as_the_closed_form_says",
        ),
    ]
    return claims(rows)


def _accuracy_claims(task: str, experiment: Experiment, records: Records) -> list[tuple[str, str, Experiment | str]]:
    baselines = [name for name in COMPRESSED if records.where(label=name)]
    return [
        (f"{task}: as accurate as FedAvg, within a point", near(records, "FedAvg", "FedMRN", 0.01), experiment),
        (f"{task}: more accurate than the compressed updates", _above(records, baselines), experiment),
        (f"{task}: it converges faster than they do", _faster(records, baselines), experiment),
        (f"{task}: FedPM and FedSparsify are far below (2 points)", _far(records), experiment),
    ]


def _section(title: str, split: str, own: Records) -> str:
    text = f"## {title}\n\n{made_with(TABLE_1[split], own)}"
    if not own:
        return text
    rows = {
        row.method: row
        for row in published.load("fedmrn")
        if row.dataset == "FMNIST" and row.partition == SPLITS[split]
    }
    shown = picture(f"Accuracy against bits, {SPLITS[split]}", f"fedmrn_table1_{split}.png", own)
    return f"{text}\n\nPrinted: 100 rounds, the mean of 5 runs.\n\n{beside(rows, own, [UPLINK])}\n\n{shown}"


def _one_bit(records: Records) -> str:
    found = average(records.where(label="FedMRN"), lambda run: run.last("bpp/uplink"))
    return "" if found is None else f"{verdict(found < 1.01)}: {found:.3g} with the messages of BatchNorm"


def _above(records: Records, others: Sequence[str]) -> str:
    """Whether FedMRN's best accuracy is above those of the others that were run; else where it is not."""
    (own, *values), note = accuracies(records, "FedMRN", *others)
    return _with_exceptions({name: less(value, own) for name, value in zip(others, values, strict=True)}, note)


def _faster(records: Records, others: Sequence[str]) -> str:
    """Whether FedMRN's accuracy, as a mean over the rounds, is above those of the others."""
    (own, *_), note = accuracies(records, "FedMRN", *others)
    if own is None or not others:
        return ""
    chosen = {name: records.where(label=name) for name in ("FedMRN", *others)}
    limit = min(run.rounds for runs in chosen.values() for run in runs)

    def over_rounds(run: Run) -> float:
        return fmean(line[ACCURACY] for line in run.lines if 0 < line["round"] <= limit)

    means = {name: average(runs, over_rounds) for name, runs in chosen.items()}
    return _with_exceptions({name: less(means[name], means["FedMRN"]) for name in others}, note)


def _with_exceptions(found: dict[str, bool | None], note: str) -> str:
    wrong = [name for name, holds in found.items() if holds is False]
    text = verdict(every(list(found.values()))) + note
    return f"{text}: not against {', '.join(wrong)}" if wrong else text


def _far(records: Records) -> str:
    (reference, *others), note = accuracies(records, "FedMRN", "FedPM", "FedSparsify")
    limit = None if reference is None else reference - 0.02
    return verdict(every([less(one, limit) for one in others])) + note
