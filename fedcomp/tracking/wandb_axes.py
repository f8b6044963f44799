"""What W&B draws against what, and the names of parts there. A metric has one x axis in W&B."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def choice(node: Mapping[str, Any]) -> str:
    """The name of a part as its YAML has it: of fedcomp.model.networks.cnn.lenet5 `lenet5`, of ....topk.TopK `topk`."""
    *modules, name = str(node["_target_"]).split(".")
    return name if not modules or (name.islower() and name != "load") else modules[-1]
