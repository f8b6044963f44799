"""FedMRN's ablation and its noises (figures 4 and 5): with the paper's network, and small, with LeNet-5."""

from itertools import pairwise

from scripts.reproduce.difference import all_above
from scripts.reproduce.experiment import Cut, Experiment
from scripts.reproduce.fedmrn_tables import CUT, SEEDS
from scripts.reproduce.fedmrn_tasks import DATA, METHOD
from scripts.reproduce.markdown import Cell, best, made_with, picture, table, verdict
from scripts.reproduce.printed import ACCURACY, UPLINK, above, beside
from scripts.reproduce.records import Folder, Records

METRICS = (ACCURACY, "train/loss", "bpp/uplink", "paper/bpp/uplink", "bits/uplink", "bits/total")
FASHION = f"{DATA}=fashion_mnist"
LENET = f"{FASHION} model=lenet5 client.epochs=3 eval_every=5"
"""3 epochs in place of 10, and 60 or 40 rounds in place of 100, with a network that trains 50 times as fast."""
FEWEST = "seed=0 rounds=1 client.epochs=1 num_clients=20 participation.num_participants=2"
PARTS = ("FedMRN", "w.o. PM", "w.o. SM", "w.o. PSM", "SignSGD")
"""Of the ablation, in the paper's order, the best first."""


def _ablation(name: str, commands: list[str]) -> Experiment:
    return Experiment(name, commands, f"{FEWEST} {METHOD}=fedmrn,without_sm", METRICS, cut=_cut(commands))


def _noise(name: str, options: str) -> Experiment:
    commands = [f"experiment=fedmrn/noise {options} seed={seed} name={name}" for seed in SEEDS]
    small = f"{FEWEST} {METHOD}=fedmrn algorithm.noise=uniform algorithm.alpha=1e-2"
    told, pictures = ["algorithm.noise", "algorithm.alpha"], {"alpha": f"{name}.png"}
    return Experiment(name, commands, small, METRICS, told, pictures, cut=_cut(commands))


def _cut(commands: list[str]) -> Cut | None:
    """Of the paper's network."""
    return None if "model=lenet5" in commands[0] else Cut(CUT, 60_000)


ABLATIONS = {
    "LeNet-5": _ablation(
        "fedmrn_ablation_lenet5",
        [f"experiment=fedmrn/ablation {LENET} rounds=60 seed={seed} name=fedmrn_ablation_lenet5" for seed in SEEDS],
    ),
    "CNN4": _ablation("fedmrn_ablation", [f"experiment=fedmrn/ablation seed={seed}" for seed in SEEDS]),
}
NOISES = {"LeNet-5": _noise("fedmrn_noise_lenet5", f"{LENET} rounds=40"), "CNN4": _noise("fedmrn_noise", FASHION)}
"""By the network."""
EXPERIMENTS = (*ABLATIONS.values(), *NOISES.values())


def claims(folder: Folder) -> list[tuple[str, str, Experiment | str]]:
    """Rows of the table of claims: of the paper's network alone."""
    own = ABLATIONS["CNN4"]
    return [
        (
            '"both SM and PM are essential", SM "slightly more", and without both it "consistently outperforms '
            'SignSGD" (sections 5.3 and 5.4: Non-IID-2)',
            _ordered(folder[own]),
            own,
        ),
        (
            '"comparable accuracy to FedAvg when the noise amplitude falls within {2.5e-3, 5e-3, 1e-2}" (section 5.5: '
            "CIFAR-10, Non-IID-2)",
            "",
            "",
        ),
    ]


def sections(folder: Folder) -> str:
    """The part of docs/results/fedmrn.md on both figures."""
    parts = ["## Ablation (figure 4)", "Fashion-MNIST, 3 labels a client. LeNet-5: 60 rounds of 3 epochs."]
    for network, experiment in ABLATIONS.items():
        own = folder[experiment]
        parts += [f"{network}: {made_with(experiment, own)}", beside({}, own, [UPLINK])]
    parts += [
        "## Noise (figure 5)",
        "The same tasks; LeNet-5: 40 rounds. α is the magnitude of the noise, and of uniform and Bernoulli noise the "
        "most that a round can change a weight: in a few rounds small magnitudes do not come far.",
    ]
    for network, experiment in NOISES.items():
        own = folder[experiment]
        shown = picture(
            f"Accuracy over the magnitude of the noise, {network}, seed 0", experiment.pictures["alpha"], own
        )
        parts += [f"{network}: {made_with(experiment, own)}", _by_magnitude(own), shown]
    return "\n\n".join(parts)


def _ordered(records: Records) -> str:
    """Whether each row of PARTS is above the next."""
    return verdict(all_above([above(records, high, [low])[0] for high, low in pairwise(PARTS)]))


def _by_magnitude(records: Records) -> str:
    noises, alphas = records.values("algorithm.noise"), sorted(records.values("algorithm.alpha"), key=float)
    rows = [
        (f"{label}, {noise}", records.where(label=label, algorithm__noise=noise))
        for label in records.values("label")
        for noise in noises
    ]

    def cell(alpha: str) -> Cell:
        return lambda runs: best(ACCURACY)(runs.where(algorithm__alpha=alpha))

    return table("best accuracy (%)", rows, [(f"α = {alpha}", cell(alpha)) for alpha in alphas])
