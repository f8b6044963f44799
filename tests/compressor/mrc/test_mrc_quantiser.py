"""The options that coded compressors share, and what a prior of the message's own does to the candidates."""

import pytest
import torch

from fedcomp.compressor.mrc.mrc_quantiser import MRCQuantiser
from fedcomp.compressor.mrc.mrc_sign import MRCSign
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge


def test_senders_with_priors_of_their_own_choose_among_candidates_of_their_own() -> None:
    """Equal vectors make equal messages where everything is shared; only the sender's own choice is left to differ."""
    x, common = (
        torch.linspace(-1, 1, 64).expand(2, -1).contiguous(),
        SharedKnowledge(Key(("k",)), torch.arange(2), (64,)),
    )
    for prior, alike in (("half", True), ("mean", False)):
        codec = MRCQuantiser(prior=prior, levels=2, num_candidates=1, block=64)
        bits = codec.decode(codec.encode(x, common, Key(("coin",))), common)
        assert torch.equal(*bits) == alike
    assert MRCQuantiser(candidates="per_client").codec.candidates == "per_client"


def test_levels_follow_from_the_dimension_so_that_messages_are_of_the_right_length() -> None:
    """With 64 levels for 20,000 entries the decoded vector is a quarter too long, and its error larger than itself."""
    x = torch.randn(1, 20_000, generator=torch.Generator().manual_seed(0))
    known = SharedKnowledge(Key(("levels",)), torch.arange(1), (20_000,))
    codec = MRCQuantiser()
    assert codec.num_levels(20_000) == 200
    decoded = codec.decode(codec.encode(x, known, Key(("coin",))), known)
    assert float((decoded - x).square().sum() / x.square().sum()) < 0.25
    assert float((decoded * x).sum() / x.square().sum()) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("make", [MRCSign, MRCQuantiser])
def test_shared_options_reach_the_code(make: type) -> None:
    code = make(num_candidates=16, repetitions=3, block=32, candidates="per_client", bits=16).codec
    assert (code.num_candidates, code.repetitions, code.block) == (16, 3, 32)
    assert (code.candidates, code.bits) == ("per_client", 16)
