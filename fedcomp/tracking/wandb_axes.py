"""What W&B draws against what: a metric has one x axis there."""

from fedcomp.records.metrics_file import Metrics

AXES = {"uplink": "bits/uplink", "downlink": "bits/downlink", "round": "round", "time": "time/total"}
"""x axes beside bits/total: `vs_<name>/<metric>` is `test/<metric>` against it."""


def against_other_axes(record: Metrics) -> dict[str, float | int]:
    """`vs_<axis>/<metric>` of every test metric of a line."""
    tested = {name.removeprefix("test/"): value for name, value in record.items() if name.startswith("test/")}
    return {
        f"vs_{axis}/{name}": value
        for axis, key in AXES.items()
        if axis != "time" or key in record
        for name, value in tested.items()
    }


def x_axis(name: str) -> str | None:
    """What a metric is drawn against: bits, or the round for bits themselves and what else only counts up."""
    if name == "round":
        return None
    first = name.split("/")[0]
    if first in ("bits", "bpp", "paper", "seconds", "time"):
        return "round"
    return AXES.get(first.removeprefix("vs_"), "bits/total")
