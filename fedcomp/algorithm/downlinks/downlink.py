"""How the server's model gets to the clients: the contract of downlinks, and one through any compressor.

A round has three places at which the server can send. A downlink overrides one of these methods, and what passes
through the other two comes out as it went in:

    model   before the clients train, to the M that take part: the model
    mean    after the server has averaged what came up, to all N clients: the mean, with which they make the server's
            step themselves
    step    after the server's step, to all N clients: the step

A downlink is a frozen dataclass of options. Its memory is a field of the algorithm's state, so that it is in the
checkpoints: it goes in and comes out of every method. `sends_model` decides where running statistics go with it: down
to the M at the start, or to all N at the end.

Shape legend: M clients of the cohort, N clients in all, D parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.algorithm.updates.dense_messages import send
from fedcomp.compressor import Compressor, Memory
from fedcomp.core.cohort import Cohort

State = TypeVar("State")
Mean = TypeVar("Mean")

SENDS = ("model", "step", "mean_update")
"""What `CompressedDownlink` carries; `update` is the server's step."""


class Downlink(ABC, Generic[State, Mean]):
    """A downlink that sends nothing yet. `State` is its memory; `Mean` is what the server averages, mostly [D]."""

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

    def step(self, step: Tensor, memory: State, ctx: Context) -> tuple[Tensor, State]:
        """The step [D] that the server and all N clients add to their model."""
        return step, memory

    def new_model(self, old: Tensor, new: Tensor, memory: State, ctx: Context) -> tuple[Tensor, State]:
        """`step` for methods that compute a model, not a step: the model [D] that everybody has after the round.

        It is `new` itself where the model is sent in the next round: old + (new - old) would be rounded.
        """
        if self.sends_model:
            return new, memory
        step, memory = self.step(new - old, memory, ctx)
        return old + step, memory


def carries_model(compressor: Compressor) -> bool:
    """Whether a model itself can be sent: almost without loss, or by messages that follow it from the first one on."""
    follows_model = compressor.predictor is not None and compressor.predictor.starts_at_model
    return compressor.codec.near_lossless or follows_model


@dataclass(frozen=True)
class CompressedDownlink(Downlink[Memory, Tensor]):
    """Model, mean or step through a compressor, to whose memory the server's is one row.

    Attributes:
        compressor: its codec and feedback. sends: "model", "step" or "mean_update".
    """

    compressor: Compressor
    sends: str

    @classmethod
    def auto(cls, compressor: Compressor) -> CompressedDownlink:
        """The model where the compressor can carry it, else the step."""
        return cls(compressor, "model" if carries_model(compressor) else "step")

    @property
    def sends_model(self) -> bool:
        return self.sends == "model"

    def model(self, theta: Tensor, memory: Memory, cohort: Cohort, ctx: Context) -> tuple[Tensor, Memory]:
        if self.sends != "model":
            return theta, memory
        # What is sent with a predictor is a difference to the last message, so that idle clients need it, too.
        receivers = cohort if self.compressor.predictor is None else ctx.everyone
        return ctx.send_down("model", self.compressor, theta, memory, receivers)

    def mean(self, mean: Tensor, memory: Memory, cohort: Cohort, ctx: Context) -> tuple[Tensor, Memory]:
        if self.sends != "mean_update":
            return mean, memory
        return ctx.send_down("mean", self.compressor, mean, memory, ctx.everyone)

    def step(self, step: Tensor, memory: Memory, ctx: Context) -> tuple[Tensor, Memory]:
        if self.sends != "step":
            return step, memory
        return ctx.send_down("step", self.compressor, step, memory, ctx.everyone)


@dataclass(frozen=True)
class DenseModel(Downlink[Any, Any]):
    """The model in float32 to those who take part; nothing is remembered.

    Attributes:
        paper_bits: as in `Payload`.
    """

    sends_model = True

    paper_bits: int | None = None

    def model(self, theta: Tensor, memory: Any, cohort: Cohort, ctx: Context) -> tuple[Tensor, Any]:
        return send("model", theta, cohort, ctx, self.paper_bits), memory
