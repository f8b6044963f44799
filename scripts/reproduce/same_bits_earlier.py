"""The first runs of `same_bits` on MNIST, with five local steps and 32-bit floats, kept until they are run again."""

from dataclasses import replace
from statistics import fmean

from scripts.reproduce.experiment import Experiment
from scripts.reproduce.markdown import ROTATION_BEFORE, made_with
from scripts.reproduce.records import Folder, Records
from scripts.reproduce.same_bits_picture import picture
from scripts.reproduce.same_bits_search import ACCURACY, GROUP, RATES, Task, default_weights, last_accuracy
from scripts.reproduce.same_bits_tables import leaders, results

METHOD = f"{GROUP}/method@_global_"
GRIDS = (
    (
        "fedavg,topk,doublesqueeze,fedmrn,randk_spatial,gr,fedbat,deltamask,powersgd,ef21,cafe,tamuna,scaffold,scallion,"
        "eden,turboquant,rand_proj_spatial,svrg",
        "client.lr=0.03,0.1,0.3,1,3",
    ),
    ("fedmud,fetchsgd", "client.lr=0.01,0.03,0.1,0.3,1"),
    ("fedscalar", "client.lr=0.003,0.01,0.03,0.1,0.3"),
    ("diloco", "client.lr=0.0003,0.001,0.003,0.01,0.03"),
    ("sparseloco", "client.lr=0.001,0.003,0.01,0.03,0.1"),
    ("decomfl", "algorithm.lr=0.001,0.003,0.01,0.03,0.1"),
    ("fedkseed", "algorithm.lr=0.0003,0.001,0.003,0.01,0.03"),
)
"""Methods and the five rates that were tried for each in the earlier runs."""
EARLIER_RATES = RATES[:2]
SHORT = "seed=10,11 rounds=40 max_bits=3.2e8 eval_every=40 name=neighbours_tuning"
TUNING = Experiment(
    "neighbours_tuning",
    [f"experiment=neighbours/bits_mnist {METHOD}={methods} {rates} {SHORT}" for methods, rates in GRIDS],
    None,
    [ACCURACY, "bits/uplink", "bits/total"],
    list(EARLIER_RATES),
)
BITS = Experiment(
    "neighbours_bits_mnist",
    ["experiment=neighbours/bits_mnist"],
    "rounds=20 max_bits=1e8 seed=0",
    [ACCURACY, "test/loss", "bits/uplink", "bits/total"],
    list(EARLIER_RATES),
)
PICTURE = "same_bits.png"


def section(folder: Folder, task: Task) -> str:
    """Their part of the page."""
    tuning, bits = folder[TUNING], folder[BITS]
    failed, whole = bits.where(state="failed"), completed(bits)
    by_samples, alike = ([label for label in found if bits.where(label=label)] for found in default_weights())
    return f"""\
## MNIST, earlier runs

{made_with(BITS, bits)}

LeNet-5 on MNIST, 10 clients with Dirichlet(0.3) classes, as above but for what makes these runs unequal: every method
has 5 local steps (FedAvg-SVRG: 5 corrected steps after a full gradient; DeComFL: one step along 20 directions) and one
of five rates, some chosen near chance; FedMRN has its default noise, whose size no rate makes up for; dense messages
have 32 bits; clients count by their samples
({"; ".join(by_samples)}) or alike ({"; ".join(alike)}), as
each method has it by default.

{ROTATION_BEFORE.format(exception="")}

{results(whole, task)}

{picture(whole, PICTURE)}

{leaders(whole, task, "in both directions", "bits/total", 1.0)}

{leaders(whole, task, "up, which is what counts where the downlink is free", "bits/uplink", 0.1)}

### Their learning rates

{made_with(TUNING, tuning)}

The best of five rates, by the mean test accuracy on two other seeds (and other partitions) after a quarter of the bits
and rounds; a rate with which a run diverged, then or in the experiment itself, is not taken.{_diverged(failed, tuning)}
Near chance (*) no choice means anything:

{_rates(tuning, task)}"""


def _rates(tuning: Records, task: Task) -> str:
    rows = []
    for label in tuning.values("label"):
        runs = tuning.where(label=label)
        option = tuned_option(runs)
        by_rate = {float(rate): tuning_score(runs.where(**{option: rate})) for rate in runs.values(option)}
        cells = ", ".join(f"{rate:g}: {shown(by_rate[rate])}" for rate in sorted(by_rate))
        near = all(task.near_chance(score) for score in by_rate.values() if score is not None)
        rows.append(f"| {label}{' (*)' * near} | {cells} |")
    return "\n".join(["| method | accuracy by rate |", "| --- | --- |", *rows]) if rows else ""


def tuned_option(runs: Records) -> str:
    """Which of `EARLIER_RATES` differs among a method's runs."""
    return next((name for name in EARLIER_RATES if len(runs.values(name)) > 1), EARLIER_RATES[0])


def tuning_score(runs: Records) -> float | None:
    """The mean final accuracy of one rate's runs; None where one of them diverged."""
    return None if runs.where(state="failed") else fmean(map(last_accuracy, runs))


def shown(score: float | None) -> str:
    """In percent."""
    return "diverged" if score is None else f"{100 * score:.1f}"


def completed(bits: Records) -> Records:
    """The runs that have not failed."""
    return replace(bits, runs=[run for run in bits if run.about["state"] != "failed"])


def _diverged(failed: Records, tuning: Records) -> str:
    """A sentence on each method whose runs diverged in the experiment itself, with the last round evaluated."""
    sentences = []
    for label in failed.values("label"):
        runs = failed.where(label=label)
        rates = " and ".join(runs.values(tuned_option(tuning.where(label=label))))
        first = min(run.rounds for run in runs)
        sentences.append(f" {label} diverged with {rates} in {len(runs)} runs, the first after round {first}.")
    return "".join(sentences)
