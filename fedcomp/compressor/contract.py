"""The three parts of a compressor. Shape legend: M senders (rows), N clients, D entries of a vector."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.core.cohort import Cohort
from fedcomp.core.ranges import CheckedOptions
from fedcomp.random.keys import Key
from fedcomp.wire import Payload, SharedKnowledge


@dataclass(frozen=True)
class Memory:
    """What both ends of a compressed link remember.

    Attributes:
        sender: [N, d] or [N, 0], the feedback's rows, one a sender.
        receiver: the estimator's memory.
        shared: the predictor's memory, which both ends know; [N, 0] for none.
    """

    sender: Tensor
    receiver: Tensor
    shared: Tensor


class Codec(CheckedOptions, ABC):
    """Turns rows into messages and back; a frozen dataclass of options, without a state.

    `encode` and `decode` are the codec. What follows them has a default, which a codec that differs overrides, by a
    property or a class attribute.
    """

    @abstractmethod
    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """Messages for rows x [M, D] float32; `sender_key` is randomness that only the sender knows."""

    @abstractmethod
    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """[M, D] float32, computed from the messages and the shared knowledge alone."""

    @property
    def unbiased(self) -> bool:
        """E[decode(encode(x))] = x over the shared and the sender's randomness."""
        return False

    @property
    def contractive(self) -> bool:
        """E||decode(encode(x)) - x||^2 < ||x||^2 for every x != 0."""
        return False

    @property
    def near_lossless(self) -> bool:
        """Decodes to within float rounding of x, so a model itself can be sent; others carry only updates."""
        return False

    def check_dim(self, dim: int) -> None:
        """Raise ValueError, before the first round, if vectors of `dim` entries cannot be sent."""
        return

    def check_error_feedback(self, dim: int) -> None:
        """Raise ValueError, before the first round, if error feedback over `dim` entries would diverge."""
        return

    def weighted_sum(self, payload: Payload, common: SharedKnowledge, weight: Tensor) -> Tensor:
        """[D] float32 `weight @ decode(payload, common)`, with weight [M]; without decoding each one, if it can."""
        return weight @ decoded(self, payload, common)

    def expected_error(self, x: Tensor) -> Tensor | None:
        """[M] float64 E||decode(encode(x)) - x||^2 of each row of x [M, D]; None: it has no closed form.

        Senders' errors are independent.
        """
        return None

    def omega(self, layers: tuple[int, ...], num_senders: int) -> float | None:
        """The least omega known for which E||decode(encode(x)) - x||^2 <= omega ||x||^2 for every x, if unbiased.

        Args:
            layers: sizes of the parameter tensors in x. num_senders: n, of one round at most.
        """
        return None

    def omega_of_mean(self, layers: tuple[int, ...], num_senders: int) -> float | None:
        """omega_av with E||mean (C_i(x_i) - x_i)||^2 <= (omega_av / n) sum ||x_i||^2 for all x_i.

        omega / n where senders draw independently of each other.
        """
        omega = self.omega(layers, num_senders)
        return None if omega is None else omega / num_senders


