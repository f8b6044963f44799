"""The quantities of a run that tables have: quality, bits, what it took to reach a target, time."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fedcomp.display import units
from fedcomp.display.metric import Metric, metric
from fedcomp.records.reader import RecordedRun
from fedcomp.reporting.group import RunGroup
from fedcomp.reporting.mean import Mean, mean_over_seeds
from fedcomp.reporting.metrics import SPREAD, qualities, recorded
from fedcomp.reporting.tables.target import Target

LATE = 10
"""How many last evaluations the late mean is over; it depends less on luck than the best one."""


@dataclass(frozen=True)
class Column:
    """One quantity of a run.

    Attributes:
        title: with its unit, for people.
        name: for CSV.
        value: the quantity of one run with at least one line; None if the run has none.
        show: the number for people.
        show_mean: mean and deviation over seeds for people; None: they see the mean alone (CSV has both).
        better: `high` or `low`, whose best value LaTeX and HTML set bold; None: neither is better.
        reached: whether only runs that reached the target have it.
        recorded: metrics without which a run cannot have it.
        rank: of its importance, 0 the most important; where width is scarce, columns of a high rank are left out.
    """

    title: str
    name: str
    value: Callable[[RecordedRun], float | None]
    show: Callable[[float], str]
    show_mean: Callable[[float, float], str] | None = None
    better: str | None = None
    reached: bool = False
    recorded: tuple[str, ...] = ()
    rank: int = 10

    def num_seeds(self, group: RunGroup) -> int:
        """How many of a group's runs may have it."""
        return sum(all(any(key in line for line in run.lines) for key in self.recorded) for run in group.runs)

    def of(self, group: RunGroup) -> "Value":
        """The value of a group."""
        return Value(_mean(self.value, group), _paper(self, group))


@dataclass(frozen=True)
class Value:
    """A quantity of a group: the true mean and, where the method's paper counts otherwise, the mean of its count."""

    mean: Mean | None
    paper: Mean | None


def quality_columns(runs: Iterable[RecordedRun]) -> list[Column]:
    """Last, best and late mean of the first quality; last of others, of other models' accuracies, and of spreads."""
    every = list(runs)
    judged = qualities(every)
    also = [metric(key) for key in recorded(every) if key.endswith("/accuracy") or key.startswith(SPREAD)]
    out = []
    for one in [*judged, *(one for one in also if one not in judged)]:
        better = "high" if one.higher_is_better else "low"
        out.append(Column(one.title, one.name, last(one.key), one.show, one.show_mean, better))
        if judged and one is judged[0] and any(sum(one.key in line for line in run.lines) > 1 for run in every):
            unit = " (%)" if one.scale == 100 else f" {one.title}"
            out.append(Column(f"best{unit}", f"best_{one.name}", best(one), one.show, one.show_mean, better, rank=8))
            title, name = f"mean of last {LATE}{unit}", f"late_{one.name}"
            out.append(Column(title, name, late(one.key), one.show, one.show_mean, better, rank=12))
    return out


def last(key: str) -> Callable[[RecordedRun], float | None]:
    """The value of a run's last evaluation."""
    return lambda run: run.lines[-1].get(key)


def best(metric: Metric) -> Callable[[RecordedRun], float | None]:
    """A run's best value over its evaluations."""
    return lambda run: metric.best(run.lines)


def late(key: str) -> Callable[[RecordedRun], float | None]:
    """The mean over a run's last evaluations, LATE of them; None if it has fewer after round 0."""

    def value(run: RecordedRun) -> float | None:
        values = [line[key] for line in run.lines if key in line and line["round"]]
        return sum(values[-LATE:]) / LATE if len(values) >= LATE else None

    return value


def target_columns(target: Target, runs: Sequence[RecordedRun]) -> list[Column]:
    """Rounds, bits and, where some run has a network, seconds on it until a run first reaches the target."""
    timed = any(NETWORK_TIME in line for run in runs for line in run.lines[-1:])

    def until(key: str) -> Callable[[RecordedRun], float | None]:
        return lambda run: (target.line(run) or {}).get(key)

    def both(show: Callable[[float], str]) -> Callable[[float, float], str]:
        return lambda mean, deviation: f"{show(mean)} ± {show(deviation)}"

    def whole(value: float) -> str:
        return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"

    def column(what: str, key: str, show: Callable[[float], str], deviates: bool, rank: int) -> Column:
        title, name, needs = f"{what} to {target}", f"{what}_to_target", (key, target.metric.key)
        return Column(title, name, until(key), show, both(show) if deviates else None, "low", True, needs, rank)

    rounds = column("rounds", "round", whole, True, rank=1)
    bits = column("bits", "bits/total", units.bits, False, rank=2)
    return [rounds, bits, *([column("seconds", NETWORK_TIME, units.duration, True, rank=0)] if timed else [])]


DOWNLINK = Column("downlink", "bpp_downlink", last("bpp/downlink"), units.significant, better="low", rank=6)
PER_RECEIVER = Column(
    "downlink per receiver",
    "bpp_downlink_per_receiver",
    last("bpp/downlink_per_receiver"),
    units.significant,
    better="low",
    rank=7,
)
BITS = (
    Column("uplink", "bpp_uplink", last("bpp/uplink"), units.significant, better="low", rank=3),
    DOWNLINK,
    PER_RECEIVER,
    Column("total", "bpp_total", last("bpp/total"), units.significant, better="low", rank=13),
    Column("total, of the whole model", "bpp_whole_model", last("bpp/whole_model"), units.significant, better="low"),
    Column("broadcast", "bpp_broadcast", last("bpp/broadcast"), units.significant, better="low", rank=11),
    Column("total bits", "bits_total", last("bits/total"), units.bits, better="low", rank=4),
)
"""Bits per parameter, client and round by direction, and all bits sent."""
NETWORK_TIME = "time/total"
TIMES = (
    Column("network time", "time_total", last(NETWORK_TIME), units.duration, better="low", rank=5),
    Column("time", "seconds", last("seconds"), units.duration, rank=14),
)
"""Seconds on the run's network, and of the simulation."""


def _mean(value: Callable[[RecordedRun], float | None], one: RunGroup) -> Mean | None:
    values = [number for run in one.runs if (number := value(run)) is not None]
    return mean_over_seeds(values) if values else None


def _paper(column: Column, one: RunGroup) -> Mean | None:
    """The paper's count of a column of bits, where it is another than the true one.

    The ledger has none for the total where the paper leaves a direction out: it compares with no other total.
    """
    if column not in BITS:
        return None
    key = column.name.replace("_", "/", 1)
    paper, true = _mean(last(f"paper/{key}"), one), _mean(last(key), one)
    return None if paper == true else paper
