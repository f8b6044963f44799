"""Repetitions of a simulation in one pass: `torch.func.vmap` over the method's round.

The method's code runs once, on tensors of all R repetitions. Three things are handled outside of the method:
    cohorts that differ in size: each is padded to the largest one with clients of weight 0, which are not trained and
    whose bits are not counted;
    local work: the clients of all repetitions are trained as one federation of R N clients, `chunk_size` at a time;
    draws: each is made from its repetition's own key.
A method that reads a number back, needs client numbers on the host, has bits that depend on data, draws from seeds in
messages, or sends real bytes, raises an error inside vmap. A method that takes padding rows for clients has a wrong
result. `study.py` detects both before the first round.

Shape legend: R repetitions in which anybody takes part, N clients of each, M rows of each, K models, D parameters.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedcomp.algorithm.contract import Context, Models
from fedcomp.core.cohort import Cohort
from fedcomp.core.first_line import first_sentence
from fedcomp.core.pytree import flatten, map_tensors, unflatten
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.monte_carlo.shared import joined_cohort
from fedcomp.simulation.monte_carlo.vmap_adapters import PaddedCohort, VmappedClients, VmappedLink
from fedcomp.simulation.monte_carlo.vmap_keys import ClientKey, NotVmappable, VmappedKey
from fedcomp.simulation.round_result import RoundResult
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger, Link
from fedcomp.wire.legs import WORK, Legs, RoundLog

# vmap runs some operations of codecs in a loop, which is slower but correct: users need no warning.
warnings.filterwarnings("ignore", message="There is a performance drop because we have not yet implemented the batch")


@dataclass(frozen=True)
class VmappedRepetitions:
    """Repetitions in one pass; the state is the method's, each tensor with the repetitions as first axis.

    Attributes:
        repetitions: simulations that differ in their keys, and may in who holds which samples.
        whole: the first repetition, with the clients of all.
        pads: whether cohorts may differ in size; False unless rounds with such cohorts were tested.
    """

    repetitions: tuple[Simulation, ...]
    whole: Simulation
    pads: bool

    @classmethod
    def of(cls, repetitions: tuple[Simulation, ...], pads: bool) -> "VmappedRepetitions":
        """Join the clients. Raises NotVmappable: messages are sent as real bytes."""
        if repetitions[0].link is not Link:
            raise NotVmappable("messages of several repetitions as bytes")
        if repetitions[0].told_weights != "none":
            raise NotVmappable("weights that clients are told before the first round")
        return cls(repetitions, replace(repetitions[0], shards=_joined([one.shards for one in repetitions])), pads)

    def round(
        self, index: int, state: Any, ledger: Ledger, logs: Sequence[RoundLog] | None = None
    ) -> tuple[Any, RoundResult]:
        """Round `index` of all repetitions; their legs are appended to `logs`. Raises NotVmappable."""
        if logs and logs[0].deadline is not None:
            raise NotVmappable("late clients, who are others in every repetition")
        every = [one.cohort(index) for one in self.repetitions]
        present = [number for number, cohort in enumerate(every) if cohort.size]
        cohorts, sizes = [every[number] for number in present], [every[number].size for number in present]
        if not present:
            ledger.add_round(0)
            _keep_legs(Legs(()), every, logs)
            return state, RoundResult(every[0], {})
        if len(set(sizes)) > 1 and not self.pads:
            raise NotVmappable("cohorts that differ in size, which was not tried")
        round_ledger, num_clients = Ledger(), len(self.repetitions[0].shards.sizes)
        round_ledger.add_round(sum(sizes))
        rows = _Rows(present, cohorts, num_clients)
        round_ledger.legs = Legs(rows.cohort.clients) if logs is not None else None
        where = torch.tensor(present, device="cpu").to(rows.ids.device, non_blocking=True)
        chosen = state if len(present) == len(every) else map_tensors(lambda tensor: tensor[where], state)
        client_key = ClientKey(
            (), tuple(one.key.fold_in("round", index, "client") for one in self.repetitions), num_clients
        )
        executor = replace(self.whole.clients(client_key, round_ledger), may_fail=True)
        clients = VmappedClients(executor, rows.cohort, rows.positions, num_clients)
        keys = tuple(self.repetitions[number].key.fold_in("round", index, "message") for number in present)

        def one(tensors: dict[str, Tensor], ids: Tensor, weight: Tensor, number: Tensor) -> Any:
            cohort = PaddedCohort.padded(ids, weight, len(set(sizes)) == 1)
            link, key = VmappedLink(round_ledger, cohort.size, sum(sizes), len(sizes)), VmappedKey((), keys, number)
            context = Context(index, self.whole.rounds, key, link, clients, self.whole.asked)
            new, metrics = self.whole.algorithm.round(unflatten(state, tensors.values()), cohort, context)
            return flatten(new), dict(metrics)

        tensors, metrics = _vmap(one, flatten(chosen), rows.ids, rows.weight, where)
        new = unflatten(state, tensors.values())
        if len(present) < len(every):
            new = map_tensors(lambda old, part: old.index_copy(0, where, part), state, new)
        ledger.merge(round_ledger)
        if round_ledger.legs is not None:
            _keep_legs(round_ledger.legs, every, logs)
        each = {name: value.flatten(0, 1)[rows.positions] for name, value in metrics.items() if value.dim() > 1}
        shared = {name: value for name, value in metrics.items() if value.dim() == 1}
        return new, RoundResult(joined_cohort(cohorts), each, tuple(sizes), shared)

    def evaluation_models(self, index: int, state: Any) -> dict[str, Models]:
        """The models of all repetitions, theta [R, K, D]. Raises NotVmappable."""
        keys = tuple(one.key.fold_in("deployed", index) for one in self.repetitions)

        def one(tensors: dict[str, Tensor], number: Tensor) -> Any:
            models = self.whole.algorithm.evaluation_models(
                unflatten(state, tensors.values()), VmappedKey((), keys, number)
            )
            return {name: (model.theta, model.stats, model.change) for name, model in models.items()}

        numbers = torch.arange(len(keys), device=self.whole.device)
        return {name: Models(*parts) for name, parts in _vmap(one, flatten(state), numbers).items()}


def _vmap(function: Callable[..., Any], *inputs: Any) -> Any:
    """`torch.func.vmap(function)(*inputs)`. Raises NotVmappable where vmap cannot: torch says so with a RuntimeError.

    A RuntimeError of the method itself looks the same, and recurs when the repetitions run one after another. Any other
    exception passes through.
    """
    try:
        return torch.func.vmap(function)(*inputs)
    except NotVmappable:
        raise
    except RuntimeError as error:
        raise NotVmappable(f"vmap cannot run the method ({first_sentence(error)})") from error


def _keep_legs(joined: Legs, cohorts: Sequence[Cohort], logs: Sequence[RoundLog] | None) -> None:
    """Append to the log of each repetition what it sent and computed in the joined round.

    All repetitions send messages of the same length; the gradients are those of a repetition's own clients.
    """
    first = 0
    for cohort, log in zip(cohorts, logs or ()):
        last = first + cohort.size
        made = [
            leg._replace(amount=leg.amount[first:last]) if leg.kind == WORK and not isinstance(leg.amount, int) else leg
            for leg in (joined.made if cohort.size else ())
        ]
        log.rounds.append(Legs(cohort.clients, made))
        first = last


class _Rows:
    """The cohorts side by side.

    Attributes:
        ids: [R, M] client numbers, 0 where there is none. weight: [R, M], 0 there.
        positions: [n] rows of the n clients among the R M rows.
        cohort: the n clients, numbered in the joined federation.
    """

    def __init__(self, present: list[int], cohorts: list[Cohort], num_clients: int) -> None:
        self.ids = pad_sequence([cohort.ids for cohort in cohorts], batch_first=True)
        self.weight = pad_sequence([cohort.weight for cohort in cohorts], batch_first=True)
        sizes = np.array([cohort.size for cohort in cohorts])
        taken = np.arange(self.ids.shape[1]) < sizes[:, None]
        self.positions = torch.from_numpy(np.flatnonzero(taken)).to(self.ids.device)
        before = torch.tensor(present, device=self.ids.device)[:, None] * num_clients
        ids, weight = (self.ids + before).flatten()[self.positions], self.weight.flatten()[self.positions]
        numbers = [at * num_clients + client for at, one in zip(present, cohorts) for client in one.clients]
        self.cohort = Cohort(ids, weight, tuple(numbers))


def _joined(shards: list[ClientShards]) -> ClientShards:
    """The shards of R N clients."""
    held = np.cumsum([0, *[len(one.order) for one in shards]])
    start = torch.cat([one.start + int(before) for one, before in zip(shards, held)])
    return ClientShards(torch.cat([one.order for one in shards]), start, np.concatenate([one.sizes for one in shards]))
