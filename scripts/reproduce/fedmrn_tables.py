"""FedMRN's table 1 beyond Fashion-MNIST, with the paper's networks, and the same methods with LeNet-5."""

from collections.abc import Sequence

from fedcomp.reporting.tables import published
from scripts.reproduce.experiment import Cut, Experiment
from scripts.reproduce.fedmrn_tasks import DATA, METHOD, SPLIT
from scripts.reproduce.markdown import ROUNDS_AND_SEEDS, Cell, last, made_with, table
from scripts.reproduce.printed import ACCURACY, BEST, UPLINK, beside, distance
from scripts.reproduce.records import Folder, Records

METRICS = (ACCURACY, "bpp/uplink", "paper/bpp/uplink", "bits/uplink", "bits/total")
METHODS = "fedavg,fedmrn,signsgd,eden,fedmrns,drive,terngrad,topk,fedsparsify,fedpm"
SEEDS = ("0", "1,2")
SPLITS = {"non_iid_2": "Non-IID-2", "iid": "IID", "non_iid_1": "Non-IID-1"}
"""Our name of a split -> the paper's; the one that tells methods apart best comes first."""
CHOICES = {"Non-IID-2": "labels", "IID": "iid", "Non-IID-1": "dirichlet"}
"""The paper's name of a split -> the partition that tells its runs from the others."""
FULL = {
    "cifar10": ("CIFAR-10", "", 50_000),
    "svhn": ("SVHN", "", 73_257),
    "cifar100": ("CIFAR-100", "_cifar100", 50_000),
}
"""Our name of the data -> the paper's, what the names of its table and of its splits end with, gradients of a round."""


CUT = "participation.num_participants=2 client.epochs=null client.steps="
"""Of a round on a CPU, in a trial."""


def _commands(name: str, data: str, ending: str, more: str) -> list[str]:
    chosen = f"experiment=fedmrn/table1{ending}" + ("" if ending else f" {DATA}={data}")
    splits = {split: split if split == "iid" else f"{split}{ending}" for split in SPLITS}
    return [
        f"{chosen} {SPLIT}={split} {METHOD}={METHODS}{more} seed={seed} name={name}"
        for seed in SEEDS
        for split in splits.values()
    ]


def _experiment(name: str, data: str, ending: str = "", more: str = "", cut: Cut | None = None) -> Experiment:
    return Experiment(name, _commands(name, data, ending, more), None, METRICS, ["partition"], cut=cut)


PAPERS = {
    data: _experiment(f"fedmrn_table1_{data}", data, ending, cut=Cut(CUT, gradients))
    for data, (_, ending, gradients) in FULL.items()
}
"""By the data: table 1 with the paper's networks."""
LENET = {
    data: _experiment(f"fedmrn_lenet5_{data}", data, more=" model=lenet5 rounds=100")
    for data in ("fashion_mnist", "cifar10")
}
"""By the data: the same methods, partitions and local training with LeNet-5."""
PROGRESSIVE = Experiment(
    "fedmrn_lenet5_progressive",
    [
        f"experiment=fedmrn/table1 {DATA}=fashion_mnist {SPLIT}={split} {METHOD}=fedsparsify model=lenet5 rounds=100 "
        "algorithm.schedule=progressive seed=0 name=fedmrn_lenet5_progressive"
        for split in ("non_iid_2", "iid")
    ],
    None,
    METRICS,
    ["partition"],
)
"""FedSparsify as its own paper has it: of LeNet-5 the comparison's constant schedule leaves nothing that can learn."""


def _larger(name: str, data: str) -> Experiment:
    chosen = f"experiment=fedmrn/table1 {DATA}={data} {SPLIT}=non_iid_2 {METHOD}=fedmrn model=lenet5 rounds=100"
    commands = [f"{chosen} algorithm.alpha=0.02,0.04,0.08,0.16,0.32 seed={seed} name={name}" for seed in SEEDS]
    return Experiment(name, commands, None, METRICS, ["algorithm.alpha"])


