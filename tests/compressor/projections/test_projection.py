"""Random projection: means and covariances, exactly over all sign vectors or by draws; degenerate cases; blocks.

Notation: x the change, y the decoded estimate, Cov_G and Cov_R its covariance for one Gaussian
or Rademacher vector shared by all agents:
    Cov_G = ||x||^2 I + x x^T,    Cov_R = Cov_G - 2 diag(x_i^2),    with x the mean of the agents' changes.
"""

import itertools

import pytest
import torch
from torch import Tensor

from fedcomp.compressor.projections import directions
from fedcomp.compressor.projections.count_sketch import CountSketch
from fedcomp.compressor.projections.directions import Independent, tree_sum, width
from fedcomp.compressor.projections.projection import Projection
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.compressor.round_trips import gauss, passed, round_trip
from tests.looped import looped

D = 6
SIGNS = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=D)))
"""All 2^6 sign vectors: the mean over them is the expectation."""
AGENTS = torch.tensor(
    [[0.5, -1.0, 0.25, 0.0, 2.0, -0.75], [1.0, 0.5, -0.25, 1.5, 0.5, 0.25], [-0.5, 0.5, 1.0, 0.0, -1.5, 0.5]]
)
"""Changes of three agents, in eighths, so that float32 makes no error."""
NUM_DRAWS = 20_000


def _common(num: int, dim: int, **options) -> SharedKnowledge:
    return SharedKnowledge(Key(("projection",)), torch.arange(num), (dim,), **options)


@pytest.fixture
def every_sign(monkeypatch: pytest.MonkeyPatch):
    """Row i of the codec's own draws becomes the i-th of all sign vectors, over and over; the rest is the codec."""

    def rademacher(self, ids, num, start=0):
        assert start == 0
        rows = SIGNS if len(ids) == 1 else SIGNS[torch.arange(len(ids)) % len(SIGNS)]
        return torch.nn.functional.pad(rows, (0, num - D))

    monkeypatch.setattr(Key, "rademacher", rademacher)


def _covariance(y: Tensor) -> Tensor:
    centred = (y - y.mean(0)).double()
    return centred.t() @ centred / len(y)


def _gaussian(x: Tensor) -> Tensor:
    return x.square().sum() * torch.eye(D, dtype=torch.float64) + torch.outer(x, x)


def _estimates(distribution: str) -> Tensor:
    """[draws, D] float64 estimates of the mean change."""
    mean = AGENTS.mean(0)
    return round_trip(Projection("per_agent", distribution), mean.expand(NUM_DRAWS, -1)).double()


def _within(sample: Tensor, expected: Tensor | float, errors: float = 5) -> Tensor:
    """Whether the mean over draws [draws, ...] is within `errors` standard errors of what is expected."""
    error = sample.std(0) / len(sample) ** 0.5
    return ((sample.mean(0) - expected).abs() <= errors * error + 1e-9).all()


def test_rademacher_mean_and_covariance_over_all_sign_vectors(every_sign) -> None:
    x = 3 * AGENTS.mean(0)  # in eighths
    y = round_trip(Projection(), x.expand(len(SIGNS), -1))
    assert torch.equal(y.mean(0), x)
    x = x.double()
    expected = _gaussian(x) - 2 * torch.diag(x.square())
    assert torch.equal(_covariance(y), expected)
    assert torch.isclose(expected.trace(), (D - 1) * x.square().sum())
    assert torch.equal(y.square().sum(1).double().mean(), D * x.square().sum())


@looped("distribution, length", [("gaussian", D + 2), ("rademacher", D), ("sphere", D)])
def test_unbiased_and_as_long_as_expected_by_draws(distribution: str, length: int) -> None:
    y, x = _estimates(distribution), AGENTS.mean(0).double()
    assert _within(y, x)
    assert not _within(y, 1.1 * x)
    size = x.square().sum()
    assert _within(y.square().sum(1), length * size)
    assert not _within(y.square().sum(1), (length + 1) * size)


def test_paper_proposition_3_1_does_not_hold() -> None:
    """Cov_G - Cov_R is 2 diag(mean_i^2), not the claimed (2 / N^2) sum_n ||delta_n||^2 I, many errors away."""
    x, num = AGENTS.mean(0).double(), len(AGENTS)
    claimed = 2 / num**2 * AGENTS.double().square().sum()  # on every entry of the diagonal
    gaussian, rademacher = ((_estimates(name) - x).square() for name in ("gaussian", "rademacher"))
    gain = gaussian - rademacher  # [draws, D] whose mean is the difference of the diagonals
    assert _within(gain, 2 * x.square())
    assert not _within(gain, claimed, errors=20)
    assert not _within(gain.sum(1), claimed * D, errors=20)
    # For one agent the paper's Gaussian trace is (1 + 4 d) ||delta||^2, in truth it is (d + 1) ||delta||^2.
    assert not _within(gaussian.sum(1), (1 + 4 * D) * x.square().sum(), errors=20)


