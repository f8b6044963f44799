"""A sender's memory: none, or the error that its messages so far made."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedcomp.compressor.contract import Codec, Feedback, decoded, encoded
from fedcomp.core.ranges import Within
from fedcomp.core.validate import OptionError
from fedcomp.random.keys import Key
from fedcomp.wire import Payload, SharedKnowledge


@dataclass(frozen=True)
class NoFeedback(Feedback):
    """Sends x as it is, without a memory."""

    def init(self, num_senders: int, like: Tensor) -> Tensor:
        return like.new_zeros(num_senders, 0)

    def encode(
        self, codec: Codec, x: Tensor, memory: Tensor, common: SharedKnowledge, sender_key: Key
    ) -> tuple[Payload, Tensor]:
        return encoded(codec, x, common, sender_key), memory


@dataclass(frozen=True)
class ErrorFeedback(Feedback):
    """Adds what earlier messages left out: sends C(y), y = x + decay * e, and keeps e <- y - C(y).

    F. Seide et al., "1-bit stochastic gradient descent", Interspeech 2014; S. P. Karimireddy, Q. Rebjock, S. Stich,
    M. Jaggi, "Error feedback fixes SignSGD", ICML 2019, algorithm 2.

    The memory stays bounded if C always shrinks what is left. A codec of fixed size (signs of a fixed scale, masked
    noise) does so only up to its size: where x is larger, the memory grows in every round. Runs record its length
    (algorithm/updates/metrics.py) and warn where it grows (simulation/divergence.py).

    Attributes:
        decay: share of the old error that is kept, in (0, 1].
    """

    decay: Annotated[float, Within("(0, 1]", "1 keeps the whole error")] = 1.0

    def check(self, codec: Codec) -> None:
        """Unbiased codecs that are not contractive make errors larger than x, and these would be added up forever."""
        if codec.unbiased and not codec.contractive:
            raise OptionError(
                f"feedback=error makes no sense for {type(codec).__name__} as configured: it is unbiased, "
                "and its error can be larger than what it sends, so that the memory would grow without bound; use "
                "feedback=none, or a biased setting of it that only shrinks"
            )

    def init(self, num_senders: int, like: Tensor) -> Tensor:
        return like.new_zeros(num_senders, like.shape[0])

    def encode(
        self, codec: Codec, x: Tensor, memory: Tensor, common: SharedKnowledge, sender_key: Key
    ) -> tuple[Payload, Tensor]:
        meant = x + self.decay * memory
        payload = encoded(codec, meant, common, sender_key)
        return payload, meant - decoded(codec, payload, common)


FEEDBACKS: dict[str, Feedback] = {"none": NoFeedback(), "error": ErrorFeedback()}
"""The short names that `compressor.feedback=<name>` takes; any other part is given by its `_target_`."""