def encoded(codec: Codec, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
    """`codec.encode(x, ...)`. Raises ValueError: it writes into x, which is the sender's, or returns no payload."""
    before, name = x._version, type(codec).__name__
    payload = codec.encode(x, common, sender_key)
    if x._version != before:
        raise ValueError(f"{name}.encode writes into its input, which its sender goes on with: work on x.clone()")
    if not isinstance(payload, Payload):
        raise ValueError(f"{name}.encode returned {type(payload).__name__}, but must return a fedcomp.wire.Payload")
    return payload


def decoded(codec: Codec, payload: Payload, common: SharedKnowledge) -> Tensor:
    """`codec.decode(payload, common)` [M, D] float32. Raises ValueError: it is something else."""
    rows, wanted = codec.decode(payload, common), (payload.num_rows, common.dim)
    if not isinstance(rows, Tensor) or rows.dtype != torch.float32 or tuple(rows.shape) != wanted:
        given = f"{rows.dtype} {tuple(rows.shape)}" if isinstance(rows, Tensor) else type(rows).__name__
        raise ValueError(
            f"{type(codec).__name__}.decode returned {given}, but must return torch.float32 {wanted}: a row for each "
            "message, of all entries"
        )
    return rows


def not_finite(group: str, decoder: str, codec: Codec, payload: Payload, result: Tensor, name: str) -> str:
    """The error message for a result with NaN or infinity of a message whose sender meant finite values.

    Args:
        group: config key of the compressor. decoder: what computed the result from the message `name`, if that is well.
    """
    wrong = {
        field: one.data[~one.data.isfinite()] for field, one in payload.fields.items() if one.data.is_floating_point()
    }
    found = next(((field, values) for field, values in wrong.items() if values.numel()), None)
    if found is None:
        did = f"{decoder} made {float(result[~result.isfinite()][0])} of the message '{name}', whose entries are finite"
    else:
        field, values = found
        did = (
            f"{type(codec).__name__}.encode put {float(values[0])} into the field {field} of the message '{name}', "
            "though what it was given is finite"
        )
    return (
        f"{group}: {did}: correct it (fedcomp-check tries a codec of your own by itself), or lower client.lr if its "
        "numbers do not reach so far"
    )


@dataclass(frozen=True)
class CodecWrapper(Codec):
    """What a codec that sends the messages of another one has of that one. `codec`: the other one."""

    codec: Codec

    @property
    def unbiased(self) -> bool:
        return self.codec.unbiased

    @property
    def contractive(self) -> bool:
        return self.codec.contractive

    @property
    def near_lossless(self) -> bool:
        return self.codec.near_lossless

    def check_dim(self, dim: int) -> None:
        self.codec.check_dim(dim)

    def check_error_feedback(self, dim: int) -> None:
        self.codec.check_error_feedback(dim)


class Feedback(CheckedOptions, ABC):
    """The sender's memory from message to message."""

    prefix = "feedback."

    def check(self, codec: Codec) -> None:
        """Raise ValueError, with the reason, if this codec cannot be used with the memory."""
        return

    @abstractmethod
    def init(self, num_senders: int, like: Tensor) -> Tensor:
        """First memory, one row a sender ([N, D], or [N, 0] for none), on the device of `like` [D]."""

    @abstractmethod
    def encode(
        self, codec: Codec, x: Tensor, memory: Tensor, common: SharedKnowledge, sender_key: Key
    ) -> tuple[Payload, Tensor]:
        """Messages for x [M, D], given and returning the memory rows [M, ...] of these senders."""


def remembered(
    feedback: Feedback, codec: Codec, x: Tensor, memory: Tensor, common: SharedKnowledge, sender_key: Key
) -> tuple[Payload, Tensor]:
    """`feedback.encode(codec, x, ...)`. Raises ValueError: it writes into x, or returns another kind of thing."""
    before, name = x._version, f"{type(feedback).__name__}.encode"
    found = feedback.encode(codec, x, memory, common, sender_key)
    if x._version != before:
        raise ValueError(f"{name} writes into its input, which its sender goes on with: work on x.clone()")
    payload, kept = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    if not isinstance(payload, Payload) or not isinstance(kept, Tensor):
        raise ValueError(f"{name} must return (payload, memory): a Payload, and a tensor with a row for each sender")
    if kept.shape != memory.shape or kept.dtype != memory.dtype:
        raise ValueError(
            f"{name} returned a memory {kept.dtype} {tuple(kept.shape)}, but must return {memory.dtype} "
            f"{tuple(memory.shape)}, a row for each sender as it was given"
        )
    return payload, kept


class Estimator(CheckedOptions, ABC):
    """How a receiver turns all messages of a round into one vector; a frozen dataclass of options.

    `init` and `estimate` are the estimator. What follows them has a default, which a class that differs overrides.
    """

    prefix = "estimator."

    @abstractmethod
    def init(self, num_senders: int, like: Tensor) -> Tensor:
        """First memory of the receiver, one row a sender or empty, on the device of `like` [D]."""

    @abstractmethod
    def estimate(
        self, codec: Codec, payload: Payload, memory: Tensor, cohort: Cohort, common: SharedKnowledge
    ) -> tuple[Tensor, Tensor]:
        """The estimate [D] of `cohort.weight @ x`, and the receiver's memory afterwards."""

    def check(self, codec: Codec) -> None:
        """Raise ValueError, with the reason, if this codec cannot be used with the estimator."""
        return

    def check_senders(self, codec: Codec, dim: int, num_senders: int) -> None:
        """Raise ValueError if it cannot decode vectors of `dim` entries from so many senders."""
        return

    @property
    def recursive(self) -> bool:
        """Whether its memory is its own last estimate, so that the clients' weights decide whether errors grow."""
        return False

    def check_weights(self, codec: Codec, dim: int, squares: float) -> None:
        """Raise ValueError if it is recursive and the mean squared error of vectors of `dim` entries grows.

        Args:
            squares: the mean over rounds of sum_i w_i^2, the squared weights of the clients that take part.
        """
        return

    def expected_error(self, codec: Codec, x: Tensor) -> Tensor | None:
        """0-d float64 E||estimate - mean of x||^2 for rows x [M, D] of equal weight; None: it has no closed form."""
        return None

    @property
    def uses_correlation(self) -> bool:
        """Whether it gains by how alike the senders' vectors are, so that a run should say how alike they were."""
        return False
