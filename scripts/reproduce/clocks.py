"""Seconds of recorded runs on named networks, from the traffic that they recorded."""

import functools
from collections.abc import Sequence

from fedcomp.records.metrics_file import Line
from fedcomp.records.reader import RecordedRun
from fedcomp.replay.networks import NamedNetwork, networks
from fedcomp.replay.replayed import replayed

NETWORKS = {"symmetric_10": "10 : 10 Mbit/s", "asymmetric_10": "100 : 10 Mbit/s", "cell_20": "cell of 20 Mbit/s up"}
"""{choice of `network`: its title}."""
ClockName = tuple[str, float]
"""A choice of `network`, and the seconds of one sample's gradient."""


def clock_metric(network: str, seconds: float) -> str:
    """What the records call the time on a network, with so many seconds a gradient."""
    return f"time/{network}/{1000 * seconds:g}ms"


def with_times(recorded: RecordedRun, clocks: Sequence[ClockName]) -> Sequence[Line]:
    """The evaluations of a run that recorded its traffic; of a finished one with the time of each by every clock."""
    lines = [dict(line) for line in recorded.lines]
    if recorded.state != "finished":
        return lines
    for clock in clocks:
        again, _ = replayed(recorded, _network(*clock))
        times = {line["round"]: line["time/total"] for line in again.lines}
        for line in lines:
            line[clock_metric(*clock)] = times[line["round"]]
    return lines


@functools.cache
def _network(name: str, seconds: float) -> NamedNetwork:
    (found,) = networks([f"network={name}", f"network.seconds_per_gradient={seconds:g}"])
    return found
