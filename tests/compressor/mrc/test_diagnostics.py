"""Diagnostics against their definitions."""

import math

import pytest
import torch

from fedcomp.compressor.mrc import MRC, Blocks
from fedcomp.compressor.mrc.diagnostics import kl_divergence, polarisation, share_above
from fedcomp.compressor.mrc.mrc_sign import even_prior
from fedcomp.compressor.mrc.thresholds import clamped, from_counts, probability, quantised
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.compressor.mrc.block_samples import divergence
from tests.looped import looped


def test_divergence_of_each_entry_and_block() -> None:
    generator = torch.Generator().manual_seed(0)
    q, p = torch.rand(2, 500, generator=generator), torch.rand(1, 500, generator=generator)
    thresholds = quantised(p, 16, 0.01)
    kl = kl_divergence(q, thresholds, 16)
    exact = divergence(q.clamp(0.01, 0.99).double(), thresholds.double() / 2**16)
    assert torch.allclose(kl.double(), exact, rtol=1e-4, atol=1e-6)
    assert not kl_divergence(probability(thresholds, 16), thresholds, 16).gt(1e-6).any()
    blocks = Blocks.of([0, 1, 100, 500], 500)
    sums = torch.stack([part.sum(1, dtype=torch.float64) for part in kl.split([1, 99, 400], 1)], 1)
    assert torch.allclose(blocks.sums(kl), sums)
    assert blocks.part(1, 3).sums(kl[:, 1:]).shape == (2, 2)


def test_share_of_blocks_above_capacity() -> None:
    assert share_above(torch.tensor([[1.0, 5.5, 5.6, 9.0], [0.0, 0.0, 0.0, 6.0]]), 256).tolist() == [0.5, 0.25]


@looped("nats, expected", [(0.32, 138), (1.27, 37), (7.76, 4.3), (38.9, 1.7)])
def test_effective_sample_size_is_how_seldom_two_senders_agree(nats, expected) -> None:
    """Blocks of 256 entries, q = 1/2 +- delta; expected: of other q of this divergence, so within a third."""
    delta = math.sqrt(nats / 256 / 2) * (1 - nats / 256 / 6)
    q = 0.5 + delta * torch.randn(1, 256 * 30, generator=torch.Generator().manual_seed(1)).sign()
    known = SharedKnowledge(Key(("ess",)), torch.arange(400), (256 * 30,), even_prior(256 * 30, 8))
    size = float(MRC().effective_sample_size(q, known))
    assert size == pytest.approx(expected, rel=1 / 3)
    chosen = MRC().encode(q.expand(400, -1), known, Key(("coin",))).fields["indices"].data
    agree = (chosen[:200] == chosen[200:]).double().mean(1)  # senders in pairs, over the 30 blocks
    assert float(agree.mean()) == pytest.approx(1 / size, abs=4 * float(agree.std()) / 200**0.5)


def test_without_divergence_every_candidate_counts() -> None:
    known = SharedKnowledge(Key(("ess",)), torch.arange(2), (1000,), even_prior(1000, 8))
    assert MRC().effective_sample_size(torch.full((2, 1000), 0.5), known).tolist() == [256.0, 256.0]


def test_polarisation() -> None:
    assert polarisation(torch.tensor([0.5, 0.5])).item() == 0.0
    assert polarisation(torch.tensor([0.0, 1.0])).item() == 1.0
    assert polarisation(torch.tensor([[0.5, 1.0], [0.0, 0.0]])).tolist() == [0.5, 1.0]


def test_thresholds_of_counts_are_those_of_their_shares() -> None:
    counts = torch.tensor([[0, 1, 5, 9, 10]], dtype=torch.uint8)
    assert from_counts(counts, 10, 8, 0.01).tolist() == [[3, 26, 128, 230, 253]]
    assert from_counts(counts.int(), 10, 8, 0.1, "affine").tolist() == [[26, 46, 128, 210, 230]]
    for bits in (8, 16, 32):
        assert torch.equal(from_counts(counts, 10, bits, 0.01), quantised(counts.double() / 10, bits, 0.01))
        wide = quantised(torch.rand(1, 100_000, generator=torch.Generator().manual_seed(0)), bits, 2.0**-11)
        assert 1 <= int(wide.min()) <= int(wide.max()) <= 2**bits - 1
    assert clamped(torch.tensor([0.0, 0.5, 1.0]), 0.01, "affine").tolist() == pytest.approx([0.01, 0.5, 0.99])


def test_rounding_a_prior_to_8_bits_costs_little() -> None:
    # 0.0073 nats for 256 entries on the grid of 11 counts, clipped to [0.01, 0.99]: mrc.md, section 2.
    p = torch.linspace(0, 1, 11).clamp(0.01, 0.99)[None]
    kl = kl_divergence(p, quantised(p, 8, 0.01), 8)
    assert 256 * float(kl.mean()) == pytest.approx(0.0073, rel=0.05)
