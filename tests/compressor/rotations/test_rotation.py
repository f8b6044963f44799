"""The rotation: orthonormal without padding, the same compiled or not and for each row alone, mixing pieces only."""

import pytest
import torch

from fedcomp.compressor.rotations import hadamard, hadamard_numba, rotation
from fedcomp.compressor.rotations.rotation import LARGEST, Rotation
from fedcomp.random.keys import Key
from tests.looped import looped

KEY = Key(("rotation test",))
DIMS = (1, 2, 3, 7, 33, 64, 100, 600, 5001)


def _rows(num: int, dim: int) -> torch.Tensor:
    return torch.randn(num, dim, generator=torch.Generator().manual_seed(dim))


@looped("rounds", [1, 2, 3])
def test_is_orthonormal(rounds: int) -> None:
    for dim in DIMS[:-2]:
        ids = torch.full((dim,), 4)
        matrix = Rotation(dim, rounds).forward(torch.eye(dim), KEY, ids).double()
        assert torch.allclose(matrix @ matrix.T, torch.eye(dim, dtype=torch.float64), atol=1e-6)


@looped("dim", [*DIMS, LARGEST, LARGEST + 1, 2 * LARGEST + 77_777])
def test_inverse_undoes_and_length_stays(dim: int) -> None:
    x, ids, turned = _rows(2, dim), torch.tensor([3, -1]), Rotation(dim, 2)
    z = turned.forward(x, KEY, ids)
    assert z.shape == x.shape
    assert torch.allclose(z.norm(dim=1), x.norm(dim=1), rtol=1e-5)
    assert torch.allclose(turned.inverse(z, KEY, ids), x, atol=1e-5)


@looped("size", [1 << power for power in range(18)])
@looped("inverse", [False, True])
def test_compiled_transform_is_that_of_the_tensors(size: int, inverse: bool) -> None:
    slow = _rows(3, size + 5)
    fast, words = slow.clone(), KEY.bits(torch.arange(3), -(-size // 32)).contiguous()
    hadamard.apply(slow, 2, size, words, inverse)
    hadamard_numba.apply(fast.numpy(), 2, size, words.numpy(), hadamard.scale(size), inverse)
    assert torch.equal(fast, slow)


def test_transform_is_hadamards_matrix() -> None:
    matrix = torch.ones(1, 1)
    for _ in range(4):
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
    x, words = _rows(3, 16), KEY.bits(torch.arange(3), 1)
    expected = (x * KEY.rademacher(torch.arange(3), 16)) @ matrix / 4
    hadamard.apply(x, 0, 16, words, False)
    assert torch.allclose(x, expected, atol=1e-6)


@pytest.mark.parametrize("dim", [600, LARGEST + 300, 2 * LARGEST + 77_777])
def test_rows_do_not_depend_on_their_neighbours_or_on_compilation(dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, ids = _rows(4, dim), torch.tensor([5, 6, 9, (1 << 40) + 1])
    whole = Rotation(dim).forward(x, KEY, ids)
    assert torch.equal(Rotation(dim).forward(x[2:3], KEY, ids[2:3]), whole[2:3])
    monkeypatch.setattr(rotation, "COMPILED", 1 << 40)
    assert torch.equal(Rotation(dim).forward(x, KEY, ids), whole)
    assert torch.equal(
        Rotation(dim).inverse(whole[:, :], KEY, ids)[1], Rotation(dim).inverse(whole[1:2], KEY, ids[1:2])[0]
    )


def test_equal_pieces_are_one_batch_where_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "COMPILED", 1 << 40)
    seen = []
    apply = hadamard.apply
    monkeypatch.setattr(hadamard, "apply", lambda *given: seen.append((given[2], given[5])) or apply(*given))
    Rotation(2 * LARGEST + 77_777).forward(_rows(1, 2 * LARGEST + 77_777), KEY, torch.tensor([3]))
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
