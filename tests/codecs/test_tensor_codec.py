"""Codecs outside of a simulation: every compressor's bytes, its memory, what is refused."""

import math

import pytest
import torch

import fedcomp.codecs as fc
from fedcomp.core.folders import CONF
from fedcomp.wire.coding.contract import WireError
from tests.docs.pages import block

NAMES = sorted(path.stem for path in (CONF / "compressor").glob("*.yaml"))
X = torch.randn(13, 40, generator=torch.Generator().manual_seed(0))


def _close(name: str, **options: object) -> float:
    """||C(x) - x||^2 / ||x||^2 of one message, read by a receiver that has only its bytes."""
    message = fc.codec(name, sender=2, num_senders=3, **options).encode(X)
    assert len(message.data) == -(-message.bits // 8)
    received = fc.codec(name, num_senders=3, **options).decode(message.data, X.shape, step=0, sender=2)
    assert received.shape == X.shape
    return float((received - X).square().sum() / X.square().sum())


def test_every_compressor_passes_bytes_alone() -> None:
    for name in NAMES:
        assert math.isfinite(_close(name)), name
    assert _close("dense") == 0
    assert _close("eden", bits=4, scale="min_mse") < 0.011


def test_feedback_goes_on_from_its_state() -> None:
    whole = fc.codec("topk", fraction=0.05, feedback="error")
    first = whole.encode(X)
    again = fc.codec("topk", fraction=0.05, feedback="error")
    again.load_state_dict(whole.state_dict())
    assert whole.encode(X) == again.encode(X)
    assert whole.encode(X) != first  # the error of the messages before is in it
    fresh = fc.codec("topk", fraction=0.05, feedback="error")
    assert fresh.encode(X) == first


def test_the_mean_of_many_is_decoded_jointly() -> None:
    senders = [fc.codec("randk_spatial", fraction=0.2, sender=number, num_senders=4) for number in range(4)]
    messages = {sender.sender: sender.encode(X).data for sender in senders}
    jointly = fc.codec("randk_spatial", fraction=0.2, num_senders=4).mean(messages, X.shape, step=0)
    alone = fc.codec("randk", fraction=0.2, num_senders=4).mean(messages, X.shape, step=0)
    assert float((jointly - X).square().sum()) < 0.8 * float((alone - X).square().sum())  # all vectors are alike
    weights = {0: 1.0, 1: 0.0, 2: 0.0, 3: 0.0}
    one = fc.codec("randk", fraction=0.2, num_senders=4).mean(messages, X.shape, step=0, weights=weights)
    first = fc.codec("randk", fraction=0.2, num_senders=4).decode(messages[0], X.shape, step=0, sender=0)
    assert torch.equal(one, first)


def test_what_is_wrong_is_refused_in_a_line() -> None:
    data = fc.codec("topk", fraction=0.1).encode(X).data
    receiver = fc.codec("topk", fraction=0.1)
    for wrong in (data[:-2], data + b"\0\0", b""):
        with pytest.raises(WireError):
            receiver.decode(wrong, X.shape, step=0, sender=0)
    with pytest.raises(ValueError, match="no codec 'topkk'; there are chunk_topk"):
        fc.codec("topkk")
    with pytest.raises(ValueError, match=r"no option 'compressor\.share'"):
        fc.codec("topk", share=0.1)
    with pytest.raises(ValueError, match="take predictor=none"):
        fc.codec("topk", predictor="ef21")
    with pytest.raises(ValueError, match="fraction"):
        fc.codec("topk", fraction=0)


def test_lengths_that_the_layout_decides() -> None:
    assert fc.codec("sign").length((20, 3)) == -(-(23 + 64) // 8)
    assert fc.codec("qsgd").length((20, 3)) is None


def test_the_example_of_the_page(capsys) -> None:
    exec(block("docs/codecs.md", "python", "sender.encode"), {})
    assert capsys.readouterr().out == "398 50\n"
