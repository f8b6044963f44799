"""FetchSGD: clients send count sketches, and momentum and error memory of the server lie in sketches too.

D. Rothchild, A. Panda, E. Ullah, N. Ivkin, I. Stoica, V. Braverman, J. Gonzalez, R. Arora, "FetchSGD", ICML 2020
(arXiv:2007.07682), algorithm 1. With S the sketch (`compressor/projections/count_sketch.py`), g_i what client i sends
and U(e) the estimates of all entries:

    s = sum_i p_i S(g_i);   u <- rho u + s;   e <- e + eta u;   Delta = Top-k(U(e));   theta <- theta + Delta

and e is cleared of Delta: `clear=subtract`, e <- e - S(Delta), as in the paper; `clear=zero`, all cells that Delta
touches become 0, as in the authors' program, which is stable at larger steps. With `mask_momentum` the same cells of u
become 0 (the program). Clients keep nothing. g_i is the change theta_i - theta: with client.steps=1 that is the
gradient of the paper times -client.lr; more local steps are an option that the paper's guarantees do not cover. The
program multiplies Delta, not u, by eta, which is the same while eta is constant.

Delta goes to all N clients, so that everybody keeps the model. Hashes are the run's: u and e live on.

Shape legend: N clients in all, D parameters, r rows, c columns.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.algorithm.models import ModelState
from fedcomp.algorithm.updates.local_training import train_locally, training_metrics
from fedcomp.client import LocalSolver
from fedcomp.compressor.projections.count_sketch import CountSketch
from fedcomp.compressor.seed import seed_number
from fedcomp.compressor.sparsifiers.num_kept import Fraction, NumKept, check_one_given
from fedcomp.compressor.sparsifiers.sparse_indices import IndexCode
from fedcomp.compressor.sparsifiers.topk import TopK, stable_topk
from fedcomp.core.cohort import Cohort
from fedcomp.core.ranges import Within
from fedcomp.core.validate import options_of
from fedcomp.wire import SharedKnowledge


@dataclass(frozen=True)
class FetchSGDState(ModelState):
    """What lives from round to round.

    Attributes:
        momentum: [r c] u. error: [r c] e.
        seed: [1] int64 of the hashes.
    """

    momentum: Tensor
    error: Tensor
    seed: Tensor


@dataclass(frozen=True)
class FetchSGD(Algorithm):
    """Sketched changes up, the k largest entries of the server's sketch down.

    Attributes:
        rows, columns, fraction: r, c and r c / D of the sketch, see `CountSketch`. share: k over D. lr: eta.
    """

    client: LocalSolver
    rows: int = 5
    columns: int | None = None
    fraction: float = 0.1
    k: NumKept = None
    share: Fraction = 0.03
    lr: Annotated[float, Within("(0, inf)", "the factor eta of the momentum")] = 1.0
    rho: Annotated[float, Within("[0, 1)")] = 0.9
    clear: Literal["zero", "subtract"] = "zero"
    mask_momentum: bool = True
    positions: IndexCode = "auto"
    weights: str = "samples"

    when_slow = (
        "the server steps along few entries of a sketch: more rounds, a larger algorithm.share or algorithm.fraction"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        with options_of("algorithm"):
            check_one_given("share", self.share, {"k": self.k})
            _ = self.codec  # its options are checked as it is made
        if self.client.momentum and self.rho:
            raise ValueError(
                f"client.momentum={self.client.momentum} and algorithm.rho={self.rho} are two momenta: FetchSGD's is "
                "the server's; set one of them to 0"
            )

    @property
    def codec(self) -> CountSketch:
        """The sketch."""
        return CountSketch(self.rows, self.columns, self.fraction)

    @property
    def largest(self) -> TopK:
        """What the step is sent with."""
        return TopK(None if self.k is not None else self.share, self.positions, k=self.k)

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> FetchSGDState:
        """Empty sketches. Raises ValueError: k is more than the parameters."""
        with options_of("algorithm"):
            self.largest.check_dim(theta.shape[0])
            self.codec.check_dim(theta.shape[0])
        cells = theta.new_zeros(self.rows * self.codec.num_columns(theta.shape[0]))
        zero = torch.zeros(1, dtype=torch.int64, device=theta.device)
        seed = seed_number(setup.key.fold_in("sketch").bits(zero, 2))
        return FetchSGDState(theta, stats, cells, cells.clone(), seed)

    def round(self, state: FetchSGDState, cohort: Cohort, ctx: Context) -> tuple[FetchSGDState, Metrics]:
        """One round. `sketch/error` is ||e||, the norm of the error memory, by one row of its sketch."""
        local, stats = train_locally(self.client, state.theta, state.stats, cohort, ctx)
        common = replace(ctx.common("sketch", cohort), seed=state.seed)
        payload = ctx.link.up(self.codec.encode(local.value, common, ctx.sender_key("sketch")))
        (cells,) = payload.expect(cells=state.error.shape[0])

        momentum = self.rho * state.momentum + cohort.weight @ cells
        error = state.error + self.lr * momentum
        step = self._send_step(self.codec.estimates(error[None], common), ctx)
        positions = stable_topk(step.abs()[None], self.largest.num_sent(step.shape[0]))[0]
        touched = self.codec.touched(positions, common)
        if self.clear == "zero":
            error = error.masked_fill(touched, 0.0)
        else:
            error = error - self.codec.sketch(step[None], common)[0]
        if self.mask_momentum:
            momentum = momentum.masked_fill(touched, 0.0)
        stats = ctx.send_stats(stats, ctx.everyone)
        new = FetchSGDState(state.theta + step, stats, momentum, error, state.seed)
        return new, {**training_metrics(local), "sketch/error": error.view(self.rows, -1)[0].norm()}

    def _send_step(self, estimates: Tensor, ctx: Context) -> Tensor:
        """[D] the k largest estimates, as all clients receive them."""
        common: SharedKnowledge = ctx.common("step", ctx.server(estimates))
        payload = self.largest.encode(estimates, common, ctx.sender_key("step"))
        return self.largest.decode(ctx.link.broadcast(payload, ctx.everyone), common)[0]
