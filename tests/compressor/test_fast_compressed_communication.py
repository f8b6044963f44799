"""Repeated compression: the sum of its messages, each of what was left; once is the codec itself."""

import pytest
import torch

from fedcomp.compressor.fast_compressed_communication import FastCompressedCommunication
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge, WireError
from fedcomp.wire.coding import Float
from tests.parts import Dense, RandK, Sign, TopK

M, D = 3, 47
X = torch.randn(M, D, generator=torch.Generator().manual_seed(1))
KNOWN, COIN = SharedKnowledge(Key(("test",)), torch.arange(M), (40, 7)), Key(("coin",))


def test_messages_are_of_what_was_left() -> None:
    """The paper's FCC, step by step."""
    codec = Sign()
    for repeats in (1, 2, 3, 8):
        sent = FastCompressedCommunication(codec, repeats).decode(
            FastCompressedCommunication(codec, repeats).encode(X, KNOWN, COIN), KNOWN
        )
        left, total = X, torch.zeros(M, D)
        for _ in range(repeats):
            part = codec.decode(codec.encode(left, KNOWN, COIN), KNOWN)
            left, total = left - part, total + part
        assert torch.allclose(sent, total, atol=1e-6)


def test_once_is_the_codec_itself() -> None:
    codec = RandK(0.2, seed_cost="derived")
    alone, once = codec.encode(X, KNOWN, COIN), FastCompressedCommunication(codec, 1).encode(X, KNOWN, COIN)
    assert torch.equal(codec.decode(alone, KNOWN), FastCompressedCommunication(codec, 1).decode(once, KNOWN))
    assert torch.equal(alone.bits, once.bits)
    assert alone.paper_bits == once.paper_bits


@pytest.mark.parametrize("seed", ["sent", "derived"])
def test_messages_draw_places_of_their_own(seed: str) -> None:
    """Twice a fifth of the entries: some places coincide, most do not. Seeds are the sender's or both's."""
    codec = FastCompressedCommunication(RandK(0.2, scale="none", seed_cost=seed), 2)
    decoded = codec.decode(codec.encode(X, KNOWN, COIN), KNOWN)
    assert ((decoded != 0).sum(1) > round(0.2 * D)).all()


def test_what_both_ends_declare_is_the_codecs() -> None:
    for codec in (Sign(), RandK(0.2), Dense()):
        repeated = FastCompressedCommunication(codec, 2)
        flags = repeated.unbiased, repeated.contractive, repeated.near_lossless
        assert flags == (codec.unbiased, codec.contractive, codec.near_lossless)
    assert FastCompressedCommunication(Sign(), 3).encode(X, KNOWN, COIN).paper_bits == 3 * D
    assert FastCompressedCommunication(Dense(), 3).encode(X, KNOWN, COIN).paper_bits is None


def test_errors() -> None:
    with pytest.raises(ValueError, match="repeats=1.5 must be a whole number"):
        FastCompressedCommunication(Sign(), 1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="k=50"):
        FastCompressedCommunication(TopK(k=50), 2).check_dim(D)
    with pytest.raises(WireError, match="this message holds 2/signs; expected 2 repeated messages"):
        FastCompressedCommunication(Sign(), 2).decode(
            FastCompressedCommunication(Sign(), 3).encode(X, KNOWN, COIN), KNOWN
        )
    with pytest.raises(WireError, match="this message holds values; expected 2 repeated messages"):
        FastCompressedCommunication(Sign(), 2).decode(Payload({"values": Field(X, Float())}), KNOWN)
