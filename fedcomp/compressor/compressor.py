"""A compressor is a codec with a sender's memory, a receiver's estimator, and what both ends predict.

Shape legend: M senders in the cohort, N clients, D entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from torch import Tensor

from fedcomp.compressor.contract import (
    ChecksDim,
    ChecksErrorFeedback,
    Codec,
    DependentSenders,
    Estimator,
    Feedback,
    HasOmega,
)
from fedcomp.compressor.estimators.estimator import ESTIMATORS, WeightedSum
from fedcomp.compressor.feedback import FEEDBACKS, ErrorFeedback, NoFeedback
from fedcomp.compressor.measured import MeasuredCodec
from fedcomp.compressor.predictors import PREDICTORS, Predictor, check_predictable
from fedcomp.core.cohort import Cohort, Receivers
from fedcomp.core.pytree import put_rows, take_rows
from fedcomp.core.validate import OptionError, options_of
from fedcomp.random.keys import Key
from fedcomp.wire import Link, Payload, SharedKnowledge

Part = TypeVar("Part")


@dataclass(frozen=True)
class Memory:
    """What both ends of a compressed link remember.

    Attributes:
        sender: [N, D] or [N, 0], the feedback's rows, one a sender.
        receiver: the estimator's memory.
    """

    sender: Tensor
    receiver: Tensor


@dataclass(frozen=True)
class PredictingMemory(Memory):
    """Of a compressor with a predictor.

    Attributes:
        prediction: the predictor's memory, which both ends know.
    """

    prediction: Tensor


@dataclass(frozen=True)
class Compressor:
    """Codec, feedback and estimator as one: what an algorithm sends its vectors through.

    Attributes:
        codec: rows to messages and back.
        feedback: the sender's memory.
        estimator: the receiver's joint decoder.
        predictor: what messages are differences to; None: nothing.
        measures_error: whether messages carry their error, for `codec/error` (`measured.py`).
        group: its config key, for errors: compressor, or downlink.
    """

    codec: Codec
    feedback: Feedback = field(default_factory=NoFeedback)
    estimator: Estimator = field(default_factory=WeightedSum)
    predictor: Predictor | None = None
    measures_error: bool = False
    group: str = field(default="compressor", compare=False)

    def __post_init__(self) -> None:
        self.estimator.check(self.codec)
        self.feedback.check(self.codec)
        if self.predictor is None:
            return
        if self.feedback != NoFeedback() or self.estimator != WeightedSum():
            raise OptionError("predictor is a memory of its own: leave feedback=none and estimator=weighted_sum")
        check_predictable(self.predictor, self.codec)

    @classmethod
    def of(
        cls,
        codec: Codec,
        feedback: Feedback | str = "none",
        estimator: Estimator | str = "weighted_sum",
        predictor: Predictor | str | None = None,
    ) -> Compressor:
        """The parts as one; all but the codec may be given by name (`FEEDBACKS`, `ESTIMATORS`, `PREDICTORS`).

        Raises:
            ValueError: no such name, or parts that do not go together.
        """
        if isinstance(feedback, str):
            feedback = _named("feedback", feedback, FEEDBACKS)
        if isinstance(estimator, str):
            estimator = _named("estimator", estimator, ESTIMATORS)
        if isinstance(predictor, str):
            predictor = _named("predictor", predictor, PREDICTORS)
        if codec.near_lossless and codec.unbiased and not isinstance(feedback, NoFeedback):
            name = type(codec).__name__
            raise OptionError(f"feedback has nothing to add: {name} leaves nothing out; take feedback=none")
        return cls(codec, feedback, estimator, predictor)

    @property
    def uses_correlation(self) -> bool:
        """Whether the estimator gains by how alike the senders' vectors are."""
        return self.estimator.uses_correlation

    def with_error_feedback(self, group: str) -> Compressor:
        """The same with an error memory, for methods that need one; feedback that is already set is kept.

        Args:
            group: the compressor's config key, for errors.

        Raises:
            ValueError: an unbiased codec whose error can be larger than what it sends.
        """
        if not isinstance(self.feedback, NoFeedback):
            return self
        if self.predictor is not None:
            raise ValueError(
                f"{group}.predictor and the algorithm's error memory are two memories: take predictor=none"
            )
        try:
            return replace(self, feedback=ErrorFeedback())
        except ValueError as error:
            name = type(self.codec).__name__
            raise ValueError(
                f"{group}: the algorithm remembers what {name} leaves out, but as configured {name} is unbiased and "
                "its error can be larger than what it sends, so that the memory would grow without bound: use a biased "
                "setting of it that only shrinks, or another compressor"
            ) from error

    def init(self, num_senders: int, like: Tensor) -> Memory:
        """Empty memories for `num_senders` senders of vectors like `like` [D]. Raises ValueError: D is refused."""
        with options_of(self.group):
            if isinstance(self.codec, ChecksDim):
                self.codec.check_dim(like.shape[0])
            if isinstance(self.codec, ChecksErrorFeedback) and not isinstance(self.feedback, NoFeedback):
                self.codec.check_error_feedback(like.shape[0])
        sender, receiver = self.feedback.init(num_senders, like), self.estimator.init(num_senders, like)
        if self.predictor is None:
            return Memory(sender, receiver)
        return PredictingMemory(sender, receiver, self.predictor.init(num_senders, like))

    def check_weights(self, dim: int, squares: float) -> None:
        """Raise ValueError if errors of vectors of `dim` entries grow without bound; `squares` as in `Estimator`."""
        with options_of(self.group):
            self.estimator.check_weights(self.codec, self.num_coded(dim), squares)

    def check_senders(self, dim: int, num_senders: int) -> None:
        """Raise ValueError if vectors of `dim` entries cannot be decoded from so many senders a round."""
        with options_of(self.group):
            self.estimator.check_senders(self.codec, self.num_coded(dim), num_senders)

    def encode(
        self, x: Tensor, memory: Memory, cohort: Cohort, common: SharedKnowledge, private_key: Key
    ) -> tuple[Payload, Memory]:
        """Messages for x [M, D] from the cohort's senders; the memory rows of all others stay as they are."""
        if self.predictor is not None:
            assert isinstance(memory, PredictingMemory)
            x = x - self.predictor.predict(memory.prediction, cohort)
        codec = MeasuredCodec(self.codec) if self.measures_error else self.codec
        payload, rows = self.feedback.encode(codec, x, take_rows(memory.sender, cohort), common, private_key)
        if not isinstance(payload, Payload):
            name, got = type(self.codec).__name__, type(payload).__name__
            raise ValueError(f"{name}.encode returned {got}, but must return a fedcomp.wire.Payload")
        return payload, replace(memory, sender=put_rows(memory.sender, cohort, rows))

    def estimate(
        self, payload: Payload, memory: Memory, cohort: Cohort, common: SharedKnowledge
    ) -> tuple[Tensor, Memory]:
        """The receiver's estimate [D] of `cohort.weight @ x`."""
        if self.predictor is not None:
            assert isinstance(memory, PredictingMemory)
            decoded = self.codec.decode(payload, common)
            estimate, prediction = self.predictor.mean(decoded, memory.prediction, cohort)
            return estimate, replace(memory, prediction=prediction)
        estimate, receiver = self.estimator.estimate(self.codec, payload, memory.receiver, cohort, common)
        return estimate, replace(memory, receiver=receiver)

    @property
    def observes(self) -> bool:
        """Whether its predictor needs the last mean, which the algorithm passes to `observe`."""
        return self.predictor is not None and not self.predictor.follows_senders

    def predicted(self, memory: Memory, cohort: Cohort) -> Tensor:
        """[M, d] or [1, d] what is expected of the coded columns of the cohort's vectors."""
        assert self.predictor is not None
        assert isinstance(memory, PredictingMemory)
        return self.predictor.predict(memory.prediction, cohort)

    def observe(self, memory: Memory, mean: Tensor) -> Memory:
        """The memory after a round whose mean [D] everybody knows; unchanged if the predictor does not use it."""
        if not self.observes:
            return memory
        assert isinstance(memory, PredictingMemory)
        return replace(memory, prediction=self.coded(mean[None])[0])

    def told(self, memory: Memory, prediction: Tensor) -> Memory:
        """The memory of senders that were sent the prediction [d] of their coded columns."""
        assert isinstance(memory, PredictingMemory)
        return replace(memory, prediction=prediction)

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """[M, D] each sender's message, decoded by itself."""
        return self.codec.decode(payload, common)

    def coded(self, x: Tensor) -> Tensor:
        """The columns of x [M, D] that the codec compresses."""
        return x

    def num_coded(self, dim: int) -> int:
        """How many of a vector's `dim` entries the codec compresses."""
        return dim

    def omega(self, layers: tuple[int, ...], num_senders: int) -> float | None:
        """The codec's bound omega on E||C(x) - x||^2 / ||x||^2; None: it is biased, or has none in closed form."""
        if not (self.codec.unbiased and isinstance(self.codec, HasOmega)):
            return None
        return self.codec.omega(layers, num_senders)

    def omega_of_mean(self, layers: tuple[int, ...], num_senders: int) -> float | None:
        """The bound omega_av on E||mean (C_i(x_i) - x_i)||^2 / mean ||x_i||^2; None as in `omega`."""
        omega = self.omega(layers, num_senders)
        if omega is None or not isinstance(self.codec, DependentSenders):
            return None if omega is None else omega / num_senders
        return self.codec.omega_of_mean(layers, num_senders)

    def sender_memory(self, memory: Memory) -> Tensor:
        """[N, D] the senders' memories as vectors of the size of what is sent, for feedback that has any."""
        return memory.sender

    def send_up(
        self, x: Tensor, memory: Memory, cohort: Cohort, link: Link, common: SharedKnowledge, private_key: Key
    ) -> tuple[Tensor, Memory]:
        """Clients send x [M, D] to the server; returns the server's estimate [D] of the weighted sum."""
        payload, memory = self.encode(x, memory, cohort, common, private_key)
        return self.estimate(link.up(payload), memory, cohort, common)

    def send_down(
        self,
        x: Tensor,
        memory: Memory,
        sender: Cohort,
        receivers: Receivers,
        link: Link,
        common: SharedKnowledge,
        private_key: Key,
    ) -> tuple[Tensor, Memory]:
        """The server broadcasts x [D] to `receivers`; returns the vector [D] that each decodes."""
        payload, memory = self.encode(x[None], memory, sender, common, private_key)
        return self.estimate(link.broadcast(payload, receivers), memory, sender, common)


def _named(option: str, name: str, known: Mapping[str, Part]) -> Part:
    if name not in known:
        raise OptionError(f"{option}={name} must be one of {', '.join(known)}, or a node with _target_")
    return known[name]
