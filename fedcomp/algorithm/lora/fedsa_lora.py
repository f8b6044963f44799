"""FedSA-LoRA: clients share the A of their adapters and keep B, and the head, to themselves.

P. Guo, S. Zeng, Y. Wang, H. Fan, F. Wang, L. Qu, "Selective aggregation for low-rank adaptation in federated learning",
ICLR 2025 (arXiv:2410.01463); authors' program `Pengxin-Guo/FedSA-LoRA`. In a round

    client i    gets A, joins its own B_i and head, trains all of them, keeps B_i and head, sends its change of A
    server      A <- A + sum_i p_i (A_i - A)

so 32 bits for each entry of A go either way, and every client has a model of its own: A, B_i and its head. There is no
common one. Each is judged by its client's own samples; a client that never took part has B_i = 0 and the first head,
and is the base, whatever A is. In a client's first step B_i is 0, so that A has no gradient.

Differs from the program: local optimisers begin anew in every round.

Shape legend: N clients in all, D parameters, d of them in A, C running statistics.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup, Weights
from fedcomp.algorithm.updates.fragments import Fragment
from fedcomp.algorithm.updates.local_training import train_locally, training_metrics
from fedcomp.algorithm.updates.metrics import clients_memory
from fedcomp.client import LocalSolver
from fedcomp.compressor import Compressor, Memory
from fedcomp.core.cohort import Cohort
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.core.pytree import put_rows, take_rows
from fedcomp.evaluation.personal import PersonalModels


@dataclass(frozen=True)
class FedSALoRAState:
    """What lives from round to round.

    Attributes:
        theta: [D] the server's A, and the first B and head. stats: [C] running statistics.
        own: [N, D - d] each client's B and head. columns: [D - d] int64 where they lie in a row.
        took_part: [N, 1] bool who has taken part so far, on the host.
        uplink: memory of the compressor.
    """

    theta: Tensor
    stats: Tensor
    own: Tensor
    columns: Tensor
    took_part: Tensor
    uplink: Memory


@dataclass(frozen=True)
class FedSALoRA(Algorithm):
    """FedAvg of A alone, of which the uplink carries A_i - A; B and head stay."""

    client: LocalSolver
    uplink: Compressor
    weights: Weights = "samples"

    personalised = True

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> FedSALoRAState:
        """The first model everywhere. Raises ValueError: it has no adapters, or does not train their A."""
        LoraLayout.of(setup.tensors).check_trains_a()
        shared = Fragment.of_factor(setup.tensors, "A")
        columns = shared.part.rest.take(torch.arange(len(theta), device=theta.device))
        uplink = shared.own(self.uplink).init(setup.num_clients, shared.part.take(theta))
        took_part = torch.zeros(setup.num_clients, 1, dtype=torch.bool, device="cpu")
        own = theta[columns].repeat(setup.num_clients, 1)
        return FedSALoRAState(theta, stats, own, columns, took_part, uplink)

    def round(self, state: FedSALoRAState, cohort: Cohort, ctx: Context) -> tuple[FedSALoRAState, Metrics]:
        shared = Fragment.of_factor(ctx.clients.tensors, "A")
        a = ctx.send_dense("a", shared.part.take(state.theta), cohort)
        stats = ctx.send_stats(state.stats, cohort)
        whole = state.theta.expand(cohort.size, -1)
        start = shared.part.put(shared.part.rest.put(whole, take_rows(state.own, cohort)), a)

        local, stats = train_locally(self.client, start, stats, cohort, ctx)
        change = shared.part.take(local.value)
        mean, uplink = shared.send_up("update", self.uplink, change, state.uplink, cohort, ctx)

        own = put_rows(state.own, cohort, shared.part.rest.take(start + local.value))
        took_part = state.took_part.clone()
        took_part[list(cohort.clients)] = True
        theta = shared.part.put(state.theta, shared.part.take(state.theta) + mean)
        metrics = {**training_metrics(local), **clients_memory(uplink, cohort)}
        return FedSALoRAState(theta, stats, own, state.columns, took_part, uplink), metrics

    def personal_models(self, state: FedSALoRAState) -> PersonalModels:
        """The server's A with each client's B and head."""

        def of_client(client: int) -> tuple[Tensor, Tensor]:
            return state.theta.index_copy(0, state.columns, state.own[client]), state.stats

        return PersonalModels(state.took_part[:, 0], of_client)
