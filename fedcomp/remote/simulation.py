"""A simulation's rounds, made by a server process and client processes that share nothing but config and seed.

Server and clients execute the same `Algorithm.round`. A client trains its own row and has copies of it in the place of
all others; the server trains nobody, and has a trial on zeros there. No process has samples of another.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from fedcomp.algorithm.fit import check_participation
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import map_tensors
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.model.contract import TaskModel
from fedcomp.participation.absent import WithoutAbsent
from fedcomp.participation.bernoulli import Bernoulli
from fedcomp.random.keys import Key
from fedcomp.remote.client_end import ClientEnd
from fedcomp.remote.link import ClientsLink, ServersLink
from fedcomp.remote.server_end import Lost, ServerEnd
from fedcomp.simulation.chunks.executor import Executor
from fedcomp.simulation.round_result import RoundResult
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger, Link


@dataclass(frozen=True, kw_only=True)
class OneRow(Executor):
    """An executor where only one client's data are at hand, or nobody's. `client`: whose they are; None: nobody's."""

    client: int | None

    def map_clients(self, work: Callable[..., Any], cohort: Cohort, *rows: Tensor) -> Any:
        """`work` for the own row, and copies of its result for all others; see `Clients.map_clients`.

        Without an own row a trial gives the copies, of which nothing is counted.
        """
        own = self.client in cohort.clients
        row = cohort.clients.index(self.client) if own else 0
        executor = self if own else replace(self, count=None)
        alone = Cohort(cohort.ids[row : row + 1], cohort.weight[row : row + 1], cohort.clients[row : row + 1])
        result = Executor.map_clients(executor, work, alone, *[tensor[row : row + 1] for tensor in rows])
        return map_tensors(lambda tensor: tensor.expand(cohort.size, *tensor.shape[1:]).clone(), result)


@dataclass(frozen=True, kw_only=True)
class RemoteSimulation(Simulation):
    """A simulation of which this process is one end.

    Attributes:
        end: the connections. own: the data set with zeros in the place of all samples that are not this process's.
        absent: {round: clients that it leaves out, though they were drawn}. memory: as in `Link`, of this client, from
            round to round.
    """

    end: ServerEnd | ClientEnd
    own: Dataset
    absent: dict[int, tuple[int, ...]]
    memory: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, simulation: Simulation, end: ServerEnd | ClientEnd) -> Self:
        """The same simulation, made by processes. Raises ValueError: they cannot make it."""
        check_possible(simulation)
        parts = {name: getattr(simulation, name) for name in simulation.__dataclass_fields__}
        absent = dict[int, tuple[int, ...]]()
        participation = WithoutAbsent(simulation.participation, absent)
        changed = {"chunk_size": 1, "loop_runner": None, "optimum": None, "participation": participation}
        return cls(**parts | changed, end=end, own=own_samples(simulation, end.client), absent=absent)

    def clients(self, key: Key, ledger: Ledger) -> OneRow:
        """The clients of which this process has one, or none."""
        return OneRow(**vars(super().clients(key, ledger)) | {"dataset": self.own}, client=self.end.client)

    def attempt(self, index: int, state: Any, cohort: Cohort, ledger: Ledger) -> Any:
        """As `Simulation.attempt`, with a link between processes.

        Raises Gone: another process is gone or late. Lost, Again: so is a client of the cohort, without which the
            round is made again.
        """
        linked = replace(self, link=self._link(cohort))
        return Simulation.attempt(linked, index, state, cohort, ledger)

    def _tell_weights(self, ledger: Ledger) -> None:
        Simulation._tell_weights(replace(self, link=self._link(None)), ledger)

    def _link(self, cohort: Cohort | None) -> type[Link]:
        if isinstance(self.end, ServerEnd):
            return functools.partial(ServersLink, self.end, cohort)  # type: ignore[return-value]
        return functools.partial(ClientsLink, self.end, self.memory, cohort)  # type: ignore[return-value]