@looped(
    "how, distribution, num, factor",
    [
        ("independent", "rademacher", 3, (D - 1) / 3),
        ("independent", "gaussian", 2, (D + 1) / 2),
        ("independent", "sphere", 2, (D - 1) / 2),
        ("orthonormal", "gaussian", 4, D / 4 - 1),
    ],
)
def test_error_falls_with_the_number_of_projections(how: str, distribution: str, num: int, factor: float) -> None:
    codec, x = Projection("per_agent", distribution, num, how), AGENTS.mean(0)
    draws = 1000 if how == "orthonormal" else NUM_DRAWS // 2
    y = round_trip(codec, x.expand(draws, -1)).double()
    error, size = (y - x).square().sum(1), x.double().square().sum()
    assert _within(y, x.double())
    assert _within(error, factor * size)
    assert not _within(error, 1.2 * factor * size)


@looped("vector", ["shared", "per_agent"])
def test_all_orthonormal_directions_are_exact(vector: str) -> None:
    x = gauss(3, 47)
    codec = Projection(vector, num_projections=47, directions="orthonormal")
    known = _common(3, 47)
    payload = codec.encode(x, known, Key())
    assert torch.allclose(codec.decode(payload, known), x, rtol=0, atol=1e-5)
    # Without rounding the scalars to float32 only the error of float64 is left.
    span, source = codec._directions, codec._source(payload, known)
    exact = torch.cat([entries for _, entries in span.blocks(span.project(x, source), source, 47)], 1)
    assert float((exact - x).abs().max()) < 1e-10


def test_one_orthonormal_direction_is_the_sphere() -> None:
    x = gauss(4, 33, seed=1)
    sphere, subspace = Projection(distribution="sphere"), Projection(directions="orthonormal")
    assert torch.allclose(round_trip(sphere, x), round_trip(subspace, x), rtol=1e-5)


def test_one_dimension_is_exact() -> None:
    x = torch.tensor([[3.7], [-1e-3], [0.0]])
    assert torch.equal(round_trip(Projection(), x), x)
    assert torch.allclose(round_trip(Projection(distribution="sphere", num_projections=2), x), x)


@looped("how", ["independent", "orthonormal"])
@looped("vector", ["shared", "per_agent"])
def test_values_follow_from_the_seed_alone(vector: str, how: str, monkeypatch) -> None:
    """Several blocks: any cohort gives the same messages, and a sum needs no decoded rows."""
    monkeypatch.setattr(directions, "BLOCK", 256)
    x = gauss(5, 1000, seed=2)
    codec, known = Projection(vector, "gaussian", 3, how), _common(5, 1000)
    payload = codec.encode(x, known, Key())
    for row in range(5):
        alone = codec.encode(x[row : row + 1], SharedKnowledge(known.key, known.ids[row : row + 1], (1000,)), Key())
        assert all(torch.equal(field.data[0], payload.fields[name].data[row]) for name, field in alone.fields.items())
    weight = torch.tensor([0.1, 0.3, 0.2, 0.25, 0.15])
    decoded = codec.decode(payload, known)
    assert torch.allclose(codec.weighted_sum(payload, known, weight), weight @ decoded, atol=1e-3)
    assert (decoded[:, -1] != 0).all()
    assert torch.unique(decoded.abs(), dim=1).shape[1] == 1000  # no block repeats another


def test_shared_vectors_are_one_for_all() -> None:
    y = passed(Projection("shared"), AGENTS, _common(3, D))
    assert torch.equal(y.abs(), y.abs()[:, :1].expand(-1, D))
    direction = y * y[:, :1].sign()
    assert torch.equal(direction.sign(), direction[:1].sign().expand(3, -1))
    own = round_trip(Projection("per_agent"), torch.ones(64, D))
    assert len(torch.unique(own.sign() * own[:, :1].sign(), dim=0)) > 8


def test_a_seed_that_both_ends_hold_is_not_sent() -> None:
    codec = Projection("per_agent", "gaussian")
    payload = codec.encode(AGENTS, _common(3, D, seed=torch.tensor([5, 5, 6])), Key())
    assert payload.bits.tolist() == [32] * 3
    other = codec.encode(AGENTS[:1].expand(3, -1), _common(3, D, seed=torch.tensor([5, 5, 6])), Key())
    r = other.fields["scalars"].data[:, 0]
    assert r[0] == r[1]
    assert r[0] != r[2]


