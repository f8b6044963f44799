"""What a run says at its end if it has learnt next to nothing, by its first and last evaluation."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedcomp.dataset.contract import IGNORED, Dataset
from fedcomp.display import units
from fedcomp.records.metrics_file import Line

NEAR_CHANCE = 0.1
"""Share of the way from chance to 100 % below which an accuracy is near chance."""
LEAST_FALL = 0.1
"""Share of its first value by which a loss must fall."""


def chance(dataset: Dataset) -> float | None:
    """The share of the test samples (pixels, characters) of the largest class; None: there are no classes."""
    targets: Tensor = dataset.test.y
    if dataset.task == "regression" or not targets.numel():
        return None
    counts = torch.bincount(targets[targets >= 0].to(torch.int64), minlength=1)
    if dataset.task == "segmentation":
        counts = counts[:IGNORED]
    return float(counts.max() / counts.sum().clamp(min=1))


def hardly_learnt(lines: Sequence[Line], chance: float | None, when_slow: str) -> str | None:
    """A line for the user; None: the run has learnt, or began with a trained model, or was evaluated once.

    Args:
        lines: of the record. chance: an accuracy without learning, if there is one. when_slow: what the method says.
    """
    if len(lines) < 2:
        return None
    first, last = lines[0], lines[-1]
    why = f": {when_slow}" if when_slow else ": more rounds, or another learning rate"
    if last.get("deadline/late") == 1:
        why = ": every client was late in every round, so that nothing was learnt: a longer network.deadline"
    if chance is not None and "test/accuracy" in first and "test/accuracy" in last:
        near = chance + NEAR_CHANCE * (1 - chance)
        if last["test/accuracy"] < near:
            return f"test accuracy {_percent(last)} is near chance ({units.percent(chance)} %){why}"
        if first["test/accuracy"] >= near:  # a trained model, whose loss may have nothing left to fall
            return None
    if "test/loss" in first and "test/loss" in last and last["test/loss"] > (1 - LEAST_FALL) * first["test/loss"]:
        fall = units.significant(first["test/loss"]), units.significant(last["test/loss"])
        where = "above" if last["test/loss"] > first["test/loss"] else "hardly below"
        return f"test loss {fall[1]} is {where} its first value, {fall[0]}{why}"
    return None


def nothing_sent(last: Line) -> str | None:
    """A line for the user where clients trained, and nothing went up, or down; None: there are messages both ways.

    Args:
        last: of the record.
    """
    silent = [way for way, bits in (("up", "bits/uplink"), ("down", "bits/downlink")) if last.get(bits) == 0]
    if last.get("deadline/late") == 1 and "up" not in silent:
        return None  # a server that heard nobody has nothing to answer
    if not silent or not last.get("gradients"):
        return None
    return (
        f"warning: clients have trained, but no message went {' or '.join(silent)}, so that 0 bits are counted: what "
        "reaches the other end without a message (ctx.send_up, ctx.send_model, ctx.link) is found by fedcomp-check"
    )


def _percent(line: Line) -> str:
    return f"{units.percent(line['test/accuracy'])} %"
