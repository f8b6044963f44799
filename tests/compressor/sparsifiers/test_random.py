"""Sparsifiers that draw places: closed forms, degenerate cases, bits, and what needs not be sent."""

import pytest
import torch

from fedcomp.compressor.sparsifiers.sparse_indices import compact, expand
from fedcomp.random.keys import Key
from tests.compressor.round_trips import draws, joint_draws, known, mean_square
from tests.looped import looped
from tests.parts import Induced, PermK, RandK, RandomMask, Wangni

DIM, NUM = 12, 5


def _rows(num: int = NUM, dim: int = DIM, seed: int = 0) -> torch.Tensor:
    return torch.randn(num, dim, generator=torch.Generator().manual_seed(seed))


@looped("places", ["seed", "index", "bitmap", "rice"])
def test_all_entries_are_exact(places: str) -> None:
    x = _rows()
    assert torch.equal(draws(RandK(1.0, places=places), x, 1)[0], x)
    assert torch.equal(draws(RandK(k=DIM, places=places), x, 1)[0], x)


def test_senders_draw_independently() -> None:
    # One mask for all would make the mean's error (D/k - 1)||mean||^2, here n times as large.
    codec, one = RandK(k=3), _rows(1)
    x = one.expand(NUM, -1)
    error, deviation = mean_square(draws(codec, x, 4000).mean(1, keepdim=True) - one)
    wanted = float(codec.expected_error(one)) / NUM
    assert abs(float(error) - wanted) < 5 * float(deviation)
    assert wanted < float(codec.expected_error(one)) / 2


def test_sent_seed_is_all_that_the_receiver_needs() -> None:
    codec, x = RandK(0.5), _rows()
    payload = codec.encode(x, known(NUM, DIM, "sender's view"), Key(("coin",)))
    elsewhere = known(NUM, DIM, "another round")
    assert torch.equal(codec.decode(payload, elsewhere), codec.decode(payload, known(NUM, DIM, "sender's view")))


def _r1() -> torch.Tensor:
    return torch.randn(4, 12, generator=torch.Generator().manual_seed(0))


def test_bits_are_those_of_the_entries_alone() -> None:
    codec, x = RandomMask(0.3, seed_cost="derived"), torch.ones(50, 400)
    payload = codec.encode(x, known(50, 400), Key())
    sent = codec.decode(payload, known(50, 400)).count_nonzero(1)
    assert payload.bits.tolist() == (32 * sent).tolist()
    # 400 p entries on average, with standard deviation sqrt(400 p (1 - p)) / sqrt(50) = 1.3 of the mean.
    assert abs(float(sent.double().mean()) - 120) < 5 * 1.3


def test_everything_is_exact() -> None:
    assert torch.equal(draws(RandomMask(1.0), _r1(), 1)[0], _r1())


def test_compaction_and_back() -> None:
    x = torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]])
    mask = torch.tensor([[True, False, True, False], [False] * 4, [True] * 4])
    packed = compact(x, mask)
    assert packed.tolist() == [[1, 3, 0, 0], [0, 0, 0, 0], [9, 10, 11, 12]]
    assert torch.equal(expand(packed, mask), x * mask)


def _r2() -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(5, 13, generator=generator) * torch.rand(5, 13, generator=generator).mul(2).exp()


def test_restricted_places_are_uniform_over_the_rest() -> None:
    codec, x, num = Induced(k=6, restricted=True), _r2()[:1].expand(6000, -1), 6000
    shared = known(num, 13)
    largest = x.abs().topk(3, dim=1, sorted=False).indices.sort(dim=1).values
    payload = codec.encode(x, shared, shared.key)
    drawn = codec._drawn(payload, largest, shared)
    hits = torch.zeros(13).index_add_(0, drawn.flatten(), torch.ones(drawn.numel()))
    assert not hits[largest[0]].any()
    rest = [place for place in range(13) if place not in largest[0].tolist()]
    # Each is drawn with probability 3/10: standard deviation sqrt(6000 * 0.3 * 0.7) = 35.
    assert ((hits[rest] - 0.3 * num).abs() < 5 * 35.5).all()


def test_restricted_sends_everything_if_it_may() -> None:
    x = _r2()[:, :12]
    assert torch.allclose(draws(Induced(k=12, restricted=True), x, 1)[0], x)


