"""Repeated compression: R messages of one codec, each of what the ones before it left out.

X. Huang, Y. Chen, W. Yin, K. Yuan, "Lower bounds and nearly optimal algorithms in distributed learning with
communication compression", NeurIPS 2022, FCC (fast compressed communication):

    s <- 0;  R times: c = C(x - s), s <- s + c.

If C is a delta-contraction, what is left is at most (1 - delta)^R ||x||^2. R = 1 is C itself, bit for bit.

Shape legend: M senders, D entries, R messages.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

from torch import Tensor

from fedcomp.compressor.contract import CodecWrapper
from fedcomp.core.ranges import Whole
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge, WireError


@dataclass(frozen=True)
class FastCompressedCommunication(CodecWrapper):
    """Sends `repeats` messages of `codec` as one; unbiased, contractive and near-lossless if the codec is.

    The last message is then an unbiased estimate of what is left; every message shrinks that.

    Attributes:
        codec: C. repeats: R, 1 or more. Each message has shared and sender's randomness of its own.
    """

    repeats: Annotated[int, Whole()] = 2

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """The R messages, the fields of message r called `<r>/<name>`."""
        fields: dict[str, Field] = {}
        paper: list[int | None] = []
        for turn in range(self.repeats):
            known = _known(common, turn)
            message = self.codec.encode(x, known, _turn(sender_key, turn))
            fields |= {f"{turn}/{name}": field for name, field in message.fields.items()}
            paper.append(message.paper_bits)
            if turn + 1 < self.repeats:
                x = x - self.codec.decode(message, known)
        counted = [bits for bits in paper if bits is not None]
        return Payload(fields, sum(counted) if len(counted) == self.repeats else None)

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """[M, D] the sum of all R."""
        first, *rest = [self.codec.decode(message, known) for message, known in self._messages(payload, common)]
        return sum(rest, start=first)

    def weighted_sum(self, payload: Payload, common: SharedKnowledge, weight: Tensor) -> Tensor:
        """[D] `weight @ decode`, without decoding each sender where the codec can sum them up itself."""
        each = [self.codec.weighted_sum(message, known, weight) for message, known in self._messages(payload, common)]
        return sum(each[1:], start=each[0])

    def _messages(self, payload: Payload, common: SharedKnowledge) -> Iterator[tuple[Payload, SharedKnowledge]]:
        """The R messages, each with what both ends know about it."""
        parts: list[dict[str, Field]] = [{} for _ in range(self.repeats)]
        for name, field in payload.fields.items():
            place, _, own = name.partition("/")
            if not own or not place.isdigit() or int(place) >= self.repeats:
                raise WireError(
                    f"this message holds {name}; expected {self.repeats} repeated messages: it was made by another "
                    "codec or for another vector"
                )
            parts[int(place)][own] = field
        for turn, fields in enumerate(parts):
            yield Payload(fields), _known(common, turn)


def _turn(key: Key, turn: int) -> Key:
    """The key of message `turn`; the first one's is the key itself, so that R = 1 draws what the codec alone draws."""
    return key.fold_in("repeat", turn) if turn else key


def _known(common: SharedKnowledge, turn: int) -> SharedKnowledge:
    return replace(common, key=_turn(common.key, turn))
