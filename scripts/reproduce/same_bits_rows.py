"""The methods of `same_bits`: the overrides that make each, and what is searched of it."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from fedcomp.core.choices import FAST_LOADER

CONF = Path(__file__).resolve().parents[2] / "conf"
NEIGHBOURS = CONF / "experiment" / "neighbours"
GROUP = "experiment/neighbours"
METHOD = f"{GROUP}/method@_global_"
LADDER = tuple(float(f"{digit}e{power}") for power in range(-5, 3) for digit in (1, 3))
"""Rates that are tried: a factor of about 3 apart."""
SGD_LR = 0.3
"""A good rate of local SGD on the tasks for which `middle` is set."""


@dataclass(frozen=True)
class Row:
    """A method.

    Attributes:
        label: its name in tables. words: the overrides that make it.
        rate, steps: its options for the learning rate, and for local steps (`algorithm.p`: one over their mean number).
        middle: of the first three rates. by_class: whether its messages are about classes, which a text has not.
        adam: whether clients train with Adam, whose rates go from task to task.
    """

    label: str
    words: Sequence[str]
    rate: str = "client.lr"
    steps: str = "client.steps"
    middle: float = 0.1
    by_class: bool = False
    adam: bool = False

    def first_rates(self, lr: float = SGD_LR) -> tuple[float, ...]:
        """Three, a factor of about 3 apart. `lr`: a good rate of SGD on the task: local SGD's move with it."""
        moves = self.rate == "client.lr" and not self.adam
        at = LADDER.index(self.middle) + (LADDER.index(lr) - LADDER.index(SGD_LR) if moves else 0)
        return LADDER[at - 1 : at + 2]

    def value(self, steps: int) -> str:
        """Of the option for local steps."""
        return f"{1 / steps:.3g}" if self.steps == "algorithm.p" else str(steps)


def _row(
    method: str, rate: str = "client.lr", steps: str = "client.steps", middle: float | None = None, adam: bool = False
) -> Row:
    """Of a file in conf/experiment/neighbours/method, whose rate is the middle one unless another is given."""
    file = with_base("method", method)
    group, name = rate.split(".")
    return Row(
        str(file["label"]),
        [f"{METHOD}={method}", *alike(_algorithm(method))],
        rate,
        steps,
        float(file[group][name]) if middle is None else middle,
        adam=adam,
    )


def alike(algorithm: Mapping[str, Any]) -> list[str]:
    """The override that makes clients count alike, where by default they count by their samples."""
    return ["algorithm.weights=uniform"] if algorithm.get("weights") == "samples" else []


def with_base(folder: str, name: str) -> dict[str, Any]:
    """A file of the methods, or of the tasks, with the file of the same folder that it begins with."""
    own = _yaml(NEIGHBOURS / folder / f"{name}.yaml")
    base = own["defaults"][0]
    if not isinstance(base, str):
        return own
    found = with_base(folder, base)
    merged = {key: {**found[key], **own[key]} for key in found.keys() & own.keys() if isinstance(own[key], dict)}
    return found | own | merged


def _algorithm(name: str) -> dict[str, Any]:
    """The file of a method's algorithm."""
    own = _yaml(NEIGHBOURS / "method" / f"{name}.yaml")
    choices = [one["override /algorithm"] for one in own["defaults"] if "override /algorithm" in one]
    if not choices:
        return _algorithm(own["defaults"][0])
    (choice,) = choices
    return _yaml(CONF / "algorithm" / f"{choice}.yaml")


@functools.cache
def _yaml(path: Path) -> dict[str, Any]:
    """What a file says, not to be changed."""
    return dict(yaml.load(path.read_text(encoding="utf-8"), Loader=FAST_LOADER))


ROWS = (
    *(_row(name) for name in ("fedavg", "fedavg_16", "topk")),
    _row("sparseloco", adam=True),
    *(_row(name) for name in ("scallion", "eden", "doublesqueeze", "powersgd", "ef21")),
    _row("gr", adam=True),
    _row("fedscalar"),
    *(_row(name, adam=True) for name in ("deltamask", "diloco")),
    *(_row(name, "algorithm.alpha", middle=0.1) for name in ("fedmrn", "fedmrn_16")),
    *(_row(name) for name in ("fedbat", "fedbat_16", "cafe", "turboquant", "fetchsgd", "fedmud", "scaffold")),
    *(_row(name) for name in ("randk_spatial", "randk_spatial_16", "rand_proj_spatial", "rand_proj_spatial_16")),
    *(_row(name, steps="client.inner_steps") for name in ("svrg", "svrg_16")),
    _row("tamuna", steps="algorithm.p"),
    *(_row(name, "algorithm.lr", "algorithm.steps") for name in ("decomfl", "fedkseed")),
    replace(_row("feddistill"), by_class=True),
)
