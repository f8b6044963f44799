"""A Monte-Carlo study: R independent repetitions of one experiment in one run (`repeats=R`).

Repetitions differ only in their key: first weights, cohorts, batches, random draws and, unless `partition.seed` fixes
it, the partition. Repetition 0 is the run without `repeats`. All run round by round, in one of two ways:

    vmapped             all repetitions in one pass (`vmapped.py`): if the model is so small that clients of several
                        repetitions fit into one chunk (`chunk_size`), and the method can be mapped over repetitions.
                        This is tested before the first round: some rounds are run both ways and must agree
    one after another   everything else: convolutions on a CPU, messages as real bytes, bits that depend on data, draws
                        from seeds that messages carry (FedScalar, Rand-k)

Both give the same draws and bits and, up to rounding, the same numbers. Which one is used depends on the config alone,
so a resumed study is the same bit for bit. The state is the method's, with the repetitions as first axis.

If repetitions run one after another and are at least as many as the processes, each process runs some of them
(`shared.py`); otherwise the processes share the clients, as in a single run.

Shape legend: R repetitions, K models of each, D parameters.
"""

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Models
from fedcomp.core.accelerated import is_safe
from fedcomp.core.first_line import first_line
from fedcomp.core.pytree import flatten, map_tensors
from fedcomp.model.contract import AnyModel, RowModel, num_frozen
from fedcomp.random.keys import Key
from fedcomp.records.metrics_file import Line
from fedcomp.runtime.workers import ProcessGroup
from fedcomp.simulation.evaluation import metrics_of_rows
from fedcomp.simulation.monte_carlo import shared
from fedcomp.simulation.monte_carlo.dispersion import dispersion_of, dispersion_of_models, models_line
from fedcomp.simulation.monte_carlo.vmap_keys import NotVmappable
from fedcomp.simulation.monte_carlo.vmapped import VmappedRepetitions
from fedcomp.simulation.round_result import Evaluation, RoundResult
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger

log = logging.getLogger("fedcomp")
Result = TypeVar("Result")

FIRST_ROUNDS, TESTED_ROUNDS = 20, 2
"""Of the first FIRST_ROUNDS rounds, TESTED_ROUNDS with clients, and as many in which the repetitions' cohorts differ in
size, are run both vmapped and one after another."""
CLOSE = 1e-3
"""Largest difference between the two ways that counts as rounding, relative to the largest entry."""


def repetition_key(key: Key, number: int) -> Key:
    """The key of repetition `number`; repetition 0 has the run's own."""
    return key.fold_in("repetition", number) if number else key


