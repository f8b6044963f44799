"""BiCompFL-GR-CFL: conventional training whose coded updates the server passes on to all.

M. Egger et al., "BiCompFL", 2025 (arXiv:2502.00206), section 5. Everybody holds the model x; client i trains to y_i and
sends its update y_i - x through a compressor whose messages every client can decode: stochastic signs by minimal random
coding (compressor=mrc_sign) or the quantiser Q_s (compressor=mrc_quantiser) in the paper, anything else here. The
server relays them, and all make the same step along their mean: x <- x + lr mean_i C(y_i - x), where signs have the
size 0.005 (`compressor.value`) and lr is 1. With error feedback a client keeps what its message left out. With `ef21`,
the memory of the paper's theorem 2 (P. Richtarik, I. Sokolov, I. Fatkhullin, "EF21", NeurIPS 2021), everybody keeps an
estimate h_i of each client's update, and messages correct it, so that they shrink as updates settle:

    c_i = C(u_i - h_i),  h_i <- h_i + c_i,  x <- x + lr mean_i h_i,    u_i = y_i - x

Corrected: the paper's broadcast counts n - 1 of n relayed messages, which only XORs of neighbours need (`relay: xor`).

Shape legend: M = N clients, D parameters, C running statistics.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.algorithm.bicompfl.bicompfl_gr import Relay
from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.algorithm.updates.local_training import train_locally, training_metrics
from fedcomp.algorithm.updates.metrics import clients_memory, lengths
from fedcomp.client import LocalSolver
from fedcomp.compressor import Compressor, Memory
from fedcomp.compressor.estimators.estimator import WeightedSum
from fedcomp.compressor.feedback import NoFeedback
from fedcomp.compressor.predictors import EF21
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from fedcomp.server import ServerOptimizer, Slots
from fedcomp.wire import SharedKnowledge


@dataclass(frozen=True)
class BiCompFLCFLState:
    """What everybody holds.

    Attributes:
        theta: [D] the model x. stats: [C] running statistics.
        base: [N, D] h_i, [N, 0] without `ef21`.
        uplink: the clients' memories. optimizer: memories of the server optimizer.
    """

    theta: Tensor
    stats: Tensor
    base: Tensor
    uplink: Memory
    optimizer: Slots


@dataclass(frozen=True)
class BiCompFLCFL(Algorithm):
    """Local training, messages relayed, a common step; the uplink carries y_i - x to everybody."""

    client: LocalSolver
    server: ServerOptimizer
    uplink: Compressor
    relay: Relay = "plain"
    weights: str = "uniform"
    ef21: bool = False

    full_participation = True
    told_weights = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ef21 and not (self.uplink.feedback == NoFeedback() and self.uplink.estimator == WeightedSum()):
            raise ValueError(
                "algorithm.ef21 is a memory of its own: leave compressor.feedback=none and "
                "compressor.estimator=weighted_sum"
            )
        _ = self._with_error_memory  # u_i - h_i accumulates errors as an error memory does: C must be able to have one

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> BiCompFLCFLState:
        """The first model, which follows from the run's seed, and empty memories.

        Raises ValueError: the codec cannot send D entries, cannot have an error memory, or `relay` needs one length.
        """
        self._check_relay(theta)
        self._with_error_memory.init(1, theta)
        base = theta.new_zeros(setup.num_clients, theta.shape[0] if self.ef21 else 0)
        uplink = self.uplink.init(setup.num_clients, theta)
        return BiCompFLCFLState(theta, stats, base, uplink, self.server.init(theta))

    def round(self, state: BiCompFLCFLState, cohort: Cohort, ctx: Context) -> tuple[BiCompFLCFLState, Metrics]:
        """One round; `memory/norm` [N] is what each message left out: of the error memory, or u_i - h_i with `ef21`."""
        stats = ctx.send_stats(state.stats, cohort)
        local, stats = train_locally(self.client, state.theta, stats, cohort, ctx)
        common, sender_key = ctx.common("update", cohort), ctx.sender_key("update")
        base = state.base
        update = local.value - EF21().predict(base, cohort) if self.ef21 else local.value
        payload, uplink = self.uplink.encode(update, state.uplink, cohort, common, sender_key)
        received = ctx.link.up(payload)
        everywhere = ctx.link.relay(received, self.relay == "xor")
        metrics = {**training_metrics(local), **clients_memory(uplink, cohort)}
        if self.ef21:
            decoded = self.uplink.decode(everywhere, common)
            self.uplink.check_finite(ctx.link, update, payload, decoded, common)
            own, base = EF21().follow(decoded, base, cohort)
            mean = cohort.weight @ own
            metrics["memory/norm"] = lengths(local.value - own)
        else:
            mean, uplink = self.uplink.estimate(everywhere, uplink, cohort, common)
            self.uplink.check_finite(ctx.link, update, payload, mean, common)
        step, optimizer = self.server.step(mean, state.optimizer, state.theta)
        return BiCompFLCFLState(state.theta + step, stats, base, uplink, optimizer), metrics

    @property
    def _with_error_memory(self) -> Compressor:
        """The uplink, with `ef21` as one with error feedback. Raises ValueError: errors would grow without bound."""
        return self.uplink.with_error_feedback("compressor") if self.ef21 else self.uplink

    def _check_relay(self, theta: Tensor) -> None:
        """Raise ValueError if messages whose lengths vary are to be relayed by XOR; encodes one message to find out."""
        if self.relay != "xor" or theta.is_meta:  # meta tensors have no values that could be encoded
            return
        codec, x = self.uplink.codec, theta.new_zeros(1, self.uplink.num_coded(theta.shape[0]))
        known = SharedKnowledge(Key(), torch.zeros(1, dtype=torch.int64, device=x.device), (x.shape[1],))
        if not isinstance(codec.encode(x, known, Key()).total_bits, int):
            raise ValueError(
                f"algorithm.relay=xor needs messages of one length, but those of {type(codec).__name__} as configured "
                "differ: use algorithm.relay=plain"
            )
