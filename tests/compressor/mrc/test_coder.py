"""The compiled coder does what the reference does, index for index; the reference does what the formula says; its law.

What is decoded has the law that the theory gives: of scalar blocks, of a posterior that is the prior, of the noise.
Keys are fixed, standard errors are measured; tests name faults that, planted, they were seen to catch. Diagnostics are
held to their definitions. Shape legend: B repetitions of one block, s entries.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from packaging.version import Version
from torch import Tensor

from fedcomp.compressor.mrc import Blocks, coder, cpu, reference
from fedcomp.compressor.mrc.candidates import BITS, Candidates, Prior, streams
from fedcomp.compressor.mrc.coder import decode, encode
from fedcomp.compressor.mrc.diagnostics import kl_divergence, polarisation, share_above
from fedcomp.compressor.mrc.fixed_point import gumbel
from fedcomp.compressor.mrc.mrc_sign import even_prior
from fedcomp.compressor.mrc.thresholds import clamped, from_counts, probability, quantised
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.compressor.mrc.coding_problems import SHAPES, Problem, problem
from tests.looped import looped
from tests.parts import MRC
from tests.printed import printed_by
from tests.thorough import thorough

RAGGED = Blocks.of([0, 1, 20, 21, 150, 277, 400], 400)
NO_INTERPRETER = (
    find_spec("triton") is not None
    and Version(version("triton")) < Version("3.8")
    and Version(np.__version__) >= Version("2.5")
)

CUTS = (RAGGED, Blocks.fixed(300, 128), Blocks.fixed(60, 7), Blocks.fixed(90, 256), RAGGED.part(2, 5))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("num", [7, 300, *thorough([2, 256])])
def test_numba_chooses_as_the_reference(bits, num) -> None:
    for shape in SHAPES:
        for blocks in CUTS if num < 300 else CUTS[:2]:
            given = problem(*shape, num, bits, blocks)
            expected = reference.encode(*given.encoding)
            assert torch.equal(cpu.encode(*given.encoding), expected)
            assert expected.numel() < 20 or expected.unique().numel() > 1
            for rows in (shape[0], 1):
                slow, fast = (torch.zeros(rows, blocks.dim, dtype=torch.int32) for _ in range(2))
                reference.decode(expected, given.prior, slow)
                cpu.decode(expected, given.prior, fast)
                assert torch.equal(slow, fast)


@pytest.mark.thorough
@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.skipif(NO_INTERPRETER, reason="Triton's interpreter before 3.8 does not loop with numpy 2.5")
def test_triton_chooses_as_the_reference() -> None:
    """Under Triton's interpreter, which must be chosen before triton is imported: a process of its own."""
    assert printed_by("tests.compressor.mrc.interpreted_kernels", TRITON_INTERPRET="1") == ["agree"] * 4


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_triton_kernels_compile_for_a_gpu() -> None:
    """For compute capability 9.0, which needs no GPU: the interpreter takes types that the compiler refuses."""
    assert printed_by("tests.compressor.mrc.compiled_kernels") == ["encode_kernel", "decode_kernel"]


@looped("bits", BITS)
def test_scores_are_the_sums_of_log_odds_under_each_candidate(bits) -> None:
    """In float64 from decoded candidates, one after another: what rounding leaves is below 1e-5 of it."""
    blocks = Blocks.of([0, 200, 256, 300], 300)
    given = problem(1, "shared", 1, 6, bits, blocks)
    found = reference.scores(given.log_odds, given.prior, 0, 0)[0].double()
    prior = (given.thresholds[0].double() / 2**bits).logit()
    log_odds = given.q[0].double().clamp(0.01, 0.99).logit() - prior
    for number in range(6):
        indices = torch.full((1, 1, 3), number, dtype=torch.int32)
        ones = torch.zeros(1, 300, dtype=torch.int32)
        reference.decode(indices, given.prior, ones)
        exact = blocks.sums((ones[0] * log_odds)[None])[0]
        magnitude = blocks.sums((ones[0] * log_odds.abs())[None])[0]
        assert ((found[number] * 2.0**-given.fraction - exact).abs() <= 1e-5 * magnitude + 1e-5).all()


