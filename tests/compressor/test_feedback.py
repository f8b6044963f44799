"""Memories at both ends: error feedback, predictors, messages of what earlier ones left out; what is refused."""

from dataclasses import dataclass

import pytest
import torch

from fedcomp.compressor.fast_compressed_communication import FastCompressedCommunication as FCC
from fedcomp.compressor.predictors import EF21, Aggregate
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import flatten
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Ledger, Link, Payload, SharedKnowledge, WireError
from fedcomp.wire.coding import Float
from tests.compressor.round_trips import gauss, passed
from tests.looped import looped
from tests.parts import Compressor, Dense, Drive, ErrorFeedback, MRCQuantiser, MRCSign, RandK, Sign, TopK
from tests.refused import one_line_error, refused

DIM, NUM = 40, 5
MEAN_ABS, FEW, ENOUGH = MRCSign(scale="mean_abs"), MRCQuantiser(levels=8), MRCQuantiser(levels=9)
"""Of `DIM` = 40 entries; the square root of twice as many is 8.9."""


@looped("codec", [TopK(0.1), Sign(), Dense()])
@looped("decay", [1.0, 0.5])
def test_nothing_is_lost(codec, decay) -> None:
    compressor = Compressor(codec, ErrorFeedback(decay))
    memory = compressor.init(5, torch.zeros(DIM))
    cohort = Cohort.of([0, 3], torch.ones(2))
    known = SharedKnowledge(Key(), cohort.ids, (DIM,))
    for step in range(4):
        x, before = gauss(2, DIM, seed=step), memory.sender
        payload, memory = compressor.encode(x, memory, cohort, known, Key())
        sent = codec.decode(payload, known)
        assert torch.allclose(sent + memory.sender[[0, 3]], x + decay * before[[0, 3]], atol=1e-6)
        assert torch.equal(memory.sender[[1, 2, 4]], before[[1, 2, 4]])


@dataclass(frozen=True)
class Mean(ErrorFeedback):
    """Keeps one memory for all, or breaks the contract otherwise."""

    what: str = "mean"

    def encode(self, codec, x, *given):
        payload, memory = super().encode(codec, x.mul_(2) if self.what == "in place" else x, *given)
        returned = {"double": (payload, memory.double()), "swapped": (memory, payload), "alone": payload}
        return returned.get(self.what, (payload, memory.mean(0, keepdim=True)))


@looped(
    "what, words",
    [
        ("mean", r"Mean.encode returned a memory torch.float32 \(1, 40\), but must return torch.float32 \(2, 40\), a"),
        ("double", r"Mean.encode returned a memory torch.float64 \(2, 40\), but must return torch.float32 \(2, 40\)"),
        ("swapped", r"Mean.encode must return \(payload, memory\): a Payload, and a tensor with a row for each se"),
        ("alone", r"Mean.encode must return \(payload, memory\)"),
        ("in place", "Mean.encode writes into its input, which its sender goes on with"),
    ],
)
def test_what_feedback_must_not_do_is_named(what: str, words: str) -> None:
    compressor, cohort = Compressor(Sign(), Mean(what=what)), Cohort.of([0, 3], torch.ones(2))
    known = SharedKnowledge(Key(), cohort.ids, (DIM,))
    with one_line_error(words):
        compressor.encode(gauss(2, DIM), compressor.init(5, torch.zeros(DIM)), cohort, known, Key())


test_codecs_whose_memory_would_grow_are_refused_before_the_first_round = refused(
    [
        ({"codec": wrap(codec)}, line)
        for wrap in (lambda codec: codec, FCC)
        for codec, line in [
            (MEAN_ABS, r"scale=mean_abs makes no sense with an error memory.*scale=fixed"),
            (FEW, r"levels=8 are too few for an error memory: of 40 entries.*levels=9 or more"),
        ]
    ],
    lambda codec: Compressor(codec, ErrorFeedback()).init(3, torch.zeros(DIM)),
)


def test_codecs_whose_memory_does_not_grow_are_not() -> None:
    for wrap in (lambda codec: codec, FCC):
        for codec, feedback in ((MRCSign(), True), (ENOUGH, True), (MEAN_ABS, False), (FEW, False)):
            Compressor(wrap(codec), *([ErrorFeedback()] if feedback else [])).init(3, torch.zeros(DIM))