def test_an_odd_k_is_rounded_down() -> None:
    """As in the experiments that have it: both parts send floor(k / 2)."""
    assert Induced(k=7).parts(40) == (3, 3) == Induced(k=6).parts(40)
    assert Induced(k=2).parts(40) == Induced(0.001).parts(40) == (1, 1)


CODEC = PermK()


@looped("num, dim", [(3, 12), (5, 12), (1, 7), (7, 7), (4, 1001)])
def test_parts_cover_the_vector_once(num: int, dim: int) -> None:
    sent = joint_draws(CODEC, torch.ones(num, dim), 1)[0]
    assert (sent.count_nonzero(0) == 1).all()
    assert set(sent.count_nonzero(1).tolist()) <= {dim // num, -(-dim // num)}


@looped("num, dim", [(3, 12), (5, 12), (1, 7)])
def test_mean_of_equal_vectors_is_exact(num: int, dim: int) -> None:
    x = torch.randn(1, dim, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(joint_draws(CODEC, x.expand(num, -1), 1)[0].mean(0), x[0])


@pytest.mark.parametrize(("num", "dim"), [(12, 5), (10, 5)])
def test_more_senders_than_entries(num: int, dim: int) -> None:
    sent = joint_draws(CODEC, torch.ones(num, dim), 1)[0]
    assert (sent.count_nonzero(1) == 1).all()
    assert set(sent.count_nonzero(0).tolist()) <= {num // dim, -(-num // dim)}


@looped("num, dim", [(3, 7), (5, 12), (7, 4)])
def test_every_sender_gets_every_entry_equally_often(num: int, dim: int) -> None:
    hits = (joint_draws(CODEC, torch.ones(num, dim), 800) != 0).double().mean(0)
    share = 1 / min(max(num, 1), dim)
    assert ((hits - share).abs() < 5 * (share * (1 - share) / 800) ** 0.5).all()


def test_bits_are_those_of_the_parts() -> None:
    payload = CODEC.encode(torch.ones(5, 12), known(5, 12), Key())
    assert sorted(payload.bits.tolist()) == [64, 64, 64, 96, 96]


def _r3(num: int = 5, dim: int = 12) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(num, dim, generator=generator) * torch.rand(num, dim, generator=generator).mul(4).exp()


def _iterated(x: torch.Tensor, k: int) -> torch.Tensor:
    """The paper's own loop: scale the unsaturated probabilities until none exceeds 1."""
    p = (k * x.abs() / x.abs().sum()).clamp(max=1)
    for _ in range(len(x)):
        full = p >= 1
        p = torch.where(full, torch.ones_like(p), p * (k - full.sum()) / p[~full].sum()).clamp(max=1)
    return p


@looped("k", [1, 4, 9])
def test_probabilities_are_those_of_the_papers_loop(k: int) -> None:
    for x in _r3():
        step = Wangni(k=k)._step(x[None])
        p = torch.where(x.abs() >= step, torch.ones_like(x), x.abs() / step)
        assert torch.allclose(p, _iterated(x.double(), k).float(), rtol=1e-5)
        assert float(p.sum()) == pytest.approx(k, rel=1e-5)


def test_error_is_no_larger_than_of_rand_k() -> None:
    assert (Wangni(k=4).expected_error(_r3()) < RandK(k=4).expected_error(_r3())).all()


def test_k_entries_are_sent_on_average() -> None:
    codec, x = Wangni(k=4), _r3(1).expand(4000, -1)
    shared = known(4000, 12)
    sent = codec.encode(x, shared, shared.key).fields["sent_values"].count.double()
    assert abs(float(sent.mean()) - 4) < 5 * float(sent.std()) / 4000**0.5


def test_degenerate_vectors() -> None:
    sparse = torch.zeros(1, 12)
    sparse[0, [2, 7]] = torch.tensor([3.0, -1.0])
    for values in ("float", "sign"):
        codec = Wangni(k=4, values=values)
        assert torch.equal(draws(codec, sparse, 1)[0], sparse)  # no more than k non-zeros: all sent as they are
        assert not draws(codec, torch.zeros(2, 12), 1).any()
        full = _r3()
        assert torch.equal(draws(Wangni(k=12, values=values), full, 1)[0], full)


def test_signs_are_cheaper_than_floats() -> None:
    x, shared = torch.randn(1, 5000, generator=torch.Generator().manual_seed(0)), known(1, 5000)
    bits = {values: int(Wangni(0.03, values=values).encode(x, shared, shared.key).bits) for values in ("float", "sign")}
    assert bits["sign"] < 0.4 * bits["float"]
