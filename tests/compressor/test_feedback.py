"""Error feedback: what was sent plus what is remembered equals what was meant; idle senders keep theirs."""

from __future__ import annotations

import pytest
import torch

from fedcomp.cohort import Cohort
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.feedback import ErrorFeedback
from fedcomp.compressor.sign import Sign
from fedcomp.compressor.topk import TopK
from fedcomp.keys import Key
from fedcomp.wire import Common

DIM = 40


@pytest.mark.parametrize("codec", [TopK(0.1), Sign(), Dense()], ids=lambda codec: type(codec).__name__)
@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_nothing_is_lost(codec, decay) -> None:
    compressor = Compressor(codec, ErrorFeedback(decay))
    memory = compressor.init(5, torch.zeros(DIM))
    cohort = Cohort.of([0, 3], torch.ones(2))
    known = Common(Key(), cohort.ids, (DIM,))
    for step in range(4):
        x = torch.randn(2, DIM, generator=torch.Generator().manual_seed(step))
        before = memory.sender
        payload, memory = compressor.encode(x, memory, cohort, known, Key())
        sent = codec.decode(payload, known)
        assert torch.allclose(sent + memory.sender[[0, 3]], x + decay * before[[0, 3]], atol=1e-6)
        assert torch.equal(memory.sender[[1, 2, 4]], before[[1, 2, 4]])


def test_small_entries_get_through_in_the_end() -> None:
    compressor = Compressor(TopK(1 / DIM), ErrorFeedback())
    memory = compressor.init(1, torch.zeros(DIM))
    cohort = Cohort.of([0], torch.ones(1))
    known = Common(Key(), cohort.ids, (DIM,))
    x, received = torch.linspace(1, 2, DIM)[None], torch.zeros(DIM)
    for _ in range(400):
        payload, memory = compressor.encode(x, memory, cohort, known, Key())
        estimate, memory = compressor.estimate(payload, memory, cohort, known)
        received += estimate
    assert torch.allclose(received / 400, x[0], rtol=0.15)


def test_lossless_codec_remembers_nothing() -> None:
    compressor = Compressor(Dense(), ErrorFeedback())
    memory = compressor.init(2, torch.zeros(DIM))
    cohort = Cohort.of([0, 1], torch.ones(2))
    known = Common(Key(), cohort.ids, (DIM,))
    _, memory = compressor.encode(torch.randn(2, DIM), memory, cohort, known, Key())
    assert not memory.sender.any()


def test_decay_is_checked() -> None:
    with pytest.raises(ValueError, match=r"feedback.decay=0 must be in \(0, 1\]"):
        ErrorFeedback(0)
