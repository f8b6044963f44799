"""FedMRN and what it compares with (Li et al., ACM MM 2024, arXiv:2408.03220)."""

from collections.abc import Mapping
from statistics import fmean

from fedcomp.reporting.tables import published
from scripts.reproduce import fedmrn_masking, fedmrn_tables, fedmrn_tasks
from scripts.reproduce.difference import all_above, none_below
from scripts.reproduce.experiment import Cut, Experiment
from scripts.reproduce.fedmrn_masking import FEWEST, METRICS
from scripts.reproduce.fedmrn_tables import CUT, SEEDS, SPLITS
from scripts.reproduce.fedmrn_tasks import DATA, METHOD, SPLIT
from scripts.reproduce.markdown import average, claims, every, less, made_with, picture, verdict
from scripts.reproduce.printed import ACCURACY, UPLINK, above, beside, finished
from scripts.reproduce.records import Folder, Records, Run

FIRST = "fedavg,fedmrn,signsgd,eden,fedmrns,drive,terngrad,topk"
FAR_BELOW = "fedsparsify,fedpm"
COMPRESSED_MODELS = ("FedPM", "FedSparsify")
BASELINES = ("SignSGD", "Top-k", "TernGrad", "DRIVE", "EDEN", *COMPRESSED_MODELS)


def _table1(split: str) -> Experiment:
    base = f"experiment=fedmrn/table1 {DATA}=fashion_mnist {SPLIT}={split}"
    return Experiment(
        f"fedmrn_table1_{split}",
        [
            f"{base} seed={seed} name=fedmrn_table1_{split} {METHOD}={methods}"
            for seed in SEEDS
            for methods in (FIRST, FAR_BELOW)
        ],
        f"{FEWEST} {METHOD}=fedavg,fedmrn",
        METRICS,
        curves={ACCURACY: f"fedmrn_table1_{split}.png"},
        cut=Cut(CUT, 60_000),
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
    cut=Cut(CUT, 20_000),
)
EXPERIMENTS = (
    TABLE_1["non_iid_2"],
    MNIST,
    *fedmrn_tasks.EXPERIMENTS,
    TABLE_1["iid"],
    TABLE_1["non_iid_1"],
    *fedmrn_masking.EXPERIMENTS,
    *fedmrn_tables.EXPERIMENTS,
)


def page(folder: Folder) -> str:
    """docs/results/fedmrn.md."""
    mnist = folder[MNIST]
    tables = {split: folder[experiment] for split, experiment in TABLE_1.items()}
    first = tables["non_iid_2"]
    return f"""\
# FedMRN

Accuracies are the best over the rounds, as the paper's program logs them. Claims are about whole runs of the paper's
networks and data; smaller tasks are shown below without a verdict. The page is written by
`make reproduce PAPER=fedmrn SCALE=paper`.

{_claims(tables, folder)}

The bit counts of the paper, 1 per parameter and a compression by 32, leave out the seed and BatchNorm's scales,
shifts and statistics, which are sent as floats and are counted here. Differences from the paper and its program:
clients are weighted by samples (the program: by mini-batches); each message has a seed of 64 bits (the program has
1,001 noises in all); labels are split by a stable sort; data are normalised by the training set only; FedPM is as in
its own paper (Adam on scores, signed constants, BatchNorm without scale and shift), since the version in the
comparison is not published. The paper does not print the learning rates of the other methods, which here are
FedAvg's, nor the protocol, which its program has: the best test accuracy over the rounds.

{_section("Table 1, Fashion-MNIST, Non-IID-2", "non_iid_2", first)}

{_section("Table 1, Fashion-MNIST, IID", "iid", tables["iid"])}

{_section("Table 1, Fashion-MNIST, Non-IID-1", "non_iid_1", tables["non_iid_1"])}

{fedmrn_tables.distances([(SPLITS[split], records) for split, records in tables.items()])}

## MNIST, a small task

{made_with(MNIST, mnist)}

`cnn4_bn`, 30 clients of 3 labels, 5 a round, 30 rounds of 2 epochs; FedMRN's rates and noise.

{beside({}, mnist, [UPLINK])}

{picture("FedMRN beside FedAvg, EDEN, SignSGD, FedSparsify and FedPM on MNIST", "fedmrn_mnist_small.png", mnist)}

{fedmrn_tables.lenet(folder)}

{fedmrn_tasks.sections(folder)}

{fedmrn_tables.papers(folder)}

{fedmrn_masking.sections(folder)}
"""


