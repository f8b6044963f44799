"""FedDyn: each client's objective gets a linear and a proximal term, so that its minimum moves to the common one.

D. A. E. Acar, Y. Zhao, R. Matas, M. Mattina, P. Whatmough, V. Saligrama, "Federated learning based on dynamic
regularization", ICLR 2021, algorithm 1. With grad_i at client i, h = mean grad_i at the server, M of N clients a round:

    down    x
    local   y_i ~ argmin f_i(y) - <grad_i, y> + (alpha / 2) ||y - x||^2, by steps along g_i(y) - grad_i + alpha (y - x)
    up      Delta_i = C(y_i - x);  grad_i <- grad_i - alpha Delta_i       (at an exact minimum: grad f_i(y_i))
    server  h <- h - (alpha / N) sum Delta_i;  x <- x + (1/M) sum Delta_i - h / alpha

Its fixed point is y_i = x = x*, grad_i = grad f_i(x*), h = 0; it gets there with inexact minima too. x overshoots
early, and so the mean of the y_i is evaluated beside it (`mean/...`; `test/...` is x).

Compression is ours, there is no paper about it: a client writes into grad_i what the server decoded (with what it meant
to send, the limit would be wrong), and the codec must only shrink, since unbiased codecs diverge. The server has no
step of its own, and M is the size of the cohort also where clients take part by coin. `weights=samples` is what the
authors' program has for clients of unequal sizes: alpha_i = alpha / w_i, where w_i is N times the client's share of the
samples, and means without weights; its limit minimises the mean over samples. It needs full participation here, where a
client knows its share.

Shape legend: M clients of the cohort, N clients in all, D parameters, C running statistics.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Models, Setup
from fedcomp.algorithm.heterogeneity.control_variates import check_no_pull, control_metrics
from fedcomp.algorithm.models import ModelState
from fedcomp.algorithm.updates.decoded_messages import check_decodable, send_decoded
from fedcomp.algorithm.updates.local_training import train_cohort
from fedcomp.client import LocalData, LocalResult, LocalSolver
from fedcomp.client.shifted_gradient import shifted_gradient
from fedcomp.compressor import Compressor
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import put_rows, take_rows
from fedcomp.core.ranges import Within
from fedcomp.random.keys import Key


@dataclass(frozen=True)
class FedDynState(ModelState):
    """What lives from round to round.

    Attributes:
        mean: [D] the mean of the last cohort's y_i, as the server decoded them.
        control: [D] h. controls: [N, D] grad_i; those of idle clients stay as they are.
    """

    mean: Tensor
    control: Tensor
    controls: Tensor


@dataclass(frozen=True)
class FedDyn(Algorithm):
    """Dynamic regularisation.

    Attributes:
        client: finds y_i, by steps along the corrected gradient. alpha: in units of the curvature.
        uplink: C, carries y_i - x. The downlink is dense: x, 32 D bits.
    """

    client: LocalSolver
    uplink: Compressor
    alpha: Annotated[float, Within("(0, inf)", "the weight of the pull to the server's model")] = 0.1
    weights: str = "uniform"

    normalises_weights = True
    told_weights = "own"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_no_pull("FedDyn", self.client)
        check_decodable("FedDyn", self.uplink)
        if not self.uplink.codec.contractive:
            raise ValueError(
                f"FedDyn needs a compressor that only shrinks, not {type(self.uplink.codec).__name__} as configured: "
                "take topk, sign, or randk with compressor.scale=none"
            )

    @property
    def full_participation(self) -> bool:
        """A client's share of all samples is known where all take part."""
        return self.weights != "uniform"

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> FedDynState:
        """The first model; h and all grad_i are 0."""
        self.uplink.init(setup.num_clients, theta)
        controls = theta.new_zeros(setup.num_clients, theta.shape[0])
        return FedDynState(theta, stats, theta.clone(), torch.zeros_like(theta), controls)

    def round(self, state: FedDynState, cohort: Cohort, ctx: Context) -> tuple[FedDynState, Metrics]:
        """One round; metrics as of `control_metrics`, where grad_i and h are the control variates."""
        start, stats = ctx.send_model(state.theta, state.stats, cohort)
        own, alpha = take_rows(state.controls, cohort), self._alphas(cohort)

        def train(data: LocalData, theta: Tensor, stats: Tensor, own: Tensor, alpha: Tensor) -> LocalResult:
            weight = self.alpha if self.weights == "uniform" else alpha
            hook = shifted_gradient(data, -own - alpha * theta, weight)
            result = self.client.run(data, theta, stats, ctx.progress, hook)
            return replace(result, value=result.value.sub_(theta))

        local, stats = train_cohort(train, start, stats, cohort, ctx, rows=(own, alpha))
        changes = send_decoded("update", self.uplink, local.value, cohort, ctx)
        controls = put_rows(state.controls, cohort, own - alpha * changes)
        control = state.control - (self.alpha / ctx.clients.num_clients) * changes.sum(0)
        mean = state.theta + changes.mean(0)
        metrics = control_metrics(local, own, control, controls, cohort)
        return FedDynState(mean - control / self.alpha, stats, mean, control, controls), metrics

    def evaluation_models(self, state: FedDynState, key: Key) -> dict[str, Models]:
        """`test`: the server's model x; `mean`: the mean of the last cohort's y_i, which the paper reports too."""
        models = {"test": state.theta, "mean": state.mean}
        return {name: Models(theta[None], state.stats[None]) for name, theta in models.items()}

    def _alphas(self, cohort: Cohort) -> Tensor:
        """[M, 1] alpha_i of the cohort's clients."""
        if self.weights == "uniform":
            return torch.full_like(cohort.weight, self.alpha)[:, None]
        return (self.alpha / (cohort.size * cohort.weight))[:, None]
