"""Posteriors of updates, stochastic signs and the last bit of Q_s, and the compressors that code them."""

import math

import pytest
import torch

from fedcomp.compressor.mrc import Blocks
from fedcomp.compressor.mrc.diagnostics import kl_divergence
from fedcomp.compressor.mrc.mrc_quantiser import Quantised
from fedcomp.compressor.mrc.mrc_sign import even_prior, sign_posterior, signs
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Ledger, Payload, SharedKnowledge, WireError, WireLink
from tests.looped import looped
from tests.parts import MRC, MRCQuantiser, MRCSign

G = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0)) * torch.tensor([[1e-4], [1.0], [50.0]])
BLOCKS = Blocks.fixed(1000, 256)


def test_rules_for_the_scale() -> None:
    assert torch.allclose(sign_posterior(G, 0.5, BLOCKS), torch.sigmoid(2 * G))
    by_mean = sign_posterior(G, "mean_abs", BLOCKS)
    assert torch.allclose(by_mean, torch.sigmoid(G / G.abs().mean(1, keepdim=True)))
    scale = torch.cat([part.abs().amax(1, keepdim=True).expand_as(part) for part in G.split(256, 1)], 1)
    assert torch.allclose(sign_posterior(G, "block_max", BLOCKS), torch.sigmoid(20 * G / scale))


def test_divergence_of_a_block_by_each_rule() -> None:
    half = even_prior(1000, 16)
    nats = {
        rule: BLOCKS.sums(kl_divergence(sign_posterior(G, rule, BLOCKS), half, 16, 2.0**-11))[:, :3].mean(1)
        for rule in ("mean_abs", "block_max", "capacity")
    }
    assert ((nats["mean_abs"] > 22) & (nats["mean_abs"] < 36)).all()  # 25 to 30 nats of real updates
    assert ((nats["block_max"] > 100) & (nats["block_max"] < 256 * math.log(2))).all()
    assert ((nats["capacity"] - math.log(256)).abs() < 0.4).all()


def test_zero_updates_have_no_sign() -> None:
    for rule in ("mean_abs", "block_max", "capacity", 0.1):
        assert sign_posterior(torch.zeros(2, 1000), rule, BLOCKS).eq(0.5).all()


def test_signs_are_means_of_plus_and_minus_one() -> None:
    assert signs(torch.tensor([0, 1, 2, 4]), 4).tolist() == [-1.0, -0.5, 0.0, 1.0]


@looped("levels", [1, 4, 64, 1000])
def test_quantiser_leaves_one_bit_that_decides_between_neighbours(levels) -> None:
    parts, q = Quantised.of(G, levels)
    assert int(parts.tau.max()) <= levels - 1
    assert ((q >= 0) & (q <= 1)).all()
    assert torch.allclose(parts.values(q), G, atol=1e-5 * float(G.abs().max()))  # the mean of the bit is the update
    low, high = parts.values(torch.zeros_like(q)).abs(), parts.values(torch.ones_like(q)).abs()
    assert ((low <= G.abs() + 1e-5) & (G.abs() <= high * (1 + 1e-5) + 1e-7)).all()
    assert torch.allclose(high - low, (parts.norm / levels).expand_as(low), rtol=1e-4)


def test_quantiser_s_side_information_is_charged_and_travels_with_the_bits() -> None:
    levels, known = 64, SharedKnowledge(Key(("q",)), torch.arange(3), (1000,), even_prior(1000, 8))
    parts, q = Quantised.of(G, levels)
    codec = MRC()
    payload = Payload({**parts.fields, **codec.encode(q, known, Key(("coin",))).fields})
    length = torch.tensor([0, 1, 3, 3, 6, 6, 6, 6, *[7] * 8])  # omega codes of 1, ..., 15
    expected = 32 + 1000 + length[(parts.tau + 1).long()].sum(1) + 8 * 4
    assert payload.bits.tolist() == expected.tolist()
    received = WireLink(Ledger()).up(payload)
    bits = codec.counts(Payload({"indices": received.fields["indices"]}), known)
    mine = codec.counts(Payload({"indices": payload.fields["indices"]}), known)
    assert torch.equal(Quantised.received(received, levels, 1000).values(bits), parts.values(mine))
    with pytest.raises(WireError, match="it was made by another codec"):
        Quantised.received(Payload({"norm": Field(parts.norm, payload.fields["norm"].coding)}), levels, 1000)


U = torch.randn(1, 20_000, generator=torch.Generator().manual_seed(0))
KNOWN = SharedKnowledge(Key(("signs",)), torch.arange(1), (5000, 15_000))


def test_decoded_signs_have_the_value_and_lean_to_the_update() -> None:
    agreement = []
    for num_candidates in (2, 16, 256):
        codec = MRCSign(num_candidates=num_candidates, value=0.25)
        payload = codec.encode(U, KNOWN, Key(("coin",)))
        decoded = codec.decode(payload, KNOWN)
        assert decoded.unique().tolist() == [-0.25, 0.25]
        assert payload.bits.tolist() == [79 * (num_candidates - 1).bit_length()]
        agreement.append(float((decoded * U.sign()).mean() / 0.25))
    # Standard error 0.007. More candidates follow the update better; all of them only in part.
    assert 0.0 < agreement[0] < agreement[1] - 0.02 < agreement[2] - 0.04
    assert agreement[2] < float((2 * torch.sigmoid(U.abs() / U.abs().mean()) - 1).mean())


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