@dataclass(frozen=True)
class MonteCarloStudy:
    """Implements `RoundRunner` for repetitions of a simulation.

    Attributes:
        repetitions: they differ in `key`, and may in `shards` (and the optimum that follows from them).
        vmapped: runs all repetitions in one pass; None: they run one after another.
        group: the processes that share the repetitions.
        reasons: the logged reasons for which rounds ran one after another although there is `vmapped`.
    """

    repetitions: tuple[Simulation, ...]
    vmapped: VmappedRepetitions | None = None
    group: ProcessGroup = field(default_factory=ProcessGroup)
    reasons: set[str] = field(default_factory=set, compare=False)

    @classmethod
    def of(cls, repetitions: tuple[Simulation, ...], spread: bool = True) -> "MonteCarloStudy":
        """A study of these repetitions, vmapped if possible. `spread`: otherwise processes may share repetitions."""
        first = repetitions[0]
        together = first.chunk_size >= 2 * first.expected_cohort and not is_safe()
        vmapped = _verified_vmap(repetitions) if together else None
        if vmapped is None and spread and 1 < first.group.size <= len(repetitions):
            alone = tuple(replace(one, group=ProcessGroup()) for one in repetitions)
            return cls(alone, group=first.group)
        return cls(repetitions, vmapped)

    @functools.cached_property
    def shares(self) -> shared.Shares:
        """The repetitions of each process."""
        return shared.split(len(self.repetitions), self.group)

    @property
    def rounds(self) -> int:
        return self.repetitions[0].rounds

    @property
    def open_ended(self) -> bool:
        """As of a simulation. The first FIRST_ROUNDS rounds decide whether repetitions run at once."""
        return self.rounds >= FIRST_ROUNDS and all(one.open_ended for one in self.repetitions)

    @property
    def model(self) -> AnyModel:
        return self.repetitions[0].model

    def init(self) -> Any:
        """The states before the first round, [R, ...] each tensor."""
        return _stacked([one.init() for one in self.repetitions])

    def round(self, index: int, state: Any, ledger: Ledger, donate_state: bool = False) -> tuple[Any, RoundResult]:
        """Round `index` of every repetition. `donate_state`: the caller gives up `state`, which may be changed."""
        if (done := self._if_vmappable(lambda vmapped: vmapped.round(index, state, ledger, ledger.logs))) is not None:
            return done
        states: list[Any] = []
        results: list[RoundResult | None] = []
        own_ledger = Ledger() if self.group.size > 1 else ledger
        for number, one in enumerate(self.repetitions):
            if number not in self.shares[self.group.rank]:
                results.append(None)
                states.append(_repetition(state, number))
                continue
            own_ledger.log = own_ledger.logs[number] if own_ledger.logs else None
            new, result = one.round(index, _repetition(state, number), own_ledger, donate_state)
            if donate_state:
                _set_repetition(state, number, new)
            else:
                states.append(new)
            results.append(result)
        if self.group.size > 1:
            ledger.merge(shared.sum_of(own_ledger, self.group))
            cohorts = [one.cohort(index) for one in self.repetitions]
            whole = shared.gather_result(cohorts, results, self.shares, self.group)
        else:
            known = [one for one in results if one is not None and one.cohort.size]
            whole = shared.joined_result([one.cohort for one in known], [one.metrics for one in known])
        return state if donate_state else _stacked(states), whole

    def gather_state(self, state: Any) -> Any:
        """The state of all repetitions; the rows of other processes' repetitions in `state` are overwritten."""
        return shared.gather(state, self.shares, self.group)

    def _if_vmappable(self, call: Callable[[VmappedRepetitions], Result]) -> Result | None:
        """What `call` returns for all repetitions in one pass; None: they have to run one after another.

        A round may differ from the tested ones, as a periodic synchronisation does. Each reason is logged once.
        """
        if self.vmapped is None:
            return None
        try:
            return call(self.vmapped)
        except NotVmappable as refused:
            if str(refused) not in self.reasons:
                self.reasons.add(str(refused))
                log.info("some rounds or evaluations run one repetition after another: %s", refused)
            return None

    def evaluate(self, index: int, state: Any, result: RoundResult | None) -> Evaluation:
        """Means and dispersion over repetitions; see `dispersion.py`."""
        evaluation_models = self._deployed(index, self.gather_state(state))
        each = self._personal_test(index, state) if self._personalised else self._test(evaluation_models)
        optimum = self.repetitions[0].optimum
        line: Line = {}
        for name, values in (each | (result.means() if result is not None else {})).items():
            line |= dispersion_of(name, values)
        curves = {name: values.tolist() for name, values in each.items()}
        if "test" in evaluation_models:
            theta = evaluation_models["test"].theta.mean(1)
            line |= dispersion_of_models(theta, each)
            curves |= models_line(theta, optimum)
        if result is not None:
            line |= self.repetitions[0].participation_metrics(index - 1)
        return Evaluation(line, curves)

    def bits_metrics(self, ledger: Ledger) -> Line:
        """The ledger's part of a line of `metrics.jsonl`; sums over clients and rounds are means over repetitions."""
        line, num = ledger.metrics(self.model.dim, num_frozen(self.model)), len(self.repetitions)
        return {name: value if "bpp/" in name else value / num for name, value in line.items()}

    def _deployed(self, index: int, state: Any) -> dict[str, Models]:
        """The models of each repetition by name, theta [R, K, D]; none where clients have their own."""
        if self._personalised:
            return {}
        if (found := self._if_vmappable(lambda vmapped: vmapped.evaluation_models(index, state))) is not None:
            return found
        every = [
            one.algorithm.evaluation_models(_repetition(state, number), one.key.fold_in("deployed", index))
            for number, one in enumerate(self.repetitions)
        ]
        return {name: _stacked([models[name] for models in every]) for name in every[0]}

    def _test(self, evaluation_models: dict[str, Models]) -> dict[str, Tensor]:
        """Float64 [R] of every test metric."""
        first = self.repetitions[0]
        found: dict[str, Tensor] = {}
        for name, models in evaluation_models.items():
            num_repetitions, num_models = models.theta.shape[:2]
            if first.per_client is None and isinstance(first.model, RowModel) and models.stats.shape[2] == 0:
                flat = Models(models.theta.flatten(0, 1), models.stats.flatten(0, 1))
                rows = metrics_of_rows(flat, first.model, first.dataset, first.dtype)
                own = {key: value.view(num_repetitions, num_models).mean(1) for key, value in rows.items()}
                found |= {f"{name}/{key}": value for key, value in own.items()}
            else:
                own_numbers = self.shares[self.group.rank]
                lines = {at: self.repetitions[at].metrics_of({name: _repetition(models, at)}) for at in own_numbers}
                found |= shared.gather_metrics(lines, num_repetitions, self.shares, self.group)
            if (excess := self._excess(models.theta)) is not None:
                found[f"{name}/excess"] = excess
        return {name: value.cpu() for name, value in found.items()}

    def _personal_test(self, index: int, state: Any) -> dict[str, Tensor]:
        """As `_test`, where every client of a repetition has a model of its own."""
        own = self.shares[self.group.rank]
        lines = {number: self.repetitions[number].test_metrics(index, _repetition(state, number)) for number in own}
        found = shared.gather_metrics(lines, len(self.repetitions), self.shares, self.group)
        return {name: value.cpu() for name, value in found.items()}

    @property
    def _personalised(self) -> bool:
        return self.repetitions[0].algorithm.personalised

    def _excess(self, theta: Tensor) -> Tensor | None:
        """[R] float64 f - f*, means over the models theta [R, K, D] of a repetition; None where f* is unknown."""
        optima = [one.optimum for one in self.repetitions]
        if optima[0] is None:
            return None
        if all(one is optima[0] for one in optima):
            return optima[0].excess(theta.flatten(0, 1)).unflatten(0, theta.shape[:2]).mean(1)
        return torch.stack([one.excess(own).mean() for one, own in zip(optima, theta) if one is not None])


