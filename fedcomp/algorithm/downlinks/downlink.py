"""How the server's model gets to the clients: the contract of downlinks, and one through any compressor.

A round has three places at which the server can send. An algorithm calls all three, in this order; a downlink
overrides one of the hooks, and what passes through the other two comes out as it went in:

    call         hook    when
    send_model   model   before the clients train: the model, to the M that take part
    send_mean    mean    after the server has averaged what came up: the mean, to all N clients, who make the server's
                         step with it themselves
    send_step    step    after the server's step: the step, to all N clients

Running statistics go along: down to the M with the model, or to all N with the step if no model is sent
(`sends_model`). A hook has nothing to do with them.

A downlink is a frozen dataclass of options. Its memory is a field of the algorithm's state, so that it is in the
checkpoints: it goes in and comes out of every call.

Shape legend: M clients of the cohort, N clients in all, D parameters, C running statistics.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.compressor import Compressor, Memory
from fedcomp.core.cohort import Cohort, server
from fedcomp.core.ranges import CheckedOptions
from fedcomp.core.validate import check_choice

State = TypeVar("State")
Mean = TypeVar("Mean")

SENDS = ("model", "step", "mean_update")
"""What `CompressedDownlink` carries: the model, the server's step, or the mean update."""


class Downlink(CheckedOptions, ABC, Generic[State, Mean]):
    """A downlink that sends nothing yet. `State` is its memory; `Mean` is what the server averages, mostly [D]."""

    prefix = "algorithm."

    @property
    @abstractmethod
    def sends_model(self) -> bool:
        """Whether participants are sent the model; if not, all N clients keep it and are sent what changes it."""

    def model(self, theta: Tensor, memory: State, cohort: Cohort, ctx: Context) -> tuple[Tensor, State]:
        """What the cohort trains from, of the server's model theta [D]: one for all [D], or one a client [M, D]."""
        return theta, memory

    def mean(self, mean: Mean, memory: State, cohort: Cohort, ctx: Context) -> tuple[Mean, State]:
        """The mean with which the server and all N clients make the step."""
        return mean, memory

    def step(self, step: Tensor, memory: State, cohort: Cohort, ctx: Context) -> tuple[Tensor, State]:
        """The step [D] that the server and all N clients add to their model."""
        return step, memory

    def send_model(
        self, theta: Tensor, stats: Tensor, memory: State, cohort: Cohort, ctx: Context
    ) -> tuple[Tensor, Tensor, State]:
        """What the cohort trains from: the model, the statistics [C]; and the memory."""
        theta, memory = self.model(theta, memory, cohort, ctx)
        return theta, ctx.send_stats(stats, cohort) if self.sends_model else stats, memory

    def send_mean(self, mean: Mean, memory: State, cohort: Cohort, ctx: Context) -> tuple[Mean, State]:
        """The mean as everybody has it who makes the step, and the memory."""
        return self.mean(mean, memory, cohort, ctx)

    def send_step(
        self, step: Tensor, stats: Tensor, memory: State, cohort: Cohort, ctx: Context
    ) -> tuple[Tensor, Tensor, State]:
        """What everybody adds to the model, the statistics [C] after the round, and the memory."""
        step, memory = self.step(step, memory, cohort, ctx)
        return step, stats if self.sends_model else ctx.send_stats(stats, ctx.everyone), memory

    def send_change(
        self, old: Tensor, new: Tensor, stats: Tensor, memory: State, cohort: Cohort, ctx: Context
    ) -> tuple[Tensor, Tensor, State]:
        """`send_step` for methods that compute a model `new`, not a step: the model [D] that everybody has.

        It is `new` itself where the model is sent in the next round: old + (new - old) would be rounded.
        """
        if self.sends_model:
            return new, stats, memory
        step, stats, memory = self.send_step(new - old, stats, memory, cohort, ctx)
        return old + step, stats, memory


@dataclass(frozen=True)
class CompressedDownlink(Downlink[Memory, Tensor]):
    """Model, mean or step through a compressor, to whose memory the server's is one row.

    Attributes:
        compressor: its codec and feedback. sends: "model", "step" or "mean_update".
    """

    compressor: Compressor
    sends: str

    @classmethod
    def of(cls, compressor: Compressor, sends: str = "auto") -> "CompressedDownlink":
        """With "auto": the model where the compressor can carry it, else the step.

        Raises ValueError: no such way, or a model through a compressor that cannot carry it.
        """
        check_choice("algorithm.sends", sends, ("auto", *SENDS))
        if sends == "model" and not compressor.carries_model:
            name = type(compressor.codec).__name__
            raise ValueError(f"algorithm.sends=model needs a dense downlink, not {name}: use auto, step or mean_update")
        if sends == "auto":
            sends = "model" if compressor.carries_model else "step"
        return cls(compressor, sends)

    def held(self, theta: Tensor, memory: Memory) -> dict[str, Tensor]:
        """{"clients": [1, D] the model that they have}, where it follows the server's theta [D]; else {}."""
        if not (self.sends_model and self.compressor.predictor.follows_senders):
            return {}
        theirs = self.compressor.predicted(memory, server(theta.device))
        return {"clients": theirs} if theirs.shape[1:] == theta.shape else {}  # else some columns go uncompressed

    @property
    def sends_model(self) -> bool:
        return self.sends == "model"

    def model(self, theta: Tensor, memory: Memory, cohort: Cohort, ctx: Context) -> tuple[Tensor, Memory]:
        if self.sends != "model":
            return theta, memory
        # What is sent with a predictor is a difference to the last message, so that idle clients need it, too.
        receivers = ctx.everyone if self.compressor.predictor.follows_senders else cohort
        return ctx.send_down("model", self.compressor, theta, memory, receivers)

    def mean(self, mean: Tensor, memory: Memory, cohort: Cohort, ctx: Context) -> tuple[Tensor, Memory]:
        if self.sends != "mean_update":
            return mean, memory
        return ctx.send_down("mean", self.compressor, mean, memory, ctx.everyone)

    def step(self, step: Tensor, memory: Memory, cohort: Cohort, ctx: Context) -> tuple[Tensor, Memory]:
        if self.sends != "step":
            return step, memory
        return ctx.send_down("step", self.compressor, step, memory, ctx.everyone)


@dataclass(frozen=True)
class DenseModel(Downlink[Any, Any]):
    """The model in float32 to those who take part; nothing is remembered. `paper_bits`: as in `Payload`."""

    sends_model = True

    paper_bits: int | None = None

    def model(self, theta: Tensor, memory: Any, cohort: Cohort, ctx: Context) -> tuple[Tensor, Any]:
        return ctx.send_dense("model", theta, cohort, self.paper_bits), memory