@dataclass(frozen=True, kw_only=True)
class ServerSimulation(RemoteSimulation):
    """The server's end: what the session runs."""

    def round(self, index: int, state: Any, ledger: Ledger, donate_state: bool = False) -> tuple[Any, RoundResult]:
        """As `Simulation.round`, by all processes, without the clients that are not here.

        A round in which a client of the cohort gets lost is made again without it. Raises Gone: it cannot be.
        """
        assert isinstance(self.end, ServerEnd)
        before = ledger.counters()
        while True:
            self.absent[index] = absent = self.end.begin(index)
            try:
                self.end.tell_round(index, absent, self.cohort(index).clients)
                return self._with_reports(*super().round(index, state, ledger), ledger)
            except Lost:
                ledger.restore(before)
                self.end.abandon()

    def _with_reports(self, new: Any, result: RoundResult, ledger: Ledger) -> tuple[Any, RoundResult]:
        """Metrics with one value a client are what the clients report."""
        assert isinstance(self.end, ServerEnd)
        each = reported(result)
        reports = {
            client: np.frombuffer(self.end.report(client, 8 * len(each) + 8), "<f8") for client in result.cohort.clients
        }
        ledger.add_gradients(int(sum(report[-1] for report in reports.values())))
        known = {name: result.metrics[name] for name in self.algorithm.servers_metrics if name in result.metrics}
        metrics = known | {
            name: torch.tensor([reports[client][at] for client in result.cohort.clients]).to(value)
            for at, (name, value) in enumerate(each.items())
            if name not in known
        }
        return new, replace(result, metrics=metrics)

    def test_metrics(self, index: int, state: Any) -> dict[str, Tensor]:
        """As `Simulation.test_metrics`, of the models that clients hold too."""
        return super().test_metrics(index, self.with_clients_rows(index, state))

    def with_clients_rows(self, rounds: int, state: Any) -> Any:
        """The state after so many rounds with the rows that `client_models` follow from, which each client reports.

        Raises Gone: a client is gone.
        """
        assert isinstance(self.end, ServerEnd)
        names = fields_of_clients(self)
        if not names or not rounds:  # before the first round all know them
            return state
        self.end.tell_test(rounds)
        reports = [self.end.report(client, len(rows_of(self, state, client))) for client in range(len(self.counts))]
        numbers = torch.from_numpy(np.stack([np.frombuffer(report, "<f4") for report in reports]))
        old = [getattr(state, name) for name in names]
        parts = numbers.split([tensor[0].numel() for tensor in old], 1)
        return replace(state, **{name: part.view_as(own).to(own) for name, part, own in zip(names, parts, old)})

    def gather_state(self, state: Any) -> Any:
        """The server's state with the rows that a test needs, once all clients that are here have saved theirs."""
        assert isinstance(self.end, ServerEnd)
        whole = self.with_clients_rows(max(self.absent, default=-1) + 1, state)
        self.end.save()
        return whole


def report_of(result: RoundResult, client: int, gradients: int) -> bytes:
    """What a client of the cohort tells the server of a round beside its messages, as float64.

    That is its own entry of each metric with one value a client, and how many gradients of samples it computed.
    """
    at = result.cohort.clients.index(client)
    own = [float(value[at]) for value in reported(result).values()]
    return np.array([*own, gradients], "<f8").tobytes()


def fields_of_clients(simulation: Simulation) -> list[str]:
    """The fields of the state whose rows clients hold and a test needs."""
    return list(dict.fromkeys(name for names in simulation.algorithm.client_models.values() for name in names))


def rows_of(simulation: Simulation, state: Any, client: int) -> bytes:
    """A client's own rows of `fields_of_clients`, as float32."""
    rows = [getattr(state, name)[client].flatten() for name in fields_of_clients(simulation)]
    return torch.cat(rows).cpu().numpy().astype("<f4").tobytes()


def reported(result: RoundResult) -> dict[str, Tensor]:
    """The metrics with one value a client, which clients know; of others the server has placeholders."""
    return {name: value for name, value in result.metrics.items() if value.shape == (result.cohort.size,)}


def own_samples(simulation: Simulation, client: int | None) -> Dataset:
    """The data set with zeros in the place of all training samples but those of this client; None: of all."""
    shards, train = simulation.shards, simulation.dataset.train
    others = torch.ones(len(train), dtype=torch.bool, device=simulation.device)
    if client is not None:
        first = int(shards.start[client])
        others[shards.order[first : first + int(shards.sizes[client])]] = False
    x, y = train.x.clone(), train.y.clone()
    x[others], y[others] = 0, 0
    return replace(simulation.dataset, train=Samples(x, y, train.owner))


def can_leave_out(simulation: Simulation) -> bool:
    """Whether the method goes on without a client that is gone, and can be tested without it."""
    if simulation.algorithm.client_models:
        return False
    try:
        check_participation(simulation.algorithm, Bernoulli(0.5), len(simulation.shards.sizes), simulation.rounds)
    except ValueError:
        return False
    return True


def check_possible(simulation: Simulation) -> None:
    """Raise ValueError if processes cannot make this run."""
    if isinstance(simulation.model, TaskModel):
        raise ValueError("wire=tcp is for networks: the objective of this task needs the samples of all clients")
    if simulation.algorithm.personalised:
        name = simulation.algorithm.config_name
        raise ValueError(
            f"wire=tcp: algorithm={name} has a model for each client, which its own samples judge, and no process has "
            "the samples of all: simulate it, with wire=counted or packed"
        )
    if simulation.per_client is not None:
        raise ValueError("wire=tcp: evaluation=per_client needs the samples of all clients; take evaluation=pooled")
