"""RoLoRA: adapters' B and A are trained in turn, B first.

S. Chen et al., "Robust federated finetuning of LLMs via alternating optimization of LoRA", NeurIPS 2025
(arXiv:2502.01755). In round t = 0, 1, 2, ...

    t even    clients train B with A frozen     B <- B + sum_k p_k (B_k - B)
    t odd     clients train A with B frozen     A <- A + sum_k p_k (A_k - A)

The product B A is linear in the half that is trained, so its mean is exact, and only that half is sent. B has to be
first: while it is 0, A has no gradient. (The paper has the alternation; the order is ours.) A client is sent the halves
that have changed since it last took part, one if that was in the last round (`downlinks/missed_parts.py`). What is
trained beside the adapters, such as a head, is trained and sent with either half. Local optimisers begin anew in every
round.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup, Weights
from fedcomp.algorithm.downlinks.missed_parts import MissedParts, PartChanges
from fedcomp.algorithm.models import ModelState
from fedcomp.algorithm.updates.fragments import Fragment
from fedcomp.algorithm.updates.local_training import train_part, training_metrics
from fedcomp.algorithm.updates.metrics import clients_memory
from fedcomp.client import LocalSolver
from fedcomp.client.muon import Muon
from fedcomp.compressor import Compressor, Memory
from fedcomp.core.cohort import Cohort
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.core.parameter_layout import ParameterTensor

HALVES = ("B", "A")
"""In their order; part 2 of the downlink is what is trained beside the adapters."""
BESIDE = 2


@dataclass(frozen=True)
class RoLoRAState(ModelState):
    """What lives from round to round.

    Attributes:
        uplink: the compressor's memories, of B and of A.
        changes: which of B, A and the rest each client misses.
    """

    uplink: tuple[Memory, ...]
    changes: PartChanges


@dataclass(frozen=True)
class RoLoRA(Algorithm):
    """FedAvg of one half of the adapters at a time, of which the uplink carries the change."""

    client: LocalSolver
    uplink: Compressor
    weights: Weights = "samples"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.client, Muon):  # reads which tensors its rows come from, as parts of models do not say
            raise ValueError(
                "client=muon orthogonalises steps of weight matrices, and algorithm=rolora trains a part of the model "
                "at a time: take client=sgd, adam or adamw"
            )

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> RoLoRAState:
        """The first model. Raises ValueError: it has no adapters, or does not train their A."""
        LoraLayout.of(setup.tensors).check_trains_a()
        parts = [_half(setup.tensors, turn) for turn in range(len(HALVES))]
        uplink = tuple(one.own(self.uplink).init(setup.num_clients, one.part.take(theta)) for one in parts)
        return RoLoRAState(theta, stats, uplink, PartChanges.init(setup.num_clients, len(HALVES) + 1))

    def round(self, state: RoLoRAState, cohort: Cohort, ctx: Context) -> tuple[RoLoRAState, Metrics]:
        """One round of the half whose turn it is; the metrics of the training, and `adapter/turn`, 0 for B, 1 for A."""
        turn, layout = ctx.round % len(HALVES), LoraLayout.of(ctx.clients.tensors)
        down, half = MissedParts((layout.b, layout.a, layout.rest)), _half(ctx.clients.tensors, turn)
        start, stats, changes = down.send_model(state.theta, state.stats, state.changes, cohort, ctx)

        local, stats = train_part(self.client, half.part, start, stats, cohort, ctx)
        mean, memory = half.send_up("update", self.uplink, local.value, state.uplink[turn], cohort, ctx)

        theta = half.part.put(state.theta, half.part.take(state.theta) + mean)
        uplink = tuple(memory if place == turn else own for place, own in enumerate(state.uplink))
        metrics = {
            **training_metrics(local),
            **clients_memory(memory, cohort),
            "adapter/turn": theta.new_full((), turn),
        }
        return RoLoRAState(theta, stats, uplink, changes.after(ctx.round, cohort, (turn, BESIDE))), metrics


def _half(tensors: Sequence[ParameterTensor], turn: int) -> Fragment:
    """B (turn 0) or A (turn 1) of all adapters, with what is trained beside them."""
    return Fragment.of(tensors, lambda tensor: tensor.lora is None or tensor.lora.role == HALVES[turn])
