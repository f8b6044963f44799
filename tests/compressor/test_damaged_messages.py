"""Messages that are cut, padded, damaged or another codec's: every decoder in CASES refuses them or stays in shape."""

from __future__ import annotations

import random

import pytest
import torch

from fedcomp.check.codec import CodecCase, common, encode, rows
from fedcomp.wire import Payload, SharedKnowledge, WireError
from fedcomp.wire.packing import layout, pack, unpack
from tests.compressor.test_conformance import CASES
from tests.looped import looped

LAYERS = (33, 4, 10)
MINE = [pytest.param(case, id=case.name) for case in CASES]


SENT: dict[tuple[str, tuple[int, ...], int], tuple[Payload, SharedKnowledge]] = {}
"""What has been encoded; decoders change no payload."""


def _sent(case: CodecCase, layers: tuple[int, ...] = LAYERS, seed: int = 0) -> tuple[Payload, SharedKnowledge]:
    key = case.name, layers, seed
    if key not in SENT:
        known = common(1, layers)
        SENT[key] = encode(case, rows(1, layers, seed), known), known
    return SENT[key]


def _received(case: CodecCase, message: bytes) -> torch.Tensor | None:
    """What the decoder makes of these bytes; None if they are refused. Any other exception is a failure."""
    payload, known = _sent(case)
    try:
        received = unpack([message], layout(payload), torch.device("cpu"))
        decoded = case.codec.decode(received, known)
    except WireError:
        return None
    assert 0 <= 8 * len(message) - int(received.bits) < 8, "a message of the wrong length was taken"
    assert decoded.shape == (1, sum(LAYERS))
    assert decoded.dtype == torch.float32
    return decoded


@pytest.mark.parametrize("case", MINE)
@looped("seed, cut, more", [(0, 1, b"\0"), (1, 2, b"\xff"), (2, 9, b"\0" * 9), (3, 70, bytes(range(5)))])
def test_cut_and_padded_messages_are_refused(case: CodecCase, seed: int, cut: int, more: bytes) -> None:
    message = pack(_sent(case, seed=seed)[0], 0)
    assert _received(case, message) is not None
    assert _received(case, message + more) is None
    assert not message or _received(case, message[:-cut]) is None


@pytest.mark.thorough
@pytest.mark.parametrize("case", MINE)
@looped("seed", range(40))
def test_flipped_bits_are_another_message_or_refused(case: CodecCase, seed: int) -> None:
    draw = random.Random(seed)
    message = bytearray(pack(_sent(case, seed=seed % 4)[0], 0))
    for place in draw.sample(range(2**16), draw.randint(1, 6)):
        message[place // 8 % len(message)] ^= 1 << place % 8
    _received(case, bytes(message))


@pytest.mark.parametrize("case", MINE)
@looped("num", [0, 1, 2, 3, 7, 20, 61, 150, 300])
def test_any_bytes_are_a_message_or_refused(case: CodecCase, num: int) -> None:
    for message in (bytes(num), b"\xff" * num, random.Random(num).randbytes(num)):
        _received(case, message)


@pytest.mark.parametrize("case", MINE)
def test_payloads_of_other_codecs_and_vectors_are_refused(case: CodecCase) -> None:
    payload, known = _sent(case)
    mine = {name: field.data.shape for name, field in payload.fields.items()}
    others = [_sent(other)[0] for other in CASES]
    others += [_sent(case, layers)[0] for layers in ((64, 64), (5, 3, 1, 1), (33, 4, 11))]
    foreign = [other for other in others if {name: field.data.shape for name, field in other.fields.items()} != mine]
    assert foreign
    for other in foreign:
        with pytest.raises(WireError, match="it was made by another codec or for another vector"):
            case.codec.decode(other, known)


def test_a_place_beyond_a_short_chunk_is_refused() -> None:
    """The last chunk of 10 entries in chunks of 7 has 3: place 3 is none of them."""
    (case,) = [one for one in CASES if one.name == "chunk_topk-float"]
    assert _received(case, pack(_sent(case)[0], 0)) is not None
    message = bytearray(pack(_sent(case)[0], 0))
    last = 8 * len(message) - 1
    while int(_sent(case)[0].bits) <= last:  # what fills the last byte
        last -= 1
    for place in range(last - 2, last + 1):  # the last place, 3 bits
        message[place // 8] |= 1 << (7 - place % 8)
    assert _received(case, bytes(message)) is None
