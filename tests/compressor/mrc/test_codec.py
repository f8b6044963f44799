"""The codec: bits to the last ragged block, decoding from bytes and names alone, ends, and what it refuses."""

from dataclasses import replace

import pytest
import torch

from fedcomp.compressor.mrc import MRC, Blocks, SplitMRC
from fedcomp.compressor.mrc.split import groups, rotated
from fedcomp.compressor.mrc.thresholds import from_counts, probability, quantised
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Ledger, Payload, SharedKnowledge, WireLink
from fedcomp.wire.coding import Digits
from tests.looped import looped
from tests.operations import Operations, reads

KEY = Key(("run", 0, "round", 7, "uplink"))
COIN = KEY.fold_in("sender")


def _known(num: int, dim: int, bits: int = 8, priors: int = 1, key: Key = KEY) -> SharedKnowledge:
    counts = torch.randint(0, 11, (priors, dim), generator=torch.Generator().manual_seed(dim))
    return SharedKnowledge(key, torch.arange(2, 2 + num), (dim,), from_counts(counts, 10, bits, 0.01))


def _posteriors(num: int, dim: int) -> torch.Tensor:
    return torch.rand(num, dim, generator=torch.Generator().manual_seed(7))


@looped("dim, blocks", [(61_706, 242), (1_933_258, 7552), (2_262_602, 8839), (255, 1), (256, 1), (257, 2), (1, 1)])
def test_bits_of_the_papers_models_are_a_byte_a_block(dim, blocks) -> None:
    indices = torch.zeros(1, MRC(repetitions=10).layout(dim)["indices"], dtype=torch.uint8)
    assert Payload({"indices": Field(indices, MRC().coding)}).bits.tolist() == [10 * 8 * blocks]
    assert Blocks.fixed(dim, 256).num == blocks


@looped("options", [{}, {"num_candidates": 100}, {"num_candidates": 1}, {"candidates": "per_client"}])
@looped("bits", [8, 16, 32])
@looped("priors", [1, 3])
def test_what_is_decoded_from_real_bytes_is_what_was_sent(options, bits, priors) -> None:
    codec, known = MRC(block=64, repetitions=3, bits=bits, **options), _known(3, 1000, bits, priors)
    payload = codec.encode(_posteriors(3, 1000), known, COIN)
    received = WireLink(Ledger()).up(payload)
    assert torch.equal(codec.counts(received, known), codec.counts(payload, known))
    assert torch.equal(codec.decode(received, known) * 3, codec.counts(payload, known).float())
    assert torch.equal(codec.total(received, known), codec.counts(payload, known).sum(0))
    width = (codec.num_candidates - 1).bit_length()
    assert payload.bits.tolist() == [3 * 16 * width] * 3
    assert 0 < int(codec.total(payload, known).sum()) < 9000


def test_indices_of_a_base_that_is_no_power_of_two_pack_into_whole_bytes() -> None:
    codec, known = MRC(5, block=10, packing="digits"), _known(2, 1000)
    payload = codec.encode(_posteriors(2, 1000), known, COIN)
    assert payload.bits.tolist() == [Digits(5).fixed_bits(100)] * 2
    assert Digits(5).fixed_bits(100) < 300
    assert torch.equal(codec.counts(WireLink(Ledger()).up(payload), known), codec.counts(payload, known))


def test_a_receiver_with_another_key_prior_or_sender_decodes_something_else() -> None:
    codec, known = MRC(block=64, candidates="per_client"), _known(2, 1000)
    payload = codec.encode(_posteriors(2, 1000), known, COIN)
    mine = codec.counts(payload, known)
    assert known.side_information is not None
    opposite = (256 - known.side_information.to(torch.int64)).clamp(1, 255).to(torch.uint8)
    others = [
        codec.counts(payload, replace(known, key=KEY.fold_in("other"))),
        codec.counts(payload, replace(known, ids=known.ids + 1)),
        codec.counts(payload, replace(known, side_information=opposite)),
        replace(codec, domain=1).counts(payload, known),
    ]
    for other in others:
        assert float((other == mine).double().mean()) < 0.9


def test_one_candidate_sends_nothing_and_draws_from_the_prior() -> None:
    codec = MRC(1, repetitions=4)
    known = SharedKnowledge(KEY, torch.arange(1), (40_000,), quantised(torch.full((1, 40_000), 0.25), 8, 0.01))
    payload = codec.encode(torch.ones(1, 40_000), known, COIN)
    assert payload.bits.tolist() == [0]
    assert not payload.fields["indices"].data.any()
    assert float(codec.decode(payload, known).mean()) == pytest.approx(0.25, abs=4 * (0.1875 / 160_000) ** 0.5)


