"""A compressor is a codec with a sender's memory, a receiver's estimator, and what both ends predict.

Shape legend: M senders in the cohort, N clients, D entries, d of them compressed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec, Estimator, Feedback, Memory, decoded, not_finite, remembered
from fedcomp.compressor.estimators.estimator import ESTIMATORS, WeightedSum
from fedcomp.compressor.feedback import FEEDBACKS, ErrorFeedback, NoFeedback
from fedcomp.compressor.measured import MeasuredCodec
from fedcomp.compressor.predictors import PREDICTORS, NoPrediction, Predictor
from fedcomp.core.cohort import Cohort, Receivers
from fedcomp.core.parameter_layout import ParameterSubset, ParameterTensor, is_normalisation
from fedcomp.core.pytree import put_rows, take_rows
from fedcomp.core.validate import OptionError, options_of
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Link, Payload, SharedKnowledge
from fedcomp.wire.coding import Float

Part = TypeVar("Part")


@dataclass(frozen=True)
class Compressor:
    """Codec, feedback and estimator as one: what an algorithm sends its vectors through.

    Attributes:
        codec: rows to messages and back.
        feedback: the sender's memory.
        estimator: the receiver's joint decoder.
        predictor: what messages are differences to.
        measures_error: whether messages carry their error, for `codec/error` (`measured.py`).
        part: the columns that the codec compresses, of which memories are; the others go as floats in the same message,
            and papers leave these out of their counts. None: all columns.
        group: its config key, for errors: compressor, or downlink.
    """

    codec: Codec
    feedback: Feedback = field(default_factory=NoFeedback)
    estimator: Estimator = field(default_factory=WeightedSum)
    predictor: Predictor = field(default_factory=NoPrediction)
    measures_error: bool = False
    part: ParameterSubset | None = None
    group: str = field(default="compressor", compare=False)

    def __post_init__(self) -> None:
        self.estimator.check(self.codec)
        self.feedback.check(self.codec)
        self.predictor.check(self.codec, self.feedback, self.estimator)

    @classmethod
    def of(
        cls,
        codec: Codec,
        feedback: Feedback | str = "none",
        estimator: Estimator | str = "weighted_sum",
        predictor: Predictor | str = "none",
    ) -> "Compressor":
        """The parts as one; all but the codec may be given by name (`FEEDBACKS`, `ESTIMATORS`, `PREDICTORS`).

        Raises ValueError: no such name, or parts that do not go together.
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

    def for_tensors(self, tensors: tuple[ParameterTensor, ...]) -> "Compressor":
        """The same for vectors of these tensors, whose normalisation layers it sends uncompressed, as floats.

        Their scales and shifts are few and large: FedMRN (its section 5.1) and the programs that it compares with send
        them uncompressed. It is the compressor itself where there are none of these, or no others, or the codec loses
        nothing.
        """
        part = ParameterSubset.of(tensors, lambda tensor: not is_normalisation(tensor))
        if self.codec.near_lossless or not part.size or not part.rest.size:
            return replace(self, part=None)
        return replace(self, part=part)

    @property
    def uses_correlation(self) -> bool:
        """Whether the estimator gains by how alike the senders' vectors are."""
        return self.estimator.uses_correlation

    def with_error_feedback(self, group: str) -> "Compressor":
        """The same with an error memory, for methods that need one; feedback that is already set is kept.

        Args:
            group: the compressor's config key, for errors.

        Raises:
            ValueError: an unbiased codec whose error can be larger than what it sends.
        """
        if not isinstance(self.feedback, NoFeedback):
            return self
        if self.predicts:
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
        like = self.coded(like)
        with options_of(self.group):
            self.codec.check_dim(like.shape[0])
            if not isinstance(self.feedback, NoFeedback):
                self.codec.check_error_feedback(like.shape[0])
        return Memory(*(part.init(num_senders, like) for part in (self.feedback, self.estimator, self.predictor)))

    def check_weights(self, dim: int, squares: float) -> None:
        """Raise ValueError if errors of vectors of `dim` entries grow without bound; `squares` as in `Estimator`."""
        with options_of(self.group):
            self.estimator.check_weights(self.codec, self.num_coded(dim), squares)

    def check_senders(self, dim: int, num_senders: int) -> None:
        """Raise ValueError if vectors of `dim` entries cannot be decoded from so many senders a round."""
        with options_of(self.group):
            self.estimator.check_senders(self.codec, self.num_coded(dim), num_senders)

    def encode(
        self, x: Tensor, memory: Memory, cohort: Cohort, common: SharedKnowledge, sender_key: Key
    ) -> tuple[Payload, Memory]:
        """Messages for x [M, D] from the cohort's senders; the memory rows of all others stay as they are."""
        self._check_rows(x, cohort, common)
        inner = self.coded(x)
        if self.predicts:
            inner = inner - self.predicted(memory, cohort)
        rows = take_rows(memory.sender, cohort)
        codec = MeasuredCodec(self.codec) if self.measures_error else self.codec
        payload, kept = remembered(self.feedback, codec, inner, rows, self._known(common), sender_key)
        if self.part is not None:
            assert "uncompressed" not in payload.fields, "a codec has a field called uncompressed"
            rest = Field(self.part.rest.take(x).contiguous(), Float(), on_paper=False)
            payload = replace(payload, fields={**payload.fields, "uncompressed": rest})
        return payload, replace(memory, sender=put_rows(memory.sender, cohort, kept))

    def estimate(
        self, payload: Payload, memory: Memory, cohort: Cohort, common: SharedKnowledge
    ) -> tuple[Tensor, Memory]:
        """The receiver's estimate [D] of `cohort.weight @ x`."""
        (coded, rest), known = self._opened(payload), self._known(common)
        receiver, shared = memory.receiver, memory.shared
        if self.predicts:
            estimate, shared = self.predictor.mean(decoded(self.codec, coded, known), shared, cohort)
        else:
            estimate, receiver = self.estimator.estimate(self.codec, coded, receiver, cohort, known)
        others = None if rest is None else cohort.weight @ rest
        return self._whole(estimate, others), Memory(memory.sender, receiver, shared)

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """[M, D] each sender's message, decoded by itself."""
        coded, rest = self._opened(payload)
        return self._whole(decoded(self.codec, coded, self._known(common)), rest)

    def check_finite(self, link: Link, x: Tensor, payload: Payload, result: Tensor, common: SharedKnowledge) -> None:
        """Raise ValueError, in the first round, if a result decoded of finite rows x [M, D] is not finite.

        It names the message and the part that made it; later rounds read nothing from the device.
        """
        if not link.checks or not link.both_ends or bool(result.isfinite().all()) or not bool(x.isfinite().all()):
            return
        plain = self.predicts or isinstance(self.estimator, WeightedSum)
        decoder = f"{type(self.codec).__name__}.decode" if plain else f"{type(self.estimator).__name__}.estimate"
        name = str(common.key.path[-1])
        raise ValueError(not_finite(self.group, decoder, self.codec, self._opened(payload)[0], result, name))

    @property
    def predicts(self) -> bool:
        """Whether messages are differences to what is predicted."""
        return not isinstance(self.predictor, NoPrediction)

    @property
    def carries_model(self) -> bool:
        """Whether a model can be sent: almost without loss, or by messages that follow it from the first one on."""
        return self.codec.near_lossless or self.predictor.starts_at_model

    def predicted(self, memory: Memory, cohort: Cohort) -> Tensor:
        """[M, d] or [1, d] what is expected of the coded columns of the cohort's vectors."""
        return self.predictor.predict(memory.shared, cohort)

    def observe(self, memory: Memory, mean: Tensor) -> Memory:
        """The memory after a round whose mean [D] everybody knows; unchanged if the predictor does not use it."""
        return self.told(memory, self.coded(mean)) if self.predictor.observes else memory

    def told(self, memory: Memory, prediction: Tensor) -> Memory:
        """The memory of senders that were sent the prediction [d] of their coded columns."""
        return replace(memory, shared=prediction)

    def coded(self, x: Tensor) -> Tensor:
        """The columns of x [..., D] that the codec compresses."""
        return x if self.part is None else self.part.take(x)

    def num_coded(self, dim: int) -> int:
        """How many of a vector's `dim` entries the codec compresses."""
        return dim if self.part is None else self.part.size

    def omega(self, layers: tuple[int, ...], num_senders: int) -> float | None:
        """The codec's bound omega on E||C(x) - x||^2 / ||x||^2; None: it is biased, or has none in closed form."""
        return self.codec.omega(self._coded_layers(layers), num_senders) if self.codec.unbiased else None

    def omega_of_mean(self, layers: tuple[int, ...], num_senders: int) -> float | None:
        """The bound omega_av on E||mean (C_i(x_i) - x_i)||^2 / mean ||x_i||^2; None as in `omega`."""
        return self.codec.omega_of_mean(self._coded_layers(layers), num_senders) if self.codec.unbiased else None

    def sender_memory(self, memory: Memory) -> Tensor:
        """[N, D] the senders' memories as vectors of the size of what is sent, for feedback that has any."""
        rows = memory.sender
        return rows if self.part is None else self._whole(rows, rows.new_zeros(len(rows), self.part.rest.size))

    def send_up(
        self, x: Tensor, memory: Memory, cohort: Cohort, link: Link, common: SharedKnowledge, sender_key: Key
    ) -> tuple[Tensor, Memory]:
        """Clients send x [M, D] to the server; returns the server's estimate [D] of the weighted sum."""
        payload, memory = self.encode(x, memory, cohort, common, sender_key)
        estimate, memory = self.estimate(link.up(payload), memory, cohort, common)
        self.check_finite(link, x, payload, estimate, common)
        return estimate, memory

    def send_down(
        self,
        x: Tensor,
        memory: Memory,
        sender: Cohort,
        receivers: Receivers,
        link: Link,
        common: SharedKnowledge,
        sender_key: Key,
    ) -> tuple[Tensor, Memory]:
        """The server broadcasts x [D] to `receivers`; returns the vector [D] that each decodes."""
        payload, memory = self.encode(x[None], memory, sender, common, sender_key)
        estimate, memory = self.estimate(link.broadcast(payload, receivers), memory, sender, common)
        self.check_finite(link, x, payload, estimate, common)
        return estimate, memory

    def _coded_layers(self, layers: tuple[int, ...]) -> tuple[int, ...]:
        return layers if self.part is None else self.part.layers

    def _check_rows(self, x: Tensor, cohort: Cohort, common: SharedKnowledge) -> None:
        """Raise ValueError unless x is [M, D] float32, a row for each sender of the message."""
        wanted = cohort.size, common.dim
        if tuple(x.shape) != wanted or x.dtype != torch.float32:
            raise ValueError(
                f"{self.group}: what is sent is {x.dtype} {tuple(x.shape)}, but must be torch.float32 {wanted}: a row "
                "for each sender, of all entries that `common.layers` says; whole tensors of a model are sent by a "
                "`Fragment` (fedcomp/algorithm/updates/fragments.py)"
            )

    def _known(self, common: SharedKnowledge) -> SharedKnowledge:
        """What both ends know of the coded columns."""
        if self.part is None:
            return common
        side = common.side_information
        side = None if side is None else self.part.take(side)
        return replace(common, layers=self.part.layers, side_information=side)

    def _opened(self, payload: Payload) -> tuple[Payload, Tensor | None]:
        """(the codec's message alone, the other columns [M, D - d]; None: there are no others)."""
        if self.part is None:
            return payload, None
        fields = dict(payload.fields)
        others = {name: fields.pop(name) for name in ("uncompressed",) if name in fields}
        (rest,) = Payload(others).expect(uncompressed=self.part.rest.size)
        return replace(payload, fields=fields), rest

    def _whole(self, coded: Tensor, rest: Tensor | None) -> Tensor:
        """[..., D] from the coded columns [..., d] and the others."""
        if self.part is None or rest is None:
            return coded
        whole = coded.new_empty(*coded.shape[:-1], self.part.dim)
        self.part.rest.put_(whole, rest)
        return self.part.put_(whole, coded)


def _named(option: str, name: str, known: Mapping[str, Part]) -> Part:
    if name not in known:
        raise OptionError(f"{option}={name} must be one of {', '.join(known)}, or a node with _target_")
    return known[name]
