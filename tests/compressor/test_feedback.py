"""Error feedback: what was sent plus what is remembered equals what was meant; idle senders keep theirs."""

from __future__ import annotations

import pytest
import torch

from fedcomp.compressor.fast_compressed_communication import FastCompressedCommunication
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.looped import looped
from tests.parts import Compressor, Dense, ErrorFeedback, MRCQuantiser, MRCSign, Sign, TopK

DIM = 40


@looped("codec", [TopK(0.1), Sign(), Dense()])
@looped("decay", [1.0, 0.5])
def test_nothing_is_lost(codec, decay) -> None:
    compressor = Compressor(codec, ErrorFeedback(decay))
    memory = compressor.init(5, torch.zeros(DIM))
    cohort = Cohort.of([0, 3], torch.ones(2))
    known = SharedKnowledge(Key(), cohort.ids, (DIM,))
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
    known = SharedKnowledge(Key(), cohort.ids, (DIM,))
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
    known = SharedKnowledge(Key(), cohort.ids, (DIM,))
    _, memory = compressor.encode(torch.randn(2, DIM), memory, cohort, known, Key())
    assert not memory.sender.any()


MEAN_ABS, FEW, ENOUGH = MRCSign(scale="mean_abs"), MRCQuantiser(levels=8), MRCQuantiser(levels=9)
"""Of `DIM` = 40 entries; the square root of twice as many is 8.9."""


@pytest.mark.parametrize("wrap", [lambda codec: codec, FastCompressedCommunication], ids=["once", "repeated"])
def test_codecs_whose_memory_would_grow_are_refused_before_the_first_round(wrap) -> None:
    like = torch.zeros(DIM)
    with pytest.raises(ValueError, match=r"scale=mean_abs makes no sense with an error memory.*scale=fixed"):
        Compressor(wrap(MEAN_ABS), ErrorFeedback()).init(3, like)
    with pytest.raises(ValueError, match=r"levels=8 are too few for an error memory: of 40 entries.*levels=9 or more"):
        Compressor(wrap(FEW), ErrorFeedback()).init(3, like)
    for codec in (MRCSign(), ENOUGH):
        Compressor(wrap(codec), ErrorFeedback()).init(3, like)
    for codec in (MEAN_ABS, FEW):
        Compressor(wrap(codec)).init(3, like)


def test_refused_codecs_leave_out_more_than_they_were_given() -> None:
    x = torch.randn(1, 2000, generator=torch.Generator().manual_seed(0))
    known = SharedKnowledge(Key(), torch.arange(1), (2000,))
    left = {}
    for codec in (MEAN_ABS, MRCQuantiser(levels=20), MRCQuantiser(levels=64)):
        error = x - codec.decode(codec.encode(x, known, Key(("coin",))), known)
        left[codec] = float(error.square().sum() / x.square().sum())
    refused, few, enough = left.values()
    assert min(refused, few) > 1.2
    assert enough < 0.25