def test_sum_of_blocks_is_a_small_part_of_all_rows(monkeypatch) -> None:
    """The server of 64 clients with 40,000 entries never holds 64 x 40,000 numbers."""
    monkeypatch.setattr(directions, "BLOCK", 1024)
    codec, known = Projection("per_agent", seed_cost="derived"), _common(64, 40_000)
    largest = []
    original = tree_sum

    def noted(terms, dim):
        largest.append(terms.numel())
        return original(terms, dim)

    monkeypatch.setattr(directions, "tree_sum", noted)
    payload = codec.encode(torch.ones(64, 40_000), known, Key())
    codec.weighted_sum(payload, known, torch.ones(64))
    assert max(largest) == 64 * width(40_000) == 64 * 1024


@looped("num", [1, 2, 3, 7, 64, 233])
def test_tree_sum(num: int) -> None:
    terms = torch.randn(4, num, generator=torch.Generator().manual_seed(num), dtype=torch.float64)
    assert torch.allclose(tree_sum(terms.clone(), 1), terms.sum(1), rtol=1e-12)
    assert torch.allclose(tree_sum(terms.t().clone(), 0), terms.sum(1), rtol=1e-12)


class Noted:
    """Implements `Source` of one stream; notes which draws were asked for."""

    def __init__(self) -> None:
        self.ids = torch.zeros(1, dtype=torch.int64)
        self.asked: list[int] = []

    def draw(self, distribution: str, num: int, start: int) -> Tensor:
        self.asked += range(start, start + num)
        return Key().rademacher(self.ids, num, start)


@looped("block", [128, 256, 1 << 16])
@looped("num", [1, 2, 5])
def test_every_draw_belongs_to_one_place_of_one_direction(monkeypatch, block: int, num: int) -> None:
    monkeypatch.setattr(directions, "BLOCK", block)
    source = Noted()
    scalars = Independent("rademacher", num).project(torch.ones(1, 300), source)  # type: ignore[arg-type]
    assert scalars.shape == (1, num)
    assert sorted(source.asked) == list(range(num * -(-300 // directions.width(300)) * directions.width(300)))


def _known(dim: int, num: int = 1, *name: int) -> SharedKnowledge:
    return SharedKnowledge(Key(("sketch test", *name)), torch.arange(num), (dim,))


def _sketched(codec: CountSketch, x: Tensor, num: int) -> Tensor:
    """[num, D] with hashes of their own."""
    known = [_known(len(x), 1, draw) for draw in range(num)]
    return torch.cat([codec.estimates(codec.sketch(x[None], one), one) for one in known])


@looped("rows, least, most", [(1, 0.9, 1.1), (3, 0.38, 0.46), (5, 0.24, 0.30)])
def test_estimates_are_unbiased_and_as_precise_as_their_rows(rows: int, least: float, most: float) -> None:
    x = gauss(2048, seed=1)
    off = _sketched(CountSketch(rows, 256), x, 60) - x
    variance = float(off.square().mean()) * 256 / float(x.square().sum())
    assert least < variance < most
    # Over entries and draws; a lower median of four rows has -0.29.
    scaled = off * 256**0.5 / x.norm()
    assert abs(float(scaled.mean())) < 5 * float(scaled.mean(1).std()) / 60**0.5 + 1e-3


def test_entries_that_collide_add_up_with_their_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    signs = torch.tensor([1.0, -1.0, 1.0])
    monkeypatch.setattr(CountSketch, "_hashes", lambda *_: (torch.tensor([0, 0, 1]), signs))
    codec, x = CountSketch(3, 2), torch.tensor([[5.0, 2.0, 7.0]])
    assert codec.estimates(codec.sketch(x, _known(3)), _known(3)).tolist() == [[3.0, -3.0, 7.0]]


def test_a_seed_of_the_run_gives_all_messages_the_same_hashes() -> None:
    codec, x = CountSketch(3, 20), gauss(2, 100, seed=3)
    one, other = (SharedKnowledge(Key((n,)), torch.arange(2) + n, (100,), seed=torch.tensor([9])) for n in (1, 2))
    assert torch.equal(codec.sketch(x, one), codec.sketch(x, other))
    assert not torch.equal(codec.sketch(x, _known(100, 2, 1)), codec.sketch(x, _known(100, 2, 2)))


def test_touched_cells_are_those_of_the_entries_and_rows_have_signs_of_their_own() -> None:
    codec, known = CountSketch(9, 50), _known(400)
    x = torch.zeros(1, 400)
    x[0, [3, 77]] = torch.tensor([1.5, -4.0])
    cells = codec.sketch(x, known)[0]
    assert torch.equal(codec.touched(torch.tensor([3, 77]), known), cells != 0)
    assert set(cells.view(9, 50).sum(1).abs().tolist()) == {2.5, 5.5}


def test_a_sketch_that_compresses_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    CountSketch(5, 20).check_dim(100)
    assert "a sketch of 5 x 20 cells for 100 entries compresses nothing" in caplog.text