def _send(compressor: Compressor, x: torch.Tensor, memory, who=range(NUM), turn: int = 0, weight=None):
    """Of these senders, with weights 1/n if none are given."""
    cohort = Cohort.of(who, torch.full((len(who),), 1 / len(who)) if weight is None else weight)
    common = SharedKnowledge(Key(("predict", turn)), cohort.ids, (DIM,))
    return compressor.send_up(x, memory, cohort, Link(Ledger()), common, Key(("private", turn)))


def test_constant_vectors_are_known_after_all_entries_were_sent() -> None:
    """Equal vectors in all rounds, Top-4 of 40: the error falls at least as (1 - k/d)^t, to 0 after d / k rounds."""
    x = gauss(NUM, DIM)[:1].expand(NUM, -1)
    for predictor in ("aggregate", "ef21"):
        compressor = Compressor.of(TopK(k=4), predictor=predictor)
        memory = compressor.init(NUM, x[0])
        for turn in range(10):
            mean, memory = _send(compressor, x, memory, turn=turn)
            memory = compressor.observe(memory, mean)
            error = float((mean - x[0]).square().sum() / x[0].square().sum())
            assert error <= 0.9 ** (turn + 1)
        assert error < 1e-12


def test_mean_is_that_of_the_rows_idle_ones_too() -> None:
    compressor = Compressor.of(Drive("min_mse"), predictor="ef21")
    memory, x = compressor.init(NUM, torch.zeros(DIM)), gauss(NUM, DIM)
    _, memory = _send(compressor, x, memory)
    before = memory.shared.clone()
    mean, memory = _send(compressor, x[1:3] + 1, memory, [1, 3], 1)
    assert torch.equal(memory.shared[[0, 2, 4]], before[[0, 2, 4]])
    torch.testing.assert_close(mean, memory.shared.mean(0), rtol=1e-5, atol=1e-6)
    everybody, memory = _send(compressor, x, memory, turn=2)
    torch.testing.assert_close(everybody, memory.shared.mean(0), rtol=1e-5, atol=1e-6)


def test_weights_that_stand_for_idle_senders_do_not_count_their_rows_twice() -> None:
    """1 / (N p_i): all came, and their weights sum to more than 1; with weights that sum to 1 these decide."""
    compressor = Compressor.of(TopK(k=DIM), predictor="ef21")
    x, own = gauss(NUM, DIM), torch.tensor([0.1, 0.3, 0.2, 0.25, 0.15])
    for weight, wanted in ((1 / (NUM * torch.tensor([0.5, 0.9, 1.0, 0.7, 0.9])), x.mean(0)), (own, own @ x)):
        mean, _ = _send(compressor, x, compressor.init(NUM, x[0]), weight=weight)
        torch.testing.assert_close(mean, wanted, rtol=1e-5, atol=1e-5)


def test_the_last_mean_is_one_vector_and_counts_with_all_weights() -> None:
    compressor = Compressor.of(TopK(k=DIM), predictor="aggregate")
    memory, x = compressor.init(NUM, torch.zeros(DIM)), gauss(NUM, DIM)
    assert all(tensor.dim() == 1 or not tensor.numel() for tensor in flatten(memory).values())
    memory = compressor.observe(memory, gauss(NUM, DIM, seed=1)[0])
    weight = torch.tensor([0.9, 0.6])  # do not sum to 1
    mean, after = _send(compressor, x[:2], memory, [0, 2], weight=weight)
    torch.testing.assert_close(mean, weight @ x[:2], rtol=1e-5, atol=1e-5)
    assert torch.equal(after.shared, memory.shared)


def test_a_decay_of_zero_sends_vectors_as_they_are() -> None:
    x, plain = gauss(NUM, DIM), Compressor.of(TopK(k=4))
    compressor = Compressor(TopK(k=4), predictor=Aggregate(0.0))
    memory = compressor.observe(compressor.init(NUM, x[0]), x[1])
    assert torch.equal(_send(compressor, x, memory)[0], _send(plain, x, plain.init(NUM, x[0]))[0])


