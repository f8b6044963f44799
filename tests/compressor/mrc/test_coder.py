"""The compiled coder does what the reference does, index for index; and the reference does what the formula says."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from packaging.version import Version

from fedcomp.compressor.mrc import coder, cpu, reference
from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.compressor.mrc.candidates import BITS
from tests.compressor.mrc.coding_problems import SHAPES, Problem, problem
from tests.looped import looped
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
        for blocks in CUTS:
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
