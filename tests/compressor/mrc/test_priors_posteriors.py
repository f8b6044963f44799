"""What both ends draw, mix and code: candidates as Random123 has Philox, the optimised prior, posteriors of updates."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedcomp.compressor.mrc import Blocks
from fedcomp.compressor.mrc.candidates import BITS, Candidates, streams, stretch, uniform
from fedcomp.compressor.mrc.diagnostics import kl_divergence
from fedcomp.compressor.mrc.mixing import STEPS, Mixture, message, received
from fedcomp.compressor.mrc.mrc_quantiser import Quantised
from fedcomp.compressor.mrc.mrc_sign import even_prior, sign_posterior, signs
from fedcomp.compressor.mrc.thresholds import TYPES, from_counts
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Ledger, Payload, SharedKnowledge, WireError, WireLink
from tests.looped import looped
from tests.parts import MRC, MRCQuantiser, MRCSign

WORDS = (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
"""Philox4x32-10 of counter 0 under key 0: Random123's known answer."""
ZERO = torch.zeros(1, 2, dtype=torch.int64)
KEYS = streams("per_client", Key(("run", 0, "round", 3)), torch.tensor([4, 9]))


@looped("bits", BITS)
def test_uniforms_are_the_parts_of_the_known_answer_from_the_low_end_on(bits) -> None:
    drawn = uniform(ZERO[0, :, None], Candidates(ZERO, 1, bits), 0, torch.tensor(0), torch.arange(128 // bits))
    whole = b"".join(word.to_bytes(4, "little") for word in WORDS)
    size = bits // 8
    assert drawn.tolist() == [int.from_bytes(whole[at : at + size], "little") for at in range(0, 16, size)]


def test_all_ones_known_answer_and_the_order_of_the_counter() -> None:
    ones = torch.full((1, 2), 0xFFFFFFFF)
    top = Candidates(ones, 1, 32, domain=0xFFFFFFFF)
    # counter = (e >> 2, i, l, domain), all of them 2^32 - 1
    coordinate = torch.arange(4) + (0xFFFFFFFF << 2)
    drawn = uniform(ones[0, :, None], top, 0xFFFFFFFF, torch.tensor(0xFFFFFFFF), coordinate)
    assert drawn.tolist() == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


@looped("bits", BITS)
def test_a_stretch_is_its_coordinates_one_by_one(bits) -> None:
    candidates = Candidates(KEYS, 5, bits)
    for begin, end in ((0, 1), (0, 64), (3, 50), (17, 18), (31, 33)):
        each = uniform(KEYS[1, :, None, None], candidates, 2, torch.arange(5)[:, None], torch.arange(begin, end))
        assert torch.equal(stretch(KEYS[1], candidates, 2, begin, end), each)


def test_any_change_of_name_changes_the_bits_and_the_same_name_gives_the_same() -> None:
    here = Candidates(KEYS, 4, 32)
    drawn = stretch(KEYS[0], here, 0, 0, 64)
    assert torch.equal(stretch(KEYS[0].clone(), replace(here), 0, 0, 64), drawn)
    later = streams("per_client", Key(("run", 0, "round", 4)), torch.tensor([4]))[0]
    shared = streams("shared", Key(("run", 0, "round", 3)), torch.tensor([4]))[0]
    others = [
        *(stretch(key, here, 0, 0, 64) for key in (later, shared, KEYS[1])),
        *(stretch(KEYS[0], here, 1, 0, 64), stretch(KEYS[0], replace(here, domain=1), 0, 0, 64)),
        *(drawn.roll(1, 0), drawn.roll(4, 1)),
    ]
    for other in others:
        assert float((other == drawn).double().mean()) < 0.02  # of 32 bits, two are equal once in 2^32


def test_streams_follow_the_client_not_its_place() -> None:
    key = Key(("run", 1))
    here, there = (streams("per_client", key, torch.tensor(ids)) for ids in ([9, 4], [4, 9]))
    assert torch.equal(here, there.flip(0))
    assert torch.equal(streams("shared", key, torch.tensor([9, 4])), streams("shared", key, torch.tensor([1])))


@looped("bits", BITS)
def test_ones_have_the_threshold_s_probability_exactly(bits) -> None:
    # 10 thresholds, 200,000 draws each; standard error at most 0.0011.
    thresholds = torch.linspace(1, 2**bits - 1, 10, dtype=torch.float64).round()
    ones = torch.cat([stretch(KEYS[0], Candidates(KEYS, 20_000, bits), r, 0, 10) < thresholds for r in range(10)])
    chance = thresholds / 2**bits
    assert ((ones.double().mean(0) - chance).abs() <= 4.5 * (chance * (1 - chance) / 200_000).sqrt() + 1e-9).all()


MIXTURE = Mixture(num_first=10, num_second=1)


def _held(num: int, dim: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """(posteriors, counts of 10, counts of 1) [M, D]: posteriors between what both counts say."""
    generator = torch.Generator().manual_seed(seed)
    first = torch.randint(0, 11, (num, dim), generator=generator)
    second = torch.randint(0, 2, (num, dim), generator=generator)
    share = torch.linspace(0, 1, num)[:, None]
    q = share * first / 10 + (1 - share) * second + 0.1 * torch.randn(num, dim, generator=generator)
    return q.clamp(0, 1), first, second


def _every(q: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """[256, M] the objective sum_e kl(q_e || p_e(lam)), in nats, at every code, entry by entry."""
    theta, before, q = (x.to(torch.float64).clamp(0.01, 0.99) for x in (first / 10, second, q))
    lam = (torch.arange(STEPS + 1, dtype=torch.float64) / STEPS)[:, None, None]
    p = lam * theta + (1 - lam) * before
    return (q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()).sum(2)


def test_the_best_code_is_the_best_of_all() -> None:
    held = _held(6, 700)
    objective = _every(*held)
    best = MIXTURE.best(*held, torch.ones(6, 700, dtype=torch.bool))
    assert best.unique().numel() > 3
    at_best = objective.gather(0, best[None])[0]
    assert torch.allclose(at_best, objective.amin(0), rtol=1e-12)
    assert (at_best <= torch.minimum(objective[0], objective[-1])).all()
    assert (objective[2:] - 2 * objective[1:-1] + objective[:-2] > -1e-9).all()  # convex


def test_only_what_is_mixed_decides() -> None:
    q, first, second = _held(6, 700)
    mixes = torch.arange(700).expand(6, -1) % 3 == 0
    alone = [each[:, ::3] for each in (q, first, second)]
    assert torch.equal(MIXTURE.best(q, first, second, mixes), MIXTURE.best(*alone, mixes[:, ::3]))
    assert MIXTURE.best(q, first, second, torch.zeros_like(mixes)).tolist() == [STEPS] * 6


def test_the_ends() -> None:
    first, second = torch.tensor([[10, 0, 5, 5]]), torch.tensor([[0, 1, 1, 0]])
    everywhere = torch.ones(1, 4, dtype=torch.bool)
    assert MIXTURE.best(first / 10, first, second, everywhere).tolist() == [255]
    assert MIXTURE.best(second.float(), first, second, everywhere).tolist() == [0]
    alike = torch.tensor([[10, 0]])
    assert 0 <= int(MIXTURE.best(torch.tensor([[0.3, 0.3]]), alike, alike // 10, everywhere[:, :2])) <= 255


@looped("bits", [8, 16, 32])
@looped("form", ["clip", "affine"])
def test_thresholds_at_255_and_0_are_those_of_the_counts(bits, form) -> None:
    mixture = Mixture(10, 2, bits, 0.01, form)
    first, second = torch.randint(0, 11, (2, 50)), torch.randint(0, 3, (2, 50))
    made = mixture.thresholds(torch.tensor([255, 0]), first, second)
    assert made.dtype == TYPES[bits]
    assert torch.equal(made[0], from_counts(first[0], 10, bits, 0.01, form))
    assert torch.equal(made[1], from_counts(second[1], 2, bits, 0.01, form))
    middle = mixture.thresholds(torch.tensor([128, 128]), first, second).double()
    ends = [from_counts(count, num, bits, 0.01, form).double() for count, num in ((first, 10), (second, 2))]
    assert ((middle - (ends[0] * 128 + ends[1] * 127) / 255).abs() <= 1).all()


def test_the_largest_threshold_is_the_one_below_certain() -> None:
    sure = Mixture(4, 4, 8, clamp=0.001)
    thresholds = sure.thresholds(torch.tensor([255]), torch.tensor([[4, 0]]), torch.tensor([[4, 0]]))
    assert thresholds.tolist() == [[255, 1]]


def test_eight_bits_a_client() -> None:
    codes = torch.tensor([0, 7, 255])
    sent = message(codes)
    assert sent.bits.tolist() == [8, 8, 8]
    assert torch.equal(received(WireLink(Ledger()).up(sent)), codes)
    with pytest.raises(WireError, match="it was made by another codec"):
        received(type(sent)({}) if not sent.fields else type(sent)({"other": sent.fields["mixture"]}))


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
    x = torch.linspace(-1, 1, 64).expand(2, -1).contiguous()
    common = SharedKnowledge(Key(("k",)), torch.arange(2), (64,))
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


def test_an_entry_that_is_the_whole_norm_has_the_highest_level_and_a_one() -> None:
    parts, posterior = Quantised.of(torch.tensor([[0.0, -2.0, 0.0]]), 4)
    Payload(parts.fields).check_range()
    assert (parts.tau.tolist(), posterior.tolist()) == ([[0, 3, 0]], [[0.0, 1.0, 0.0]])
    assert parts.values(posterior).tolist() == [[0.0, -2.0, 0.0]]


@looped("make", [MRCSign, MRCQuantiser])
def test_shared_options_reach_the_code(make: type) -> None:
    code = make(num_candidates=16, repetitions=3, block=32, candidates="per_client", bits=16).codec
    assert (code.num_candidates, code.repetitions, code.block) == (16, 3, 32)
    assert (code.candidates, code.bits) == ("per_client", 16)