def _verified_vmap(repetitions: tuple[Simulation, ...]) -> VmappedRepetitions | None:
    """All repetitions in one pass; None: a tested round cannot be run so, or has another result than one by one."""
    num_rounds = min(FIRST_ROUNDS, repetitions[0].rounds)
    sizes = [[one.cohort(index).size for one in repetitions] for index in range(num_rounds)]
    some = [index for index, own in enumerate(sizes) if any(own)]
    uneven = [index for index in some if len({size for size in sizes[index] if size}) > 1]
    tested = sorted({*some[:TESTED_ROUNDS], *uneven[:TESTED_ROUNDS]})
    one_by_one = MonteCarloStudy(repetitions)
    state = other = one_by_one.init()
    ledger, counted = Ledger(), Ledger()
    for index in tested:
        other, _ = one_by_one.round(index, other, counted)  # raises errors of the method itself
    try:
        vmapped = VmappedRepetitions.of(repetitions, pads=bool(uneven))
        for index in tested:
            state, _ = vmapped.round(index, state, ledger)
    except NotVmappable as refused:
        log.info("repetitions run one after another: %s", refused)
        return None
    except Exception as error:  # of a method that takes the padding rows of a cohort for clients
        kind = type(error).__name__
        log.warning("repetitions run one after another: all at once raises %s: %s", kind, first_line(error))
        return None
    same = ledger.counters() == counted.counters() and _close(state, other)
    if some and not same:
        log.info("repetitions run one after another: all at once gives other bits or another state")
    return vmapped if same and some else None


def _close(one: Any, other: Any) -> bool:
    left, right = flatten(one), flatten(other)
    return all(_near(left[name].double(), value.double()) for name, value in right.items() if value.numel())


def _near(one: Tensor, other: Tensor) -> bool:
    scale = float(other.abs().max())
    return math.isfinite(scale) and torch.allclose(one, other, rtol=0, atol=CLOSE * scale)


def _stacked(trees: list[Any]) -> Any:
    return map_tensors(lambda *tensors: torch.stack(tensors), *trees)


def _repetition(tree: Any, number: int) -> Any:
    """The tensors of repetition `number`, views of those in `tree`."""
    return map_tensors(lambda tensor: tensor[number], tree)


def _set_repetition(tree: Any, number: int, own: Any) -> None:
    """Write the tensors of repetition `number` into `tree`, which has those of all; they may be views of it."""
    storages = {tensor.untyped_storage().data_ptr() for tensor in flatten(tree).values()}

    def safe(whole: Tensor, new: Tensor) -> Tensor:
        there = new.data_ptr() == whole[number].data_ptr()
        return new if there or new.untyped_storage().data_ptr() not in storages else new.clone()

    kept = map_tensors(safe, tree, own)
    map_tensors(lambda whole, new: whole[number].copy_(new), tree, kept)
