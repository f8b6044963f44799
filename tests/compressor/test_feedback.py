"""Error feedback: what was sent plus what is remembered equals what was meant; idle senders keep theirs."""

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
