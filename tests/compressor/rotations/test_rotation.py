"""Rotations, and EDEN, DRIVE and TurboQuant after them: orthonormal, codes, projections, pieces, uneven vectors."""

import math

import pytest
import torch
from torch import Tensor

from fedcomp.compressor.projections.rand_proj import RandProj
from fedcomp.compressor.rotations import hadamard, hadamard_numba, rotation
from fedcomp.compressor.rotations.eden import _others
from fedcomp.compressor.rotations.lloyd_max import lloyd_max
from fedcomp.compressor.rotations.quic_fl.quic_fl import QuicFL
from fedcomp.compressor.rotations.rotation import LARGEST, Rotation
from fedcomp.compressor.rotations.turboquant_prod import TurboQuantProd
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.compressor.round_trips import bias, decode_repeated, error, gauss, joint_draws, round_trip, vector
from tests.looped import looped
from tests.parts import Codec, Drive, Eden, Induced, RandK, RandomMask, Wangni
from tests.thorough import thorough

KEY = Key(("rotation test",))
DIMS = (1, 2, 3, 7, 33, 64, 100, 600, 5001)


@looped("rounds", [1, 2, 3])
def test_is_orthonormal(rounds: int) -> None:
    for dim in DIMS[:-2]:
        ids = torch.full((dim,), 4)
        matrix = Rotation(dim, rounds).forward(torch.eye(dim), KEY, ids).double()
        assert torch.allclose(matrix @ matrix.T, torch.eye(dim, dtype=torch.float64), atol=1e-6)


@looped("dim", [*DIMS, LARGEST, LARGEST + 1, 2 * LARGEST + 77_777])
def test_inverse_undoes_and_length_stays(dim: int) -> None:
    x, ids, turned = gauss(2, dim, seed=dim), torch.tensor([3, -1]), Rotation(dim, 2)
    z = turned.forward(x, KEY, ids)
    assert z.shape == x.shape
    assert torch.allclose(z.norm(dim=1), x.norm(dim=1), rtol=1e-5)
    assert torch.allclose(turned.inverse(z, KEY, ids), x, atol=1e-5)


