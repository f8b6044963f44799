"""FedBiF: weights are integers of b bits, of which clients train one in each round, and send it.

S. Li et al., "FedBiF: communication-efficient federated learning via bits freezing", IEEE TPDS 2025 (arXiv:2509.10161).
At the start of round t the server quantises every tensor of its float mean w, with R = max |w| and alpha = R / 2^(b-1):

    q = clip(floor((w + R) / alpha + U[0, 1)), 0, 2^b - 1), its value q alpha - R;  active bit p = b - 1 - (t mod b)

and sends q and R. A client freezes all bits but p: f = (q - beta 2^p) alpha - R with beta the bit p of q. It trains
virtual bits v, which begin on the side of beta, at (2 beta - 1) U(0, 10^-3 2^p): forward at f + 1{v > 0} alpha 2^p, the
gradient passed straight to v. It sends 1{v > 0}. Server: w = f + alpha 2^p (mean of the bits).

What follows, and is kept (a third party's copy of the program has it so): R never grows, as every client's weight lies
on the grid, so the first range is a hyper-parameter (`range_factor`); a largest weight that is positive comes back as
R - alpha, so R shrinks until it is negative (`levels: symmetric` has R itself as a level, and no 0); the step of a
weight is about eta alpha / (2 10^-3), whatever p (`virtual_scale`). The program tests the float mean; `test` here is
the model of b bits that clients get, and `mean` the float one. Biases, which begin at 0 and would stay, are dense.

Shape legend: M clients of the cohort, A of them at work, D parameters, d of them coded in L tensors, C statistics.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Models, Setup
from fedcomp.algorithm.updates.local_training import train_cohort
from fedcomp.client import Batch, Gradient, Hook, LocalData, LocalResult, LocalSolver, Reads
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import BIAS, EMBEDDING, NORMALISATION, ParameterSubset, ParameterTensor
from fedcomp.core.ranges import Whole, Within
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Arithmetic, Coding, Float, Shortest, Unsigned

MOST_BITS = 16


@dataclass(frozen=True)
class WeightGrid:
    """The levels of tensors: q alpha - R for q = 0 ... 2^b - 1.

    Attributes:
        bits: b. levels: asymmetric, alpha = R / 2^(b-1), -R to R - alpha; symmetric, alpha = 2 R / (2^b - 1), to R.
        sizes: of the L tensors.
    """

    bits: int
    levels: str
    sizes: tuple[int, ...]

    def step(self, ranges: Tensor) -> Tensor:
        """alpha [L] of R [L]."""
        return ranges * (2.0 ** (1 - self.bits) if self.levels == "asymmetric" else 2.0 / (2**self.bits - 1))

    def spread(self, each: Tensor) -> Tensor:
        """[d] the values [L] of tensors, repeated over the entries of each."""
        return torch.cat([one.expand(size) for one, size in zip(each, self.sizes)])

    def ranges(self, w: Tensor) -> Tensor:
        """[L] max |w| of each tensor of w [d]."""
        return torch.stack([part.abs().max() for part in w.split(self.sizes)])

    def quantise(self, w: Tensor, ranges: Tensor, draws: Tensor) -> Tensor:
        """[d] int64 q of w [d], rounded by uniform draws [d]; 0 in a tensor of zeros."""
        wide, alpha = self.spread(ranges), self.spread(self.step(ranges))
        codes = ((w + wide) / alpha.clamp(min=torch.finfo(w.dtype).tiny) + draws).floor()
        return torch.where(alpha > 0, codes, 0.0).to(torch.int64).clamp_(0, 2**self.bits - 1)

    def values(self, codes: Tensor, ranges: Tensor) -> Tensor:
        """[d] float32 of q [d]."""
        return codes * self.spread(self.step(ranges)) - self.spread(ranges)


@dataclass(frozen=True)
class FedBiFState:
    """What lives from round to round.

    Attributes:
        theta: [D] the float mean. coded: [D] the same on the grid, as it is tested. stats: [C] running statistics.
        first_ranges: [L] max |w| before the first round.
    """

    theta: Tensor
    coded: Tensor
    stats: Tensor
    first_ranges: Tensor


@dataclass(frozen=True)
class FedBiF(Algorithm):
    """One trained bit of each weight up, b bits down.

    Attributes:
        client: trains the virtual bits, and the dense parameters beside them. bits: b. levels: see `WeightGrid`.
        range_factor: R / max |w|; below 1 larger weights are clipped. virtual_scale: bound of |v| / 2^p at the start.
        coding: plain, 1 bit; flips, those that differ from the bits received, arithmetically coded where it is shorter.
    """

    client: LocalSolver
    bits: Annotated[int, Whole(most=MOST_BITS)] = 3
    levels: Literal["asymmetric", "symmetric"] = "asymmetric"
    range_factor: Annotated[float, Within("(0, inf)", "the range of levels over max |w|")] = 1.0
    virtual_scale: Annotated[float, Within("(0, inf)", "how far from 0 virtual bits begin")] = 1e-3
    virtual: Literal["own", "shared"] = "own"
    coding: Literal["plain", "flips"] = "plain"
    biases: Literal["dense", "coded"] = "dense"
    weights: str = "samples"

    normalises_weights = True
    when_slow = "few levels of a weight bound what is learnt: more algorithm.bits, or more rounds"

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> FedBiFState:
        """The first float weights. Raises ValueError: nothing to code, or (on a CPU) nothing but zeros."""
        part = self._coded(setup.tensors)
        if not part.size:
            raise ValueError("algorithm=fedbif codes weights as integers, and this model has none: choose another")
        ranges = self._grid(part).ranges(part.take(theta))
        if theta.device.type == "cpu" and not ranges.any():
            raise ValueError(
                "algorithm=fedbif codes weights between -max |w| and max |w|, which are all 0 in this model and would "
                "stay 0: choose one with random first weights"
            )
        return FedBiFState(theta, self._on_grid(theta, part, setup.key.fold_in("coded")), stats, ranges)

    def round(self, state: FedBiFState, cohort: Cohort, ctx: Context) -> tuple[FedBiFState, Metrics]:
        """One round.

        Metrics: `bif/flips` [M] share of bits that differ from those received; `bif/range` mean of R / R of the first
        round; `bif/zeros` share of weights that are 0 on the grid; `bif/noise` ||grid - mean||^2 / ||mean||^2.
        """
        part = self._coded(ctx.clients.tensors)
        grid, w = self._grid(part), part.take(state.theta)
        codes, ranges = self._quantised(w, grid, ctx.sender_key("quantiser"))
        fields = {"q": Field(codes[None], Unsigned(self.bits)), "range": Field(ranges[None], Float())}
        message = ctx.link.broadcast(Payload(fields, paper_bits=self.bits * part.size), cohort)
        codes, ranges = (rows[0] for rows in message.expect(q=part.size, range=len(part.layers)))
        rest = ctx.send_dense("normalisation", part.rest.take(state.theta), cohort, paper_bits=0)
        stats = ctx.send_stats(state.stats, cohort)

        bit = self.active_bit(ctx.round)
        held = (codes >> bit) & 1
        frozen = grid.values(codes - (held << bit), ranges)
        move = grid.spread(grid.step(ranges)) * 2**bit
        local, stats = self._train(part.put(part.rest.put(state.theta, rest), frozen), stats, held, move, cohort, ctx)
        bits = (part.take(local.value) > 0).to(torch.int64)
        flipped = bits ^ held
        received = self._send_up(bits, flipped, held, ctx)
        dense = ctx.gather_dense("normalisation", rest + part.rest.take(local.value), cohort, paper_bits=0)

        mean = torch.mv(received.t().to(torch.float32), cohort.weight / cohort.weight.sum())
        theta = part.put(part.rest.put(state.theta, dense), frozen + move * mean)
        value = frozen + move * held
        metrics = {
            "train/loss": local.loss,
            "bif/flips": flipped.to(torch.float32).mean(1),
            "bif/range": (ranges / (self.range_factor * state.first_ranges).clamp(min=1e-30)).mean(),
            "bif/zeros": (value == 0).to(torch.float32).mean(),
            "bif/noise": (value - w).square().sum() / w.square().sum().clamp(min=1e-30),
        }
        coded = self._on_grid(theta, part, ctx.sender_key("coded"))
        return FedBiFState(theta, coded, stats, state.first_ranges), metrics

    def evaluation_models(self, state: FedBiFState, key: Key) -> dict[str, Models]:
        """`test`, of b bits, as clients would get it; `mean`, of floats."""
        return {
            "test": Models(state.coded[None], state.stats[None]),
            "mean": Models(state.theta[None], state.stats[None]),
        }

    def active_bit(self, round_index: int) -> int:
        """p: the highest bit first, then downwards, again and again."""
        return self.bits - 1 - round_index % self.bits

    def _coded(self, tensors: tuple[ParameterTensor, ...]) -> ParameterSubset:
        dense = {NORMALISATION, EMBEDDING, *((BIAS,) if self.biases == "dense" else ())}
        return ParameterSubset.of(tensors, lambda tensor: tensor.kind not in dense)

    def _grid(self, part: ParameterSubset) -> WeightGrid:
        return WeightGrid(self.bits, self.levels, part.layers)

    def _quantised(self, w: Tensor, grid: WeightGrid, key: Key) -> tuple[Tensor, Tensor]:
        """q [d] and R [L] of w [d]."""
        ranges = self.range_factor * grid.ranges(w)
        row = torch.zeros(1, dtype=torch.int64, device=w.device)
        return grid.quantise(w, ranges, key.uniform(row, w.shape[0])[0]), ranges

    def _on_grid(self, theta: Tensor, part: ParameterSubset, key: Key) -> Tensor:
        """[D] the model of b bits."""
        grid = self._grid(part)
        return part.put(theta, grid.values(*self._quantised(part.take(theta), grid, key)))

    def _train(
        self, start: Tensor, stats: Tensor, held: Tensor, move: Tensor, cohort: Cohort, ctx: Context
    ) -> tuple[LocalResult, Tensor]:
        """Virtual bits, and the changes of the dense columns, [M, D] as `value`; and the mean statistics [C].

        Args:
            start: [D] frozen values and dense parameters. held: [d] the active bits. move: [d] what one is worth.
        """
        part = self._coded(ctx.clients.tensors)
        key, scale = ctx.sender_key("virtual"), self.virtual_scale * 2 ** self.active_bit(ctx.round)

        def train(data: LocalData, zero: Tensor, stats: Tensor) -> LocalResult:
            ids = data.ids if self.virtual == "own" else data.ids.new_zeros(1)
            size = key.uniform(ids, part.size).add_(2.0**-25).mul_(scale)  # above 0, so that 1{v > 0} is the bit
            virtual = ((2 * held - 1) * size).to(zero.dtype).expand(len(zero), -1)
            hook = self._hook(data, start, move, part, key)
            return self.client.run(data, part.put(zero, virtual), stats, ctx.progress, hook)

        return train_cohort(train, torch.zeros_like(start), stats, cohort, ctx)

    def _hook(self, data: LocalData, start: Tensor, move: Tensor, part: ParameterSubset, key: Key) -> Hook:
        def gradient(rows: Tensor, batch: Batch, reads: Reads) -> Gradient:
            start, move = reads.shared
            moved = part.put(rows, (part.take(rows) > 0).to(rows.dtype) * move)
            return data.gradient(moved + start, batch, reads.step)  # passed straight to the virtual bits

        return Hook(gradient, ("fedbif", part), (), (start, move), key)

    def _send_up(self, bits: Tensor, flipped: Tensor, held: Tensor, ctx: Context) -> Tensor:
        """[M, d] the bits as the server receives them."""
        flips = self.coding == "flips"
        coding: Coding = Shortest((Unsigned(1), Arithmetic())) if flips else Unsigned(1)
        sent = (flipped if flips else bits).to(torch.uint8)
        payload = Payload({"bits": Field(sent, coding)}, paper_bits=bits.shape[1])
        (received,) = ctx.link.up(payload).expect(bits=bits.shape[1])
        return received.to(torch.int64) ^ held if flips else received
