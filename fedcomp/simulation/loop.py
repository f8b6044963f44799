"""Federated rounds: who takes part, the algorithm's round, the ledger. Shape legend: D parameters, C statistics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.cohort import Cohort
from fedcomp.dataset.contract import Dataset
from fedcomp.keys import Key
from fedcomp.model.contract import Learnt, tensors_of
from fedcomp.participation.contract import Participation
from fedcomp.simulation.evaluation import evaluate
from fedcomp.simulation.executor import Executor
from fedcomp.simulation.local import Shards
from fedcomp.simulation.recorded import Recorder
from fedcomp.simulation.workers import Workers
from fedcomp.wire import Ledger, Link

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Simulation:
    """Everything a federated run is made of; knows no method by name.

    Attributes:
        algorithm, dataset, shards, model, participation: the parts. Dataset and shards lie on the run's device.
        key: names every draw of the run.
        rounds: how many there are.
        chunk_size: clients trained at once.
        link: `Link` or its honest twin `WireLink`.
        device: where everything happens. workers: threads that share chunks and test batches.
        recorder: repeats recorded local loops on a GPU; None: they run step by step.
    """

    algorithm: Algorithm
    dataset: Dataset
    shards: Shards
    model: Learnt
    participation: Participation
    key: Key
    rounds: int
    chunk_size: int
    link: type[Link] = Link
    device: torch.device = CPU
    workers: Workers = field(default_factory=Workers)
    recorder: Recorder | None = None

    def init(self) -> Any:
        """The algorithm's first state, from the model's first parameters."""
        theta, stats = self.model.init(self.key.fold("model"))
        setup = Setup(len(self.shards.sizes), tensors_of(self.model), self.key.fold("init"))
        return self.algorithm.init(theta.to(self.device), stats.to(self.device), setup)

    def round(self, index: int, state: Any, ledger: Ledger) -> tuple[Any, Cohort, Metrics]:
        """Round `index` (0 is the first). One in which nobody takes part is counted, costs nothing, changes nothing."""
        key = self.key.fold("round", index)
        cohort = self.participation.sample(key.fold("participation"), self._importance()).to(self.device)
        ledger.add_round(cohort.size)
        if not cohort.size:
            return state, cohort, {}
        parts = self.dataset, self.shards, self.model, key.fold("client"), self.chunk_size, self.workers, self.recorder
        clients = Executor(*parts)
        context = Context(index, self.rounds, key.fold("message"), self.link(ledger), clients)
        state, metrics = self.algorithm.round(state, cohort, context)
        return state, cohort, metrics

    def evaluate(self, index: int, state: Any) -> dict[str, float]:
        """Test metrics of the deployed models after `index` rounds."""
        deployed = self.algorithm.deployed(state, self.key.fold("deployed", index))
        return evaluate(deployed, self.model, self.dataset, self.workers)

    def _importance(self) -> Tensor:
        sizes = torch.from_numpy(self.shards.sizes).to(torch.float64)
        return sizes if self.algorithm.weights == "samples" else torch.ones_like(sizes)
