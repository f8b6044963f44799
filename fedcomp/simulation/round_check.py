"""What an algorithm must return of a round, one's own too, asked in some rounds (`is_checked`); and its models.

Shape legend: M clients of the cohort, N in all, K models, D parameters, C running statistics.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import flatten

RESERVED = ("round", "seconds", "gradients")
"""Keys of a line of the record that say something else than a round's metrics."""
RESERVED_FOLDERS = ("test", "bits", "bpp", "paper", "time", "deadline", "variance", "cep", "per_client")
"""What such keys begin with, before a slash."""


class ForgottenMemory(ValueError):
    """A round's new state has the memory that a compressor had before it."""


@dataclass(frozen=True)
class StateBefore:
    """A state as a round is given it.

    Attributes:
        tensors: by their paths. forms: the type and shape of each. written: how often each was written to.
    """

    tensors: dict[str, Tensor]
    forms: dict[str, str]
    written: dict[str, int]

    @classmethod
    def of(cls, state: Any) -> "StateBefore":
        """Noted before the round."""
        tensors = flatten(state)
        forms = {name: _form(tensor) for name, tensor in tensors.items()}
        return cls(tensors, forms, {name: tensor._version for name, tensor in tensors.items()})

    def overwritten(self, num_clients: int, donated: bool) -> str | None:
        """The path of a tensor that was written to since; where the state is `donated`, rows [N, ...] may be."""
        for name, tensor in self.tensors.items():
            rows = donated and tensor.dim() > 0 and tensor.shape[0] == num_clients
            if tensor._version != self.written[name] and not rows:
                return name
        return None


def checked_round(
    algorithm: Algorithm, returned: Any, before: StateBefore, cohort: Cohort, ctx: Context
) -> tuple[Any, Metrics]:
    """What a round with `ctx` returned, which began with the state `before`: (the state after it, its metrics).

    Raises ValueError: it is no such pair; the new state has not the old one's tensors, so that no checkpoint could be
    resumed, or keeps the graph of gradients, or the old memory where a compressor returned a new one; the old state was
    written to; a metric is no float, nor one a client or of the server, or has the name of something else in the
    record; a method with a local solver gives no `train/loss`.
    """
    where = f"algorithm={algorithm.config_name}, round"
    if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping)):
        raise ValueError(f"{where} returned {_described(returned)}, but must return (state, a dict of metrics)")
    new, metrics = returned
    tensors = flatten(new)
    after = {name: _form(tensor) for name, tensor in tensors.items()}
    for name in sorted(before.forms.keys() | after.keys()):
        was, now = (one.get(name, "not there") for one in (before.forms, after))
        if was != now:
            raise ValueError(
                f"{where}: state.{name} is {was} before it and {now} after it, but a state keeps its "
                "tensors, their shapes and types, so that a run can be resumed"
            )
    overwritten = before.overwritten(ctx.clients.num_clients, cohort.state_donated)
    if overwritten is not None:
        raise ValueError(
            f"{where} writes into state.{overwritten}, but the state that it is given stays as it is, for a round may "
            "be made again: make a new tensor, as in state.theta + change instead of state.theta.add_(change)"
        )
    for name, tensor in tensors.items():
        if tensor.requires_grad:
            raise ValueError(
                f"{where}: state.{name} requires a gradient, so that it would keep the operations of all rounds in "
                "memory: take .detach() of it"
            )
    _check_memories(where, algorithm, ctx, before, tensors)
    for name, value in metrics.items():
        if name in RESERVED or name.partition("/")[0] in RESERVED_FOLDERS:
            raise ValueError(
                f"{where}: a metric cannot be called {name}, which is something else in metrics.jsonl: give it another "
                f"name, such as own/{name.replace('/', '_')}"
            )
        shapes = (), (1,), (cohort.size,)
        if not isinstance(value, Tensor) or tuple(value.shape) not in shapes or not value.is_floating_point():
            raise ValueError(
                f"{where}: metric {name} is {_described(value)}, but must be a tensor of floats: a scalar, or "
                f"[{cohort.size}], a value for each client of the cohort"
            )
    if algorithm.solver is not None and ("train/loss" not in metrics or not metrics["train/loss"].dim()):
        raise ValueError(
            f"{where} must give the metric train/loss [M], a value for each client, as local training returns it: by "
            "it a run that diverges is found"
        )
    return new, metrics


def _check_memories(
    where: str, algorithm: Algorithm, ctx: Context, before: StateBefore, after: Mapping[str, Tensor]
) -> None:
    """Raise ForgottenMemory if a compressor's new memory was dropped: the state `after` the round has the old one."""
    if not algorithm.remembers or ctx.sent.memories is None:
        return
    kept = {id(tensor) for tensor in after.values()}
    known = set(map(_storage, before.tensors.values()))
    for name, old, new in ctx.sent.memories:
        for part in fields(old):
            was, now = vars(old)[part.name], vars(new)[part.name]
            changed, begun_anew = bool(was.numel()) and was is not now, _storage(was) not in known
            known.add(_storage(now))
            if changed and begun_anew and id(now) not in kept:
                raise ForgottenMemory(
                    f"{where}: the compressor's memory before the message '{name}' is not that of the state, nor is "
                    "the one after it in the new state, so that error feedback adds nothing: begin it in init, and "
                    "keep it in the state"
                )
            if changed and id(was) in kept and id(now) not in kept:
                raise ForgottenMemory(
                    f"{where}: the state after it has the compressor's memory from before the message '{name}', so "
                    "that error feedback adds nothing: put the memory that ctx.send_up or ctx.send_down returns into "
                    "the new state"
                )


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


def check_names(algorithm: Algorithm, tested: Iterable[str], metrics: Iterable[str]) -> None:
    """Raise ValueError if a metric of a round has the name of one of the models that are tested."""
    for name in set(tested) & set(metrics):
        raise ValueError(
            f"algorithm={algorithm.config_name}: {name} is both a metric of a round and one of the model called "
            f"{name.partition('/')[0]} in evaluation_models: give that model another name"
        )


def _storage(tensor: Tensor) -> int:
    """Tells the memory that a tensor is a view of from all others; a tensor without data has one, too."""
    return int(tensor.untyped_storage()._cdata)


def _form(tensor: Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return _form(value)
    if isinstance(value, tuple):
        return f"a tuple of {', '.join(type(one).__name__ for one in value)}"
    return f"a {type(value).__name__}"
