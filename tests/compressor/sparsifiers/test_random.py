"""Sparsifiers that draw places: closed forms, degenerate cases, bits, and what needs not be sent."""

import pytest
import torch
from torch import Tensor

from fedcomp.compressor.seed import seed_number, seed_words
from fedcomp.compressor.sparsifiers.sparse_indices import compact, expand
from fedcomp.random.keys import Key
from tests.compressor.round_trips import draws, gauss, joint_draws, known, mean_square
from tests.looped import looped
from tests.parts import Codec, Induced, PermK, RandK, RandomMask, Wangni

DIM, NUM, PERMK = 12, 5, PermK()


def _uneven(num: int = NUM, dim: int = DIM, power: int = 4, seed: int = 1) -> Tensor:
    """[M, D] entries of very different size."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num, dim, generator=generator) * torch.rand(num, dim, generator=generator).mul(power).exp()


WHOLE = [
    *(RandK(1.0, places=places) for places in ("seed", "index", "bitmap", "rice")),
    *(RandK(k=DIM, places=places) for places in ("seed", "index", "bitmap", "rice")),
    *(RandomMask(1.0), Induced(k=DIM, restricted=True), Wangni(k=DIM), Wangni(k=DIM, values="sign")),
]


@looped("codec", WHOLE)
def test_all_entries_are_exact(codec: Codec) -> None:
    for x in (gauss(NUM, DIM), _uneven()):
        sent = draws(codec, x, 1)[0]
        assert torch.allclose(sent, x) if isinstance(codec, Induced) else torch.equal(sent, x)


def test_senders_draw_independently() -> None:
    # One mask for all would make the mean's error (D/k - 1)||mean||^2, here n times as large.
    codec, one = RandK(k=3), gauss(1, DIM)
    x = one.expand(NUM, -1)
    error, deviation = mean_square(draws(codec, x, 4000).mean(1, keepdim=True) - one)
    wanted = float(codec.expected_error(one)) / NUM
    assert abs(float(error) - wanted) < 5 * float(deviation)
    assert wanted < float(codec.expected_error(one)) / 2


def test_sent_seed_is_all_that_the_receiver_needs() -> None:
    codec, x = RandK(0.5), gauss(NUM, DIM)
    payload = codec.encode(x, known(NUM, DIM, "sender's view"), Key(("coin",)))
    elsewhere = known(NUM, DIM, "another round")
    assert torch.equal(codec.decode(payload, elsewhere), codec.decode(payload, known(NUM, DIM, "sender's view")))
    seeds = torch.tensor([(3 << 32) + 7, -5])
    assert torch.equal(seed_number(seed_words(seeds)), seeds)


def test_bits_are_those_of_the_entries_alone() -> None:
    codec, x = RandomMask(0.3, seed_cost="derived"), torch.ones(50, 400)
    payload = codec.encode(x, known(50, 400), Key())
    sent = codec.decode(payload, known(50, 400)).count_nonzero(1)
    assert payload.bits.tolist() == (32 * sent).tolist()
    # 400 p entries on average, with standard deviation sqrt(400 p (1 - p)) / sqrt(50) = 1.3 of the mean.
    assert abs(float(sent.double().mean()) - 120) < 5 * 1.3


def test_compaction_and_back() -> None:
    x = torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]])
    mask = torch.tensor([[True, False, True, False], [False] * 4, [True] * 4])
    packed = compact(x, mask)
    assert packed.tolist() == [[1, 3, 0, 0], [0, 0, 0, 0], [9, 10, 11, 12]]
    assert torch.equal(expand(packed, mask), x * mask)


def test_restricted_places_are_uniform_over_the_rest() -> None:
    codec, x, num = Induced(k=6, restricted=True), _uneven(1, 13, 2, 2).expand(6000, -1), 6000
    shared = known(num, 13)
    largest = x.abs().topk(3, dim=1, sorted=False).indices.sort(dim=1).values
    payload = codec.encode(x, shared, shared.key)
    drawn = codec._drawn(payload, largest, shared)
    hits = torch.zeros(13).index_add_(0, drawn.flatten(), torch.ones(drawn.numel()))
    assert not hits[largest[0]].any()
    rest = [place for place in range(13) if place not in largest[0].tolist()]
    # Each is drawn with probability 3/10: standard deviation sqrt(6000 * 0.3 * 0.7) = 35.
    assert ((hits[rest] - 0.3 * num).abs() < 5 * 35.5).all()
    assert codec.expected_error(x[:1]).item() == pytest.approx((10 / 3 - 1) * float(x[0, rest].square().sum()))


def test_an_odd_k_is_rounded_down() -> None:
    """As in the experiments that have it: both parts send floor(k / 2)."""
    assert Induced(k=7).parts(40) == (3, 3) == Induced(k=6).parts(40)
    assert Induced(k=2).parts(40) == Induced(0.001).parts(40) == (1, 1)


@looped("num, dim", [(3, 12), (5, 12), (1, 7), (7, 7), (4, 1001), (12, 5), (10, 5)])
def test_parts_cover_the_vector_once_and_more_senders_than_entries_have_one_each(num: int, dim: int) -> None:
    sent, (few, many) = joint_draws(PERMK, torch.ones(num, dim), 1)[0], sorted((num, dim))
    assert (sent.count_nonzero(0 if num <= dim else 1) == 1).all()
    assert set(sent.count_nonzero(1 if num <= dim else 0).tolist()) <= {many // few, -(-many // few)}


def test_every_sender_is_as_likely_to_have_a_longer_part() -> None:
    """Of 12 entries two of five senders have 3, the others 2."""
    shares = joint_draws(PERMK, torch.ones(NUM, DIM), 1000).count_nonzero(2).double()
    assert (shares.mean(0) - DIM / NUM).abs().max() < 5 * (0.24 / 1000) ** 0.5


def test_bits_are_those_of_the_parts() -> None:
    payload = PERMK.encode(torch.ones(5, 12), known(5, 12), Key())
    assert sorted(payload.bits.tolist()) == [64, 64, 64, 96, 96]


def _iterated(x: Tensor, k: int) -> Tensor:
    """The paper's own loop: scale the unsaturated probabilities until none exceeds 1."""
    p = (k * x.abs() / x.abs().sum()).clamp(max=1)
    for _ in range(len(x)):
        full = p >= 1
        p = torch.where(full, torch.ones_like(p), p * (k - full.sum()) / p[~full].sum()).clamp(max=1)
    return p


@looped("k", [1, 4, 9])
def test_probabilities_are_those_of_the_papers_loop(k: int) -> None:
    for x in _uneven():
        step = Wangni(k=k)._step(x[None])
        p = torch.where(x.abs() >= step, torch.ones_like(x), x.abs() / step)
        assert torch.allclose(p, _iterated(x.double(), k).float(), rtol=1e-5)
        assert float(p.sum()) == pytest.approx(k, rel=1e-5)


def test_error_is_no_larger_than_of_rand_k() -> None:
    assert (Wangni(k=4).expected_error(_uneven()) < RandK(k=4).expected_error(_uneven())).all()


def test_k_entries_are_sent_on_average() -> None:
    codec, x = Wangni(k=4), _uneven(1).expand(4000, -1)
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


def test_signs_are_cheaper_than_floats() -> None:
    x, shared = gauss(1, 5000), known(1, 5000)
    bits = {values: int(Wangni(0.03, values=values).encode(x, shared, shared.key).bits) for values in ("float", "sign")}
    assert bits["sign"] < 0.4 * bits["float"]
