"""Federated rounds: who takes part, the algorithm's round, the ledger. Shape legend: N clients."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, AskedNumRounds, Context, Metrics, Models, SentMessages, Setup
from fedcomp.client.contract import Batching, LoopRunner
from fedcomp.core.cohort import Cohort, Everyone, Listed
from fedcomp.core.pytree import shares_memory
from fedcomp.dataset.contract import NO_TARGET, Dataset
from fedcomp.evaluation.per_client import ClientSamples, PerClient
from fedcomp.model.contract import AnyModel, TaskModel, num_frozen, tensors_of
from fedcomp.participation.contract import Participation
from fedcomp.random.keys import Key
from fedcomp.records.metrics_file import Line
from fedcomp.runtime.workers import ProcessGroup, Workers
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.chunks.executor import Executor
from fedcomp.simulation.divergence import Diverged, check_results
from fedcomp.simulation.evaluation import metrics_of
from fedcomp.simulation.optimum import LeastSquares
from fedcomp.simulation.personal_test import PersonalTest
from fedcomp.simulation.round_check import StateBefore, check_models, check_names, checked_round
from fedcomp.simulation.round_result import Evaluation, RoundResult
from fedcomp.wire import Field, Ledger, Link, Payload
from fedcomp.wire.coding import Unsigned
from fedcomp.wire.coding.contract import WireError
from fedcomp.wire.legs import RoundDeadline

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Simulation:
    """A federated run without its files: its parts, and how they make a round. Implements `RoundRunner`.

    Attributes:
        algorithm, dataset, shards, model, participation: the parts. Dataset and shards are on `device`.
        key: names every draw of the run.
        rounds: number of rounds.
        chunk_size: clients trained at once.
        link: `Link`, which counts the bits of messages, or `WireLink`, which also sends messages as bytes.
        device: of the state, the data and all computations. workers: threads that share chunks.
        dtype: in which clients compute and models are tested; messages and state are float32 in any case.
        optimum: of the training objective; None: unknown.
        group: the processes that share chunks and test batches.
        loop_runner: replays local loops as CUDA graphs; None: they run step by step.
        per_client: how accuracy by client is measured at each evaluation; None: it is not.
        asked: whether a round has asked for `rounds`.
    """

    algorithm: Algorithm
    dataset: Dataset
    shards: ClientShards
    model: AnyModel
    participation: Participation
    key: Key
    rounds: int
    chunk_size: int
    link: type[Link] = Link
    device: torch.device = CPU
    workers: Workers = field(default_factory=Workers)
    dtype: torch.dtype = torch.float32
    optimum: LeastSquares | None = None
    group: ProcessGroup = field(default_factory=ProcessGroup)
    loop_runner: LoopRunner | None = None
    per_client: PerClient | None = None
    asked: AskedNumRounds = field(default_factory=AskedNumRounds)

    @property
    def open_ended(self) -> bool:
        """Whether the rounds so far would be the same in a run of more rounds."""
        return not self.asked.yes

    def init(self) -> Any:
        """The algorithm's first state, from the model's first parameters."""
        theta, stats = self.model.init(self.key.fold_in("model"))
        return self.algorithm.init(theta.to(self.device), stats.to(self.device), self.setup(len(self.shards.sizes)))

    def setup(self, num_clients: int) -> Setup:
        """What the first state of so many clients depends on."""
        key, data = self.key.fold_in("init"), self.dataset
        return Setup(num_clients, tensors_of(self.model), key, data.task, data.num_outputs)

    def round(self, index: int, state: Any, ledger: Ledger, donate_state: bool = False) -> tuple[Any, RoundResult]:
        """Round `index` (0 is the first). A round without clients is counted, and changes nothing.

        Args:
            donate_state: the caller gives up `state`, so its rows may be changed in place (as donated buffers in JAX).

        Raises Diverged: the algorithm's round raised an error, and a client's training result is not finite.
        """
        cohort = self.cohort(index)
        ledger.begin_round(cohort)
        if index == self.first_round:
            self._tell_weights(ledger)
        if ledger.log is not None and ledger.log.deadline is not None:
            return self._round_with_deadline(index, state, cohort, ledger, ledger.log.deadline)
        if not cohort.size:
            ledger.end_round()
            return state, RoundResult(cohort, {})
        donated = donate_state and not shares_memory(state)
        new, metrics = self.attempt(index, state, replace(cohort, state_donated=donated), ledger)
        ledger.end_round()
        return new, RoundResult(cohort, metrics)

    def _round_with_deadline(
        self, index: int, state: Any, cohort: Cohort, ledger: Ledger, deadline: RoundDeadline
    ) -> tuple[Any, RoundResult]:
        """As `round`. If clients are late, it is run again without them.

        What the whole cohort is sent and sends is counted; of the server's answers, those to the clients on time.
        """
        assert ledger.legs is not None
        new, metrics = self.attempt(index, state, cohort, ledger) if cohort.size else (state, {})
        chosen = deadline.decide(cohort, ledger.legs)
        if not chosen.size:
            new, metrics = state, {}
            ledger.answer_as(None)
        elif chosen is not cohort:
            again = Ledger()
            again.log = ledger.log
            again.begin_round(chosen)
            new, metrics = self.attempt(index, state, chosen, again)
            ledger.answer_as(again)
        ledger.end_round()
        return new, RoundResult(chosen, metrics)

    def attempt(self, index: int, state: Any, cohort: Cohort, ledger: Ledger) -> tuple[Any, Metrics]:
        """The algorithm's round. Raises Diverged instead of its error where a client's result is not finite."""
        key = self.round_key(index)
        clients = self.clients(key.fold_in("client"), ledger)
        link = self.link(ledger)
        link.checks = self.is_checked(index)
        sent = SentMessages([] if link.checks else None)
        context = Context(index, self.rounds, key.fold_in("message"), link, clients, self.asked, sent)
        before = StateBefore.of(state) if link.checks else None
        try:
            returned = self.algorithm.round(state, cohort, context)
            if before is not None:
                checked_round(self.algorithm, returned, before, cohort, context)
            new, metrics = returned
            return new, {**metrics, **context.link.measured}
        except Exception as error:  # a codec may fail on NaN before the losses are checked
            try:
                check_results(index + 1, clients.results)
            except Diverged as cause:
                raise cause from error
            if type(error) is WireError:
                whose = "" if error.row is None else f", client {cohort.clients[error.row]}"
                raise WireError(f"round {index + 1}{whose}: {error}", error.row) from error
            raise

    @property
    def told_weights(self) -> str:
        """Which weights a client is told: "none", its "own", or those of "all"."""
        return "none" if self.algorithm.weights == "uniform" else self.algorithm.told_weights

    def _tell_weights(self, ledger: Ledger) -> None:
        """The messages by which clients learn the numbers that `told_weights` follow from, once a run."""
        if self.told_weights == "none":
            return
        counts = self.counts[:, None].to(self.device)
        link, everyone = self.link(ledger), Everyone(len(counts))
        sent = Payload({"samples": Field(counts, Unsigned(32))}, paper_bits=0)
        counts = link.up(sent, Listed(tuple(range(len(counts))))).fields["samples"].data
        known = counts.sum(0, keepdim=True) if self.told_weights == "own" else counts.T
        link.broadcast(Payload({"samples": Field(known, Unsigned(32))}, paper_bits=0), everyone)

    @functools.cached_property
    def first_round(self) -> int:
        """The first round with clients."""
        return next((index for index in range(self.rounds) if self.cohort(index).size), 0)

    def is_checked(self, index: int) -> bool:
        """Whether what the method returns, and every entry of its messages, is looked at: at times, as it reads them.

        It is in the first round with clients, in the 8th, 16th, 32nd and so on from there, and in the last after those.
        """
        number = index - self.first_round + 1
        return number == 1 or (number >= 8 and (number & (number - 1) == 0 or index == self.rounds - 1))

    def round_key(self, index: int) -> Key:
        """Names the draws of round `index`."""
        return self.key.fold_in("round", index)

    def cohort(self, index: int) -> Cohort:
        """The cohort of round `index`, on the run's device. Raises ValueError: a rule of the user's own drew none."""
        drawn = self.participation.sample(self.round_key(index).fold_in("participation"), self.importance, index)
        drawn.check_clients(len(self.importance))
        return drawn.to(self.device)

    def participation_metrics(self, index: int) -> dict[str, float]:
        """The participation's own metrics of round `index`."""
        return self.participation.metrics(len(self.shards.sizes), index)

    def clients(self, key: Key, ledger: Ledger) -> Executor:
        """The clients in a round whose draws `key` names; `ledger` counts their gradients."""
        return Executor(
            dataset=self.dataset,
            shards=self.shards,
            model=self.model,
            key=key,
            chunk_size=self.chunk_size,
            workers=self.workers,
            dtype=self.dtype,
            count=ledger.add_gradients,
            loop_runner=self.loop_runner,
            group=self.group,
            batching=self.batching,
            count_each=ledger.legs.add_work if ledger.legs is not None else None,
        )

    def evaluate(self, index: int, state: Any, result: RoundResult | None) -> Evaluation:
        """Test metrics after `index` rounds, and means over clients of the last round's metrics; see `Evaluation`."""
        line: dict[str, Any] = self.test_metrics(index, state)
        if result is not None:
            check_names(self.algorithm, line, result.metrics)
            line |= {name: value.mean() for name, value in result.metrics.items()}
            line |= self.participation_metrics(index - 1)
        return Evaluation(line)

    def gather_state(self, state: Any) -> Any:
        """The state itself, which every process has whole after each round."""
        return state

    def bits_metrics(self, ledger: Ledger) -> Line:
        return ledger.metrics(self.model.dim, num_frozen(self.model))

    def test_metrics(self, index: int, state: Any) -> dict[str, Tensor]:
        """Metrics of the deployed models on the test set after `index` rounds, as unsynchronised device scalars."""
        if self.algorithm.personalised:
            return self.personal_test.metrics(self.algorithm.personal_models(state), self.workers, self.group)
        evaluation_models = self.algorithm.evaluation_models(state, self.key.fold_in("deployed", index))
        check_models(self.algorithm, evaluation_models)
        return self.metrics_of(evaluation_models) | self._excess(evaluation_models)

    def metrics_of(self, evaluation_models: Mapping[str, Models]) -> dict[str, Tensor]:
        """Metrics of these models on the test set, as `evaluation.metrics_of`."""
        clients = self.client_samples
        return metrics_of(evaluation_models, self.model, self.dataset, self.workers, self.dtype, self.group, clients)

    def _excess(self, evaluation_models: Mapping[str, Models]) -> dict[str, Tensor]:
        """`<name>/excess`: f - f* of the clients' objective f on their training data, where f* is known."""
        if self.optimum is None:
            return {}
        return {f"{name}/excess": self.optimum.excess(one.theta).mean() for name, one in evaluation_models.items()}

    @functools.cached_property
    def client_samples(self) -> ClientSamples | None:
        """The samples for accuracy by client; None: it is not measured.

        Raises ValueError: the model is no network, or as `PerClient.samples`.
        """
        if self.per_client is None:
            if self.algorithm.personalised:
                name = self.algorithm.config_name
                raise ValueError(
                    f"algorithm={name} trains a model for each client, which its own samples judge, and none that "
                    "evaluation=pooled could: take evaluation=per_client"
                )
            return None
        if isinstance(self.model, TaskModel):
            kind = self.model.kind
            raise ValueError(f"evaluation=per_client is for networks, not for model={kind}: take evaluation=pooled")
        return self.per_client.samples(self.dataset, self.shards.order, self.shards.sizes)

    @functools.cached_property
    def personal_test(self) -> PersonalTest:
        """By which samples the models of a `personalised` algorithm are judged."""
        assert self.client_samples is not None
        assert not isinstance(self.model, TaskModel)
        return PersonalTest.of(self.model, self.dataset, self.client_samples, self.dtype)

    @functools.cached_property
    def batching(self) -> Batching | None:
        """How clients go through their samples in a round, where the algorithm has a local solver."""
        solver = self.algorithm.solver
        return solver.batching if solver else None

    @functools.cached_property
    def expected_cohort(self) -> float:
        """How many clients are expected in a round."""
        return float(self.participation.inclusion(len(self.shards.sizes)).sum())

    @functools.cached_property
    def importance(self) -> Tensor:
        """[N] float64 weight of each client before normalisation, on the CPU: its `counts`, or 1."""
        counts = self.counts.to(torch.float64)
        return torch.ones_like(counts) if self.algorithm.weights == "uniform" else counts

    @functools.cached_property
    def counts(self) -> Tensor:
        """[N] int64 samples of each client, on the CPU; with `weights=tokens` the targets of its samples.

        Raises ValueError: samples have no such targets, or a client has none.
        """
        sizes = torch.from_numpy(self.shards.sizes)
        if self.algorithm.weights != "tokens":
            return sizes
        if self.dataset.task != "next_token":
            name = self.dataset.name
            raise ValueError(
                f"algorithm.weights=tokens counts tokens to predict, and dataset={name} has none: take samples"
            )
        y = self.dataset.train.y[self.shards.order]
        targets = (y != NO_TARGET).reshape(len(y), -1).sum(1).cpu()
        found = torch.stack([own.sum() for own in targets.split(sizes.tolist())])
        if not bool(found.all()):
            raise ValueError(f"algorithm.weights=tokens: no token of client {int(found.argmin())} is to be predicted")
        return found