ALPHA = {
    "fashion_mnist": _larger("fedmrn_lenet5_alpha", "fashion_mnist"),
    "cifar10": _larger("fedmrn_lenet5_alpha_cifar10", "cifar10"),
}
"""By the data: FedMRN with larger noise than the paper's networks have."""
TITLES = {"fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
CHANCE = 0.1
"""The accuracy of one class for all, of ten."""
EXPERIMENTS = (*LENET.values(), *ALPHA.values(), PROGRESSIVE, *PAPERS.values())


def lenet(folder: Folder) -> str:
    """The part of docs/results/fedmrn.md on table 1's methods with LeNet-5."""
    parts = [
        "## Table 1's methods with LeNet-5",
        "Ten methods, three partitions and the local training of table 1, 100 rounds, with a network that a CPU "
        "trains. The paper has no such rows.",
    ]
    tables = {data: _tables(folder, one, TITLES[data], "") for data, one in LENET.items()}
    by_data = [
        (f"{TITLES[data]}, {split}", folder[experiment].where(partition=partition))
        for data, experiment in LENET.items()
        for split, partition in CHOICES.items()
    ]
    noise = "Rates and noise are those of the paper's networks: the noise is varied [below](#noise-figure-5)."
    parts += [distances(by_data), noise, _larger_noise(folder)]
    return "\n\n".join([*parts, tables["fashion_mnist"], _progressive(folder), tables["cifar10"]])


def distances(rows: Sequence[tuple[str, Records]]) -> str:
    """How far FedMRN is from FedAvg and from two codecs of a bit, in each of the tables; empty without its runs."""

    def less(name: str) -> Cell:
        return lambda runs: distance(runs.where(label=name))(runs.where(label="FedMRN"))

    columns = [(f"less {name}'s", less(name)) for name in ("FedAvg", "EDEN", "SignSGD")]
    shown = table("FedMRN's accuracy", rows, [*columns, ("seeds", lambda runs: str(len(runs.where(label="FedMRN"))))])
    if not shown:
        return ""
    return f"""\
FedMRN's best accuracy less that of FedAvg, which sends 32 bits, and those of EDEN and SignSGD, which send as many as
it, in points; ± is the standard error of the differences over the seeds, with that of the test set (of one seed the
latter alone).

{shown}"""


def _larger_noise(folder: Folder) -> str:
    """FedMRN's accuracy where its noise is larger than the paper's, beside FedAvg's."""
    return "\n\n".join(
        [
            "A round changes a weight by its noise at most, so that no learning rate makes up for a small one "
            "(`mask/saturated`\nis the share of entries at that bound). With larger noise than α = 0.01, as above:",
            *(_by_noise(folder, data) for data in ALPHA),
            *(f"{TITLES[data]}: {made_with(one, folder[one])}" for data, one in ALPHA.items()),
        ]
    )


def _by_noise(folder: Folder, data: str) -> str:
    larger, usual = folder[ALPHA[data]], folder[LENET[data]].where(partition=CHOICES["Non-IID-2"])
    fedavg = usual.where(label="FedAvg")
    alphas = sorted(larger.values("algorithm.alpha"), key=float)
    rows = [("0.01", usual.where(label="FedMRN"))]
    rows += [(alpha, larger.where(algorithm__alpha=alpha)) for alpha in alphas]
    columns = [BEST, ("less FedAvg's", distance(fedavg)), *ROUNDS_AND_SEEDS]
    return table(f"α, {TITLES[data]}, Non-IID-2", [*rows, ("FedAvg", fedavg)], columns)


def _progressive(folder: Folder) -> str:
    """Why FedSparsify is at chance beside the others, and what it reaches where it prunes later."""
    records = folder[PROGRESSIVE]
    columns = [("last accuracy (%)", last(ACCURACY, "{:.2f}".format, 100)), BEST, UPLINK, *ROUNDS_AND_SEEDS]
    rows = [(split, records.where(partition=partition)) for split, partition in CHOICES.items()]
    constant = folder[LENET["fashion_mnist"]].where(label="FedSparsify")
    at_chance = [run for run in constant if (run.best(ACCURACY) or 0) <= CHANCE]
    text = f"""\
FedSparsify stays at chance in {len(at_chance)} of {len(constant)} runs: one of LeNet-5's layers is empty after the
first round, as the run says. The paper's 32-fold compression needs 97 % in every round, so that weights are pruned
after the first local epoch. All matrices share one threshold, and the first weights of the largest, 48,000 of 61,470,
come from a narrower range than those of the others: none is among the 3 % that are left
(`tests/algorithm/test_fedsparsify_fetchsgd.py`), and nothing of the input passes, unless local training brings weights
of it back. The paper's network, with BatchNorm, learns (table 1, above). The
progressive schedule of FedSparsify's own paper comes to 97 % in the last round, and sends more before. With it LeNet-5
learns:

{made_with(PROGRESSIVE, records)}"""
    return "\n\n".join(filter(None, [text, table("", rows, columns)]))


def papers(folder: Folder) -> str:
    """The part of docs/results/fedmrn.md on table 1 with the paper's networks and further data."""
    titles = {data: title for data, (title, *_) in FULL.items()}
    return "\n\n".join(
        [f"## Table 1, {' and '.join(titles.values())}"]
        + [_tables(folder, one, titles[data], titles[data]) for data, one in PAPERS.items()]
    )


def _tables(folder: Folder, experiment: Experiment, title: str, printed: str) -> str:
    """The commands, and a table for each partition, beside the paper's rows of the data that it calls `printed`."""
    records, parts = folder[experiment], []
    for split, partition in CHOICES.items():
        own = records.where(partition=partition)
        rows = {
            row.method: row for row in published.load("fedmrn") if row.dataset == printed and row.partition == split
        }
        if shown := beside(rows, own, [UPLINK]):
            parts += [f"{title}, {split}:", shown]
    return "\n\n".join([f"{title}: {made_with(experiment, records)}", *parts])
