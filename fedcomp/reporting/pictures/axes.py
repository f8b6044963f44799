"""The axes of pictures: what a run spends and what it reaches, with their units."""

from collections.abc import Sequence
from dataclasses import replace

from fedcomp.display.metric import Metric
from fedcomp.reporting.pictures.picture import Axis, Series, wide

X_AXES: tuple[tuple[str, Axis], ...] = (
    ("bits/uplink", Axis("uplink bits", "bits", log=True)),
    ("bits/downlink", Axis("downlink bits", "bits", log=True)),
    ("bits/total", Axis("total bits (uplink + downlink)", "bits", log=True)),
    ("round", Axis("round", "rounds")),
    ("time/total", Axis("seconds on the network", log=True)),
)
RATE_TITLES = {
    "bpp/total": "bits per parameter, both ways",
    "bpp/uplink": "bits per parameter, uplink",
    "bpp/downlink": "bits per parameter, downlink",
}
KNOWN = {**dict(X_AXES), "gradients": Axis("gradients of samples, all clients", log=True)}


def y_axis(metric: Metric, lines: Sequence[Series], log: bool | None = None) -> Axis:
    """The metric's axis: logarithmic as `log` says, or for None where the values are far apart."""
    if log is None:
        log = metric.scale == 1 and wide(value for one in lines for value in one.y)
    return Axis(metric.title, "percent" if metric.scale == 100 else "number", log)


def x_axis(key: str, lines: Sequence[Series], log: bool | None = None) -> Axis:
    """The axis of a metric or a config key: logarithmic as `log` says, or for None as is usual for the metric, else
    where the values are far apart.
    """
    if key in KNOWN:
        return KNOWN[key] if log is None else replace(KNOWN[key], log=log)
    title = RATE_TITLES.get(key, key.split(".")[-1].replace("/", " ").replace("_", " "))
    if log is None:
        log = wide(value for line in lines for value in line.x)
    return Axis(title, "bits" if key.startswith("bits/") else "number", log)