def _claims(tables: Mapping[str, Records], folder: Folder) -> str:
    main = TABLE_1["non_iid_2"]
    task = "(section 1; table 1, here Fashion-MNIST, all three partitions, 100 rounds)"
    rows: list[tuple[str, str, Experiment | str]] = [
        (
            '"the communication costs of … FedMRN are all 1 bit per parameter" (section 5.1.3)',
            _one_bit(tables["non_iid_2"]),
            main,
        ),
        (f'"superior … test accuracy compared to all baselines" {task}', _above(tables), main),
        (f'"superior convergence speed" {task}', _faster(tables), main),
        (f'"a similar level of accuracy as FedAvg" {task}', _similar(tables), main),
        (
            'FedPM and FedSparsify: "a significant decrease in accuracy compared to FedAvg" (section 5.2)',
            _far(tables),
            main,
        ),
        *fedmrn_masking.claims(folder),
        *fedmrn_tasks.CLAIMS,
        (
            "progressive masking reduces the error q by √(Στ²/S³) (proposition 1)",
            "no, by √((S + 1)/(2S))",
            "tests/algorithm/test_fedmrn.py::test_error_of_a_step_and_the_corrected_proposition_1",
        ),
        (
            'masked noise is unbiased "when u/n ∈ [0, 1]", signed "when u/n ∈ [−1, 1]" (section 3.2.1)',
            "yes; its default noise, uniform, violates the condition",
            "tests/compressor/test_masked_noise.py::test_uniform_noise_is_biased_as_the_closed_form_says",
        ),
    ]
    return claims(rows)


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


def _above(tables: Mapping[str, Records]) -> str:
    """Whether FedMRN's best accuracy is above all baselines', if errors tell; else where it is not."""
    return _with_exceptions(
        {
            (split, name): all_above([one])
            for split, records in tables.items()
            for name, one in zip(BASELINES, above(records, "FedMRN", BASELINES), strict=True)
        }
    )


def _faster(tables: Mapping[str, Records]) -> str:
    """Whether FedMRN's accuracy, as a mean over the rounds, is above that of all baselines."""

    def over_rounds(run: Run) -> float:
        return fmean(line[ACCURACY] for line in run.lines if line["round"] > 0)

    found: dict[tuple[str, str], bool | None] = {}
    for split, records in tables.items():
        whole = finished(records, "FedMRN", *BASELINES) is not None
        own, *values = (average(records.where(label=name), over_rounds) for name in ("FedMRN", *BASELINES))
        found |= {
            (split, name): less(value, own) if whole else None for name, value in zip(BASELINES, values, strict=True)
        }
    return _with_exceptions(found)


def _similar(tables: Mapping[str, Records]) -> str:
    """Whether FedMRN is not below FedAvg by more than two standard errors."""
    return _with_exceptions(
        {(split, "FedAvg"): none_below(above(records, "FedMRN", ["FedAvg"])) for split, records in tables.items()}
    )


def _far(tables: Mapping[str, Records]) -> str:
    """Whether FedAvg is above both by more than two standard errors."""
    return _with_exceptions(
        {
            (split, name): all_above(above(records, "FedAvg", [name]))
            for split, records in tables.items()
            for name in COMPRESSED_MODELS
        }
    )


def _with_exceptions(found: Mapping[tuple[str, str], bool | None]) -> str:
    """The verdict on all partitions and methods; of which it is not true."""
    wrong = [f"{name} ({SPLITS[split]})" for (split, name), holds in found.items() if holds is False]
    text = verdict(every(list(found.values())))
    return f"{text}: not of {', '.join(wrong)}" if text and wrong else text
