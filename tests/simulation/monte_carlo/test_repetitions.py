"""What repetitions are made of: keys under vmap, and how their results are dispersed."""

import pytest
import torch

from fedcomp.random.keys import Key
from fedcomp.simulation.monte_carlo.dispersion import circular_error, dispersion_of, dispersion_of_models, models_line
from fedcomp.simulation.monte_carlo.vmap_keys import SHORT, ClientKey, NotVmappable, VmappedKey
from tests.looped import looped

KEYS = tuple(Key(("run", number)) for number in range(3))
N = 5
DRAWS = [("bits", (7,)), ("bits", (6, 4)), ("bits", (SHORT + 1,)), ("uniform", (3,)), ("uniform", (SHORT + 3,))]
DRAWS += [("rademacher", (40,)), ("normal", (5,)), ("choice", (2, 9))]


@looped("name, options", DRAWS)
def test_clients_of_all_repetitions(name, options) -> None:
    ids = torch.tensor([14, 0, 6, 3, 10, 5])
    drawn = getattr(ClientKey((), KEYS, N).fold_in("batch", 2), name)(ids, *options)
    for row, number in enumerate(ids.tolist()):
        alone = getattr(KEYS[number // N].fold_in("batch", 2), name)(torch.tensor([number % N]), *options)
        assert torch.equal(drawn[row], alone[0])
    assert getattr(ClientKey((), KEYS, N), name)(ids[:0], *options).shape[0] == 0


@looped("name, options", DRAWS)
def test_inside_vmap(name, options) -> None:
    ids, anchor = torch.tensor([[0, 3], [1, 2], [4, 0]]), torch.arange(3)

    def draw(own, number):
        key = VmappedKey((), KEYS, number).fold_in("update")
        return getattr(key, name)(own, *options), getattr(key, name)(torch.tensor([7]), *options)

    drawn, shared = torch.func.vmap(draw)(ids, anchor)
    for number, key in enumerate(KEYS):
        assert torch.equal(drawn[number], getattr(key.fold_in("update"), name)(ids[number], *options))
        assert torch.equal(shared[number], getattr(key.fold_in("update"), name)(torch.tensor([7]), *options))


def test_one_generator_for_all_is_refused() -> None:
    for key in (ClientKey((), KEYS, N), VmappedKey((), KEYS, torch.arange(3))):
        with pytest.raises(NotVmappable, match="one generator"):
            key.fold_in("x").generator()


def test_half_of_the_points_lie_within_the_circle() -> None:
    """Distances to the mean (0, 0): 1, 1, 2, 2, 3, 3; the median is 2."""
    x = [1.0, -1, 2, -2, 3, -3]
    assert circular_error(torch.tensor([[value, 0] for value in x])) == 2
    assert circular_error(torch.tensor([[0.0, value + 7] for value in [1.0, -1, 4, -4]])) == 2.5
    assert circular_error(torch.tensor([[3.0, 4.0]])) == 0


def test_circle_is_around_the_mean_and_not_the_origin() -> None:
    points = torch.randn(41, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 100
    away = (points - points.mean(0)).norm(dim=1)
    radius = circular_error(points)
    assert (away <= radius).sum() == 21
    assert radius < 3


def test_lines() -> None:
    assert dispersion_of("test/loss", torch.tensor([1.0, 3.0])) == {"test/loss": 2, "variance/test/loss": 2}
    assert dispersion_of("test/loss", torch.tensor([1.0])) == {"test/loss": 1}
    theta = torch.tensor([[1.0, 0, 5], [3.0, 0, 5], [2.0, 0, 8]])
    line = dispersion_of_models(theta, {"test/loss": torch.tensor([1.0, 2.0, 4.0])})
    assert line["variance/theta"] == pytest.approx(1 + 0 + 3)
    assert line["cep/plane"] == 1
    assert line["cep/theta"] == pytest.approx(2**0.5)
    assert line["cep/loss"] == pytest.approx(4 / 3)
    assert models_line(theta, None) == {"theta/0": [1, 3, 2], "theta/1": [0, 0, 0]}
    assert models_line(theta[:, :1], None) == {"theta/0": [1, 3, 2]}
