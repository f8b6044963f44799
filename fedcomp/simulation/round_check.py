"""What an algorithm must return of a round, one's own too, asked in the first round with clients; and the models of it.

Shape legend: M clients of the cohort, K models, D parameters, C running statistics.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Metrics
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import flatten


def forms(state: Any) -> dict[str, str]:
    """The type and shape of each tensor of a state, by its path."""
    return {name: _form(tensor) for name, tensor in flatten(state).items()}


def checked_round(algorithm: Algorithm, returned: Any, before: dict[str, str], cohort: Cohort) -> tuple[Any, Metrics]:
    """What a round returned, which began with a state of the `forms` `before`: (the state after it, its metrics).

    Raises ValueError: it is no such pair; the new state has not the old one's tensors, so that no checkpoint could be
    resumed; a metric is no scalar, nor one value a client or of the server; a method with a local solver gives no
    `train/loss`.
    """
    where = f"algorithm={algorithm.config_name}, round"
    if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping)):
        raise ValueError(f"{where} returned {_described(returned)}, but must return (state, a dict of metrics)")
    new, metrics = returned
    after = forms(new)
    for name in sorted(before.keys() | after.keys()):
        was, now = (one.get(name, "not there") for one in (before, after))
        if was != now:
            raise ValueError(
                f"{where}: state.{name} is {was} before it and {now} after it, but a state keeps its "
                "tensors, their shapes and types, so that a run can be resumed"
            )
    for name, value in metrics.items():
        if not isinstance(value, Tensor) or tuple(value.shape) not in ((), (1,), (cohort.size,)):
            raise ValueError(
                f"{where}: metric {name} is {_described(value)}, but must be a tensor: a scalar, or [{cohort.size}], a "
                "value for each client of the cohort"
            )
    if algorithm.solver is not None and ("train/loss" not in metrics or not metrics["train/loss"].dim()):
        raise ValueError(
            f"{where} must give the metric train/loss [M], a value for each client, as local training returns it: by "
            "it a run that diverges is found"
        )
    return new, metrics


def check_models(algorithm: Algorithm, models: Any) -> None:
    """Raise ValueError unless these are models to evaluate, of which one is called `test`."""
    where = f"algorithm={algorithm.config_name}, evaluation_models"
    if not isinstance(models, Mapping) or "test" not in models:
        raise ValueError(f"{where} must return a dict of Models by name, of which `test` is the main one")
    for name, one in models.items():
        if one.theta.dim() != 2 or one.stats.dim() != 2 or len(one.theta) != len(one.stats):
            raise ValueError(
                f"{where}: {name} has parameters {tuple(one.theta.shape)} and statistics {tuple(one.stats.shape)}, but "
                "K models are [K, D] and [K, C], and one of them theta[None] and stats[None]"
            )


def _form(tensor: Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return _form(value)
    if isinstance(value, tuple):
        return f"a tuple of {', '.join(type(one).__name__ for one in value)}"
    return f"a {type(value).__name__}"