def test_first_memories() -> None:
    like = torch.arange(3.0)
    assert EF21(starts_at_model=True).init(2, like).tolist() == [[0, 1, 2], [0, 1, 2]]
    assert not EF21().init(2, like).any()
    assert Aggregate().init(2, like).shape == (3,)
    assert Compressor.of(TopK()).init(2, like).shared.shape == (2, 0)


test_what_makes_no_sense_is_refused = refused(
    [
        (lambda: Compressor.of(RandK(), predictor="ef21"), "predictor=EF21 makes no sense for RandK as configured"),
        (lambda: Compressor.of(RandK(), predictor="aggregate"), "predictor=Aggregate makes no sense for RandK"),
        (lambda: Compressor.of(TopK(), "error", predictor="ef21"), "predictor is a memory of its own"),
        (lambda: Compressor.of(TopK(), predictor="last"), "predictor=last must be one of none, aggregate, ef21"),
        (lambda: Aggregate(1.5), r"predictor.decay=1.5 must be a number in \[0, 1\]"),
        (
            lambda: Compressor.of(TopK(), predictor="ef21").with_error_feedback("compressor"),
            "predictor and the algorithm's error memory are two memories",
        ),
        (lambda: FCC(Sign(), 1.5), "repeats=1.5 must be a whole number"),  # type: ignore[arg-type]
        (lambda: FCC(TopK(k=50), 2).check_dim(47), "k=50"),
    ]
)


def test_a_codec_that_only_shrinks_can_have_a_predictor() -> None:
    Compressor.of(RandK(scale="none"), predictor="ef21")


M, D = 3, 47
ROWS = gauss(M, D, seed=1)
KNOWN, COIN = SharedKnowledge(Key(("test",)), torch.arange(M), (40, 7)), Key(("coin",))


def test_messages_are_of_what_was_left() -> None:
    """The paper's FCC, step by step."""
    codec = Sign()
    for repeats in (1, 2, 3, 8):
        sent = passed(FCC(codec, repeats), ROWS, KNOWN)
        left, total = ROWS, torch.zeros(M, D)
        for _ in range(repeats):
            part = passed(codec, left, KNOWN)
            left, total = left - part, total + part
        assert torch.allclose(sent, total, atol=1e-6)


def test_once_is_the_codec_itself() -> None:
    codec = RandK(0.2, seed_cost="derived")
    alone, once = codec.encode(ROWS, KNOWN, COIN), FCC(codec, 1).encode(ROWS, KNOWN, COIN)
    assert torch.equal(codec.decode(alone, KNOWN), FCC(codec, 1).decode(once, KNOWN))
    assert torch.equal(alone.bits, once.bits)
    assert alone.paper_bits == once.paper_bits


@looped("seed", ["sent", "derived"])
def test_messages_draw_places_of_their_own(seed: str) -> None:
    """Twice a fifth of the entries: some places coincide, most do not. Seeds are the sender's or both's."""
    codec = FCC(RandK(0.2, scale="none", seed_cost=seed), 2)
    assert ((passed(codec, ROWS, KNOWN) != 0).sum(1) > round(0.2 * D)).all()


def test_what_both_ends_declare_is_the_codecs() -> None:
    for codec in (Sign(), RandK(0.2), Dense()):
        repeated = FCC(codec, 2)
        flags = repeated.unbiased, repeated.contractive, repeated.near_lossless
        assert flags == (codec.unbiased, codec.contractive, codec.near_lossless)
    assert FCC(Sign(), 3).encode(ROWS, KNOWN, COIN).paper_bits == 3 * D
    assert FCC(Dense(), 3).encode(ROWS, KNOWN, COIN).paper_bits is None


def test_other_messages_are_refused() -> None:
    thrice, values = FCC(Sign(), 3).encode(ROWS, KNOWN, COIN), Payload({"values": Field(ROWS, Float())})
    for payload, name in ((thrice, "2/signs"), (values, "values")):
        with pytest.raises(WireError, match=f"this message holds {name}; expected 2 repeated messages"):
            FCC(Sign(), 2).decode(payload, KNOWN)