def test_equal_posterior_and_prior_score_exactly_zero() -> None:
    blocks = Blocks.fixed(512, 256)
    given = problem(1, "shared", 1, 16, 8, blocks, same=True)
    assert not reference.scores(given.log_odds, given.prior, 0, 0).any()


def test_senders_that_share_candidates_are_coded_as_if_alone() -> None:
    given = problem(13, "shared", 1, 32, 8, RAGGED)
    together = coder.encode(*given.plain, 2)
    for row in (0, 5, 12):
        alone = coder.encode(*given.row(row).plain, 2)
        assert torch.equal(alone[0], together[row])


def test_pieces_and_threads_change_no_index(monkeypatch) -> None:
    blocks = Blocks.fixed(5000, 100)
    given = problem(3, "per_client", 3, 32, 8, blocks)
    whole = coder.encode(*given.plain, 2)
    monkeypatch.setattr(coder, "PIECE", 700)
    with ThreadPoolExecutor(3) as pool:
        assert torch.equal(coder.encode(*given.plain, 2, map_pieces=pool.map), whole)
        decoded = coder.decode(whole, given.prior, map_pieces=pool.map)
        total = coder.decode(whole, given.prior, total=True)
    ones = torch.zeros(3, 5000, dtype=torch.int32)
    reference.decode(whole, given.prior, ones)
    assert torch.equal(decoded, ones)
    assert torch.equal(total[0], ones.sum(0))
    assert 0 < int(ones.max()) <= 2


def test_a_part_s_blocks_are_coded_as_in_the_whole() -> None:
    given = problem(2, "shared", 1, 32, 16, RAGGED)
    whole = coder.encode(*given.plain)
    part = RAGGED.part(1, 5)
    here = slice(part.begin, part.end)
    some = Problem(given.q[:, here], given.thresholds[:, here], part, given.candidates, given.noise_keys)
    assert torch.equal(coder.encode(*some.plain), whole[:, :, 1:5])


def test_the_cut_into_blocks_changes_no_candidate() -> None:
    given = problem(1, "shared", 1, 4, 8, Blocks.fixed(300, 300))
    decoded = []
    for blocks in (Blocks.fixed(300, 300), Blocks.fixed(300, 7), Blocks.of([0, 13, 14, 300], 300)):
        indices = torch.full((1, 1, blocks.num), 3, dtype=torch.uint8)
        decoded.append(coder.decode(indices, replace(given.prior, blocks=blocks)))
    assert torch.equal(decoded[0], decoded[1])
    assert torch.equal(decoded[0], decoded[2])
    other = coder.decode(torch.full((1, 1, 1), 2, dtype=torch.uint8), given.prior)
    assert not torch.equal(other, decoded[0])


def test_long_blocks_do_not_overflow() -> None:
    """All log odds at their bound: the score of a block of 65,536 entries is below 2^31 and not negative."""
    blocks = Blocks.fixed(1 << 16, 1 << 16)
    given = problem(1, "shared", 1, 2, 8, blocks)
    far = Problem(
        torch.ones_like(given.q), torch.full_like(given.thresholds, 1), blocks, given.candidates, given.noise_keys
    )
    steps = far.log_odds
    assert float(steps[0, 0]) * 2.0**-far.fraction == pytest.approx(10.1, abs=0.2)
    assert steps.sum(dtype=torch.int64) < 2**30
    always = replace(far.prior, thresholds=torch.full_like(far.thresholds, 255))
    total = reference.scores(torch.full_like(steps, 16 << far.fraction), always, 0, 0)
    assert 0 < int(total.max()) <= 2**30


CLAMP = 2.0**-11