def test_posteriors_and_priors_at_0_and_1_are_clamped() -> None:
    counts = torch.tensor([[0, 10] * 500])
    known = SharedKnowledge(KEY, torch.arange(1), (1000,), from_counts(counts, 10, 8, 0.01))
    assert probability(known.side_information, 8)[0, :2].tolist() == [3 / 256, 253 / 256]
    codec = MRC(block=4)
    decoded = codec.decode(codec.encode(counts.float() / 10, known, COIN), known)
    assert float((decoded == counts / 10).float().mean()) > 0.97
    turned = codec.decode(codec.encode(1 - counts.float() / 10, known, COIN), known)
    assert torch.isfinite(turned).all()
    assert float((turned == counts / 10).float().mean()) < 0.95


@looped("wrong", [float("nan"), float("inf"), -0.1, 1.1])
def test_what_is_no_probability_is_refused(wrong) -> None:
    q = _posteriors(2, 100)
    q[1, 17] = wrong
    with pytest.raises(ValueError, match=r"posteriors must be probabilities in \[0, 1\]; these lie between"):
        MRC().encode(q, _known(2, 100), COIN)


@looped("blocks", [None, Blocks.of([0, 10, 300, 500], 500)])
@looped("candidates", ["shared", "per_client"])
def test_coding_reads_nothing_back_and_stays_on_the_device(candidates, blocks) -> None:
    codec, known, q = MRC(block=64, candidates=candidates, blocks=blocks), _known(4, 500), _posteriors(4, 500)
    split = SplitMRC(codec, tuple(groups(codec.cut(500, torch.device("cpu")).num, 4)))
    with Operations(reads) as counter:
        payload = codec.encode(q, known, COIN)
        decoded = codec.total(payload, known)
        split.counts(split.encode(q, known, COIN), known)
        codec.effective_sample_size(q, known)
    assert counter.names == []
    with torch.device("meta"):
        again = codec.encode(q, known, COIN)
        assert torch.equal(codec.total(again, known), decoded)
        split.counts(split.encode(q, known, COIN), known)
        codec.effective_sample_size(q, known)


def test_split_parts_are_disjoint_cover_and_rotate() -> None:
    for blocks, clients in ((7552, 10), (13, 4), (3, 5), (1, 1)):
        parts = groups(blocks, clients)
        assert [low for low, _ in parts] == [0, *[high for _, high in parts[:-1]]]
        assert parts[-1][1] == blocks
        assert {high - low for low, high in parts} <= {blocks // clients, -(-blocks // clients)}
    met = [set(rotated((3,), turn, 10)) for turn in range(10)]
    assert set().union(*met) == set(range(10))
    assert sorted(rotated(range(10), 4, 10)) == list(range(10))


@looped("priors", [1, 3])
def test_split_messages_hold_each_row_s_part_and_nothing_else(priors) -> None:
    codec = MRC(block=64, repetitions=2, candidates="per_client")
    known, q = _known(3, 1000, priors=priors), _posteriors(3, 1000)
    parts = ((11, 16), (0, 5), (5, 11))
    split = SplitMRC(codec, parts)
    payload = split.encode(q, known, COIN)
    assert payload.bits.tolist() == [2 * 8 * (high - low) for low, high in parts]
    counts, inside = split.counts(WireLink(Ledger()).unicast(payload), known)
    whole = codec.counts(codec.encode(q, known, COIN), known)
    for row, (low, high) in enumerate(parts):
        here = torch.arange(64 * low, min(64 * high, 1000))
        assert inside[row].nonzero().flatten().tolist() == here.tolist()
        assert torch.equal(counts[row, here], whole[row, here])
    assert not counts[~inside].any()
    assert inside.sum(0).eq(1).all()


def test_fewer_blocks_than_receivers_leave_some_without() -> None:
    split = SplitMRC(MRC(block=64), tuple(groups(2, 3)))
    payload = split.encode(_posteriors(3, 100), _known(3, 100), COIN)
    assert sorted(payload.bits.tolist()) == [0, 8, 8]
    counts, inside = split.counts(WireLink(Ledger()).unicast(payload), _known(3, 100))
    assert counts.shape == inside.shape == (3, 100)
    assert inside.sum(0).eq(1).all()