@looped("size", [1 << power for power in range(18)])
@looped("inverse", [False, True])
def test_compiled_transform_is_that_of_the_tensors(size: int, inverse: bool) -> None:
    slow = gauss(3, size + 5, seed=size)
    fast, words = slow.clone(), KEY.bits(torch.arange(3), -(-size // 32)).contiguous()
    hadamard.apply(slow, 2, size, words, inverse)
    hadamard_numba.apply(fast.numpy(), 2, size, words.numpy(), hadamard.scale(size), inverse)
    assert torch.equal(fast, slow)


def test_transform_is_hadamards_matrix() -> None:
    matrix = torch.ones(1, 1)
    for _ in range(4):
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
    x, words = gauss(3, 16, seed=16), KEY.bits(torch.arange(3), 1)
    expected = (x * KEY.rademacher(torch.arange(3), 16)) @ matrix / 4
    hadamard.apply(x, 0, 16, words, False)
    assert torch.allclose(x, expected, atol=1e-6)


@pytest.mark.parametrize("dim", [600, LARGEST + 300, 2 * LARGEST + 77_777])
def test_rows_do_not_depend_on_their_neighbours_or_on_compilation(dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, ids = gauss(4, dim, seed=dim), torch.tensor([5, 6, 9, (1 << 40) + 1])
    whole = Rotation(dim).forward(x, KEY, ids)
    assert torch.equal(Rotation(dim).forward(x[2:3], KEY, ids[2:3]), whole[2:3])
    monkeypatch.setattr(rotation, "COMPILED", 1 << 40)
    assert torch.equal(Rotation(dim).forward(x, KEY, ids), whole)
    back, alone = (Rotation(dim).inverse(whole[part], KEY, ids[part]) for part in (slice(0, 2), slice(1, 2)))
    assert torch.equal(back[1], alone[0])


def test_equal_pieces_are_one_batch_where_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "COMPILED", 1 << 40)
    seen = []
    apply = hadamard.apply
    monkeypatch.setattr(hadamard, "apply", lambda *given: seen.append((given[2], given[5])) or apply(*given))
    Rotation(2 * LARGEST + 77_777).forward(gauss(1, 2 * LARGEST + 77_777), KEY, torch.tensor([3]))
    assert seen == [(LARGEST, 2), (1 << 16, 1), (1 << 16, 1)]


def test_pieces_of_the_networks() -> None:
    assert Rotation(1_933_258).pieces == (LARGEST,) * 14 + (98_250,)
    assert Rotation(LARGEST).pieces == (LARGEST,)
    assert Rotation(3).pieces == (3,)
    assert Rotation(0).pieces == ()


def test_senders_keys_rounds_and_blocks_have_signs_of_their_own() -> None:
    dim = 2 * LARGEST + 96
    x = torch.ones(2, dim)
    z = Rotation(dim).forward(x, KEY, torch.tensor([0, 1]))
    parts = [z[0, :LARGEST], z[0, LARGEST : 2 * LARGEST], z[1, :LARGEST], z[1, LARGEST : 2 * LARGEST]]
    parts.append(Rotation(dim).forward(x[:1], KEY.fold_in(1), torch.tensor([0]))[0, :LARGEST])
    parts.append(Rotation(dim, 2).forward(x[:1], KEY, torch.tensor([0]))[0, :LARGEST])
    cosines = torch.corrcoef(torch.stack(parts)).fill_diagonal_(0)
    assert cosines.abs().max() < 5 * LARGEST**-0.5  # standard error of a correlation of independent entries


def test_a_long_constant_vector_comes_out_normal() -> None:
    z = Rotation(5001).forward(torch.ones(200, 5001), KEY, torch.arange(200)).double()
    # E z^4 = 3 for normal entries; overlapping transforms make them only nearly so. Standard error sqrt(96 / 10^6).
    assert abs(float(z.square().mean()) - 1) < 1e-5
    assert abs(float((z**4).mean()) - 3) < 5 * (96 / z.numel()) ** 0.5 + 0.05


# J. Max, "Quantizing for minimum distortion", IRE Trans. Inf. Theory 1960, table I: N(0, 1), here with more digits.
DISTORTION = {1: 1 - 2 / math.pi, 2: 0.117482, 3: 0.034548, 4: 0.009501, 5: 0.0025047, 6: 0.00064424}


def _dense(num: int, dim: int) -> Tensor:
    """One vector in all rows, whose senders draw rotations of their own."""
    return gauss(1, dim, seed=dim).expand(num, dim)


def test_distortions_are_those_of_the_table() -> None:
    for bits, expected in DISTORTION.items():
        assert lloyd_max(bits).distortion == pytest.approx(expected, abs=5e-6 * expected**0.5)


@looped("bits", range(1, 9))
def test_centroids_are_means_and_boundaries_are_midway(bits: int) -> None:
    quantiser = lloyd_max(bits)
    centroids = torch.tensor(quantiser.centroids, dtype=torch.float64)
    edges = torch.tensor([-12.0, *quantiser.boundaries, 12.0], dtype=torch.float64)
    assert torch.allclose(edges[1:-1], (centroids[1:] + centroids[:-1]) / 2)
    assert (centroids.diff() > 0).all()
    for number in (0, len(centroids) // 3, len(centroids) - 1):
        at = torch.linspace(float(edges[number]), float(edges[number + 1]), 200_001, dtype=torch.float64)
        density = torch.exp(-at.square() / 2)
        mean = torch.trapezoid(at * density, at) / torch.trapezoid(density, at)
        assert float(mean) == pytest.approx(float(centroids[number]), abs=1e-8)


def test_one_bit_is_drive() -> None:
    for scale in ("unbiased", "min_mse"):
        for dim in (1, 47, 600, LARGEST + 5):
            x = _dense(3, dim)
            assert torch.equal(round_trip(Eden(1, scale), x), round_trip(Drive(scale), x))


@looped("bits", [0.3, 1, 1.5, 2, 4])
def test_projection_is_one_in_every_draw(bits: float) -> None:
    x = _dense(50, 1500)
    projection = (round_trip(Eden(bits), x).double() * x).sum(1) / x.double().square().sum(1)
    assert (projection - 1).abs().max() < 1e-6


@looped("codec", [*map(Eden, range(1, 9)), Drive("min_mse"), Drive("unbiased")])
def test_one_hot_is_exact(codec: Drive | Eden) -> None:
    x = torch.zeros(2, 64)
    x[:, 5] = torch.tensor([3.0, -0.1])
    torch.testing.assert_close(round_trip(codec, x), x, rtol=1e-6, atol=1e-6)


def test_pieces_of_very_different_size_keep_their_own_scale() -> None:
    x = torch.cat((_dense(2, LARGEST), 1e-4 * _dense(2, 700)), 1)
    y = round_trip(Eden(4), x)
    for part in (slice(LARGEST), slice(LARGEST, None)):
        error = (y - x)[:, part].square().sum(1) / x[:, part].square().sum(1)
        assert (error < 0.012).all()


def test_others_are_what_is_left() -> None:
    places = Key().choice(torch.arange(5), 4, 11)
    for row, others in zip(places.tolist(), _others(places, 11).tolist()):
        assert others == [place for place in range(11) if place not in row]


LEFT = [1.0] + [lloyd_max(bits).distortion for bits in range(1, 5)]


@looped("bits", [1, 2, 4])
def test_codes_are_edens_and_decodes_are_parallel(bits: int) -> None:
    known = SharedKnowledge(Key(("codes",)), torch.arange(3), (700,))
    x = gauss(3, 700, seed=1)
    turbo, eden = Eden(bits, "norm"), Eden(bits)
    mine, theirs = (codec.encode(x, known, Key()) for codec in (turbo, eden))
    assert torch.equal(mine.fields[f"codes{bits}"].data, theirs.fields[f"codes{bits}"].data)
    decoded = turbo.decode(mine, known), eden.decode(theirs, known)
    ours, others = map(torch.nn.functional.normalize, decoded)
    torch.testing.assert_close(ours, others, rtol=1e-4, atol=1e-6)
    assert (mine.bits == theirs.bits).all()


@looped("bits", [1, 2, 3, 4])
def test_error_with_a_gaussian_matrix_is_the_papers(bits: int) -> None:
    x, codec = vector("gaussian", 256), TurboQuantProd(bits, "gaussian")
    y = joint_draws(codec, x[None], 100)[:, 0]
    expected = (math.pi / 2 - 1 / 256) * LEFT[bits - 1]  # 1.567, 0.569, 0.184, 0.0541; the paper prints 0.047
    assert float(codec.expected_error(x[None]) / x.double().square().sum()) == pytest.approx(expected)
    mean, deviation = error(y, x)
    assert mean == pytest.approx(expected, rel=0.01 + 4 * deviation / expected)
    assert 0.8 < bias(y, x) < 1.2


def test_second_matrix_is_not_the_first() -> None:
    # In R's coordinates what is left of z is far from normal, and z~ + a ||rho|| R^T sign(R rho) would not be unbiased.
    known = SharedKnowledge(Key(("draws",)), torch.arange(1), (64,))
    signs = TurboQuantProd(2, seed_cost="derived").encode(torch.eye(64)[3:4], known, Key()).fields["signs"].data
    assert 8 < int(signs.sum()) < 56  # R R of one entry is one entry: all signs but one would be of one kind


DRAWS = {1009: 100, 2047: 100, 61_706: 8, LARGEST + 3: 4}
"""{D: messages}. 2,047 entries go through two transforms of 1,024, which have one entry in common."""
CODECS: list[Codec] = [
    *(Drive(), Drive("unbiased"), Eden(0.5), Eden(1.5), Eden(2), Eden(4, "min_mse"), Eden(2, "norm")),
    *(TurboQuantProd(1), TurboQuantProd(3), QuicFL(1), QuicFL(3)),
    *(RandK(0.2), RandomMask(0.2), Induced(0.2), Wangni(0.2), RandProj(0.2)),
]


def uneven(kind: str, dim: int) -> Tensor:
    """[D] normal entries: the second half a tenth as large; five layers of unequal size; most entries 0, in blocks."""
    sizes, scales = {
        "halves": ((1 / 2, 1 / 2), (1.0, 0.1)),
        "layers": ((1 / 16, 1 / 16, 1 / 2, 5 / 16, 1 / 16), (1.0, 0.3, 0.02, 0.05, 0.5)),
        "zeros": ((1 / 8, 1 / 8, 1 / 2, 1 / 8, 1 / 8), (0.0, 1.0, 0.0, 1.0, 0.0)),
    }[kind]
    ends = [round(dim * share) for share in torch.tensor(sizes, dtype=torch.float64).cumsum(0).tolist()]
    scale = torch.cat([torch.full((end - begin,), one) for begin, end, one in zip([0, *ends], ends, scales)])
    return gauss(dim, seed=dim) * scale


@pytest.mark.parametrize("dim", [1009, LARGEST + 3, *thorough([2047, 61_706])])
@looped("codec", CODECS)
def test_error_is_its_closed_form_and_its_mean_is_zero(codec: Codec, dim: int) -> None:
    for kind in ("halves", "layers", "zeros") if dim < LARGEST else ("layers",):
        x, num = uneven(kind, dim), DRAWS[dim]
        alone = isinstance(codec, QuicFL)  # its senders share a rotation
        y = joint_draws(codec, x[None], num)[:, 0] if alone else decode_repeated(codec, x, (dim,), num)
        mean, deviation = error(y, x)
        expected = float(codec.expected_error(x[None])) / float(x.double().square().sum())
        assert mean == pytest.approx(expected, abs=0.015 * expected + 4 * deviation), kind
        assert bias(y, x) < 2 or not codec.unbiased, kind