def samples(
    q: Tensor, p: Tensor, num_candidates: int, num_blocks: int, bits: int = 16
) -> tuple[Tensor, Tensor, Tensor]:
    """(decoded bits [B, s] float32, the prior [s] that was really used, indices [B]) for posterior and prior [s]."""
    size, key = len(q), Key(("law", num_candidates, bits))
    thresholds = quantised(p, bits, CLAMP).repeat(num_blocks)[None]
    blocks = Blocks.fixed(size * num_blocks, size)
    one = torch.zeros(1, dtype=torch.int64)
    prior = Prior(thresholds, blocks, Candidates(streams("shared", key, one), num_candidates, bits))
    posterior = q.to(torch.float32).repeat(num_blocks)[None]
    indices = encode(posterior, prior, key.fold_in("coin").bits(one, 2), clamp=CLAMP)
    bits_decoded = decode(indices, prior).view(num_blocks, size).to(torch.float32)
    return bits_decoded, probability(thresholds[0, :size], bits).double(), indices.flatten().to(torch.int64)


def divergence(q: Tensor, p: Tensor) -> Tensor:
    """[s] float64 kl(q || p) of each entry, in nats."""
    return q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()


def _scalar_law(q: float, p: float, n: int) -> float:
    """Pr(X = 1) for a block of one entry: with L + 1 of n candidates at one, it is their share of the weights."""
    one, zero = q / p, (1 - q) / (1 - p)
    total = 0.0
    for others in range(n):
        chance = math.comb(n - 1, others) * p ** (others + 1) * (1 - p) ** (n - others - 1)
        total += chance * one / ((others + 1) * one + (n - others - 1) * zero)
    return n * total


@looped("q, p, n", [(0.9, 0.1, 16), (0.6, 0.5, 2), (0.2, 0.7, 5), (0.99, 0.01, 256)])
def test_scalar_blocks_follow_the_exact_law(q, p, n) -> None:
    # Faults: noise halved; one word for the noise of two candidates; a sixth of the candidates never chosen.
    decoded, prior, _ = samples(torch.tensor([q]), torch.tensor([p]), n, 200_000)
    exact = _scalar_law(q, float(prior[0]), n)
    error = math.sqrt(exact * (1 - exact) / 200_000)  # 0.0010 for (0.9, 0.1, 16): 0.7319
    assert abs(float(decoded.mean()) - exact) < 4 * error


def test_posterior_equal_to_the_prior_is_a_draw_from_the_prior() -> None:
    p = torch.tensor([0.25, 0.5, 0.625, 0.125] * 8)
    decoded, prior, indices = samples(p, p, 256, 20_000, bits=8)
    assert torch.equal(prior, p.double())
    counts = torch.bincount(indices, minlength=256)
    chi = float(((counts - 20_000 / 256) ** 2 / (20_000 / 256)).sum())
    assert abs(chi - 255) < 4 * math.sqrt(2 * 255)
    error = (p * (1 - p) / 20_000).sqrt()
    assert ((decoded.mean(0) - p).abs() < 4.5 * error).all()


def test_noise_is_standard_gumbel() -> None:
    # Kolmogorov's distance of a million draws, whose 0.1 % point is 1.95 / sqrt(n). Fault: one tail used twice.
    words = Key(("gumbel",)).bits(torch.arange(1), 1_000_000)[0]
    drawn = (gumbel(words, 18).double() * 2.0**-18).sort().values
    chance = (-(-drawn).exp()).exp()
    steps = torch.arange(1, 1_000_001) / 1e6
    assert float((chance - steps).abs().max()) < 1.95e-3


def test_noise_is_the_same_function_of_its_word_to_a_few_steps() -> None:
    words = torch.cat(
        (torch.arange(1, 5000, 7), torch.arange(2**31 - 5000, 2**31 + 5000, 7), torch.arange(2**32 - 999, 2**32, 7))
    )
    t = ((words & 0x7FFFFFFF) | 1).double() * 2.0**-32
    exact = torch.where(words < 2**31, -(-torch.log1p(-t)).log(), -(-t.log()).log())
    assert ((gumbel(words, 18).double() * 2.0**-18 - exact).abs() < 1e-5).all()


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
