"""Muon: its orthogonalised steps in closed form, what AdamW trains, unequal numbers of steps, what is remembered."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedcomp.client.adam import Adam
from fedcomp.client.muon import POLYNOMIALS, Muon, orthogonalised
from fedcomp.core.parameter_layout import BIAS, EMBEDDING, WEIGHT, ParameterSubset, ParameterTensor
from tests.client.test_solver import Quadratics
from tests.looped import looped

STEPS = (5, 3, 1)
TENSORS = (
    ParameterTensor(8, EMBEDDING, 4),
    ParameterTensor(24, WEIGHT, 4),  # 6 x 4
    ParameterTensor(6, BIAS),
    ParameterTensor(12, WEIGHT, 6),  # 2 x 6, the head
)
D = 50
TALL = slice(8, 32)
MUON = Muon(lr=0.1, adam_lr=0.02, weight_decay=0.3, tensors=TENSORS)


def _scalar(value: float) -> float:
    """What the polynomials make of one singular value."""
    for a, b, c in POLYNOMIALS:
        value = a * value + b * value**3 + c * value**5
    return value


def _by_svd(matrix: Tensor) -> Tensor:
    """NS of one matrix [m, n] by its singular values."""
    left, values, right = torch.linalg.svd(matrix / matrix.norm(), full_matrices=False)
    return left @ torch.diag(torch.tensor([_scalar(float(one)) for one in values], dtype=matrix.dtype)) @ right


@looped("shape", [(64, 96), (96, 64), (7, 3), (1, 9)])
def test_singular_values_end_near_one_and_vectors_stay(shape: tuple[int, int]) -> None:
    matrices = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = orthogonalised(matrices)
    assert (torch.linalg.svdvals(found) - 1).abs().max() < 0.1
    for one, expected in zip(found, matrices):
        torch.testing.assert_close(one, _by_svd(expected), rtol=0, atol=1e-9)
    assert (torch.linalg.svdvals(orthogonalised(matrices.float())) - 1).abs().max() < 0.1


def test_orthogonal_matrices_stay_but_for_a_factor_and_zero_stays_zero() -> None:
    q = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q
    torch.testing.assert_close(orthogonalised(5 * q[None])[0], _scalar(6**-0.5) * q)
    torch.testing.assert_close(orthogonalised(1e-30 * q[None]), orthogonalised(1e30 * q[None]))
    assert not orthogonalised(torch.zeros(2, 3, 4)).any()


@looped("scale, size", [("spectral_norm", (6 / 4) ** 0.5), ("rms_norm", 0.2 * 6**0.5)])
@looped("rounds", [1, 2])
def test_matrices_take_muons_steps_and_the_rest_adamws(scale: str, size: float, rounds: int) -> None:
    """Against one client at a time; a second round goes on with the memories of the first."""
    world, muon = Quadratics(STEPS, D, TENSORS), replace(MUON, scale=scale)
    start, stats = 2 * world.centre, torch.zeros(3, 0)
    memory = muon.init_persistent(3, start[0])
    for _ in range(rounds):
        result = muon.run(world, start, stats, (0, 1), memory=memory)
        memory = result.memory
    adamw = Adam(lr=0.02, beta2=0.99, weight_decay=0.3, decoupled=True)
    rest, others = adamw.init_persistent(3, start[0]), ParameterSubset(D, ((0, 8), (32, 50)), (8, 18))
    for _ in range(rounds):
        expected = adamw.run(world, start, stats, (0, 1), memory=rest)
        rest = expected.memory
    torch.testing.assert_close(others.take(result.value), others.take(expected.value), rtol=1e-12, atol=1e-12)
    for client, steps in enumerate(STEPS):
        momentum = torch.zeros(6, 4, dtype=torch.float64)
        for _ in range(rounds):
            w = start[client, TALL].view(6, 4).clone()
            for step in range(steps):
                grad = world.h[TALL] * (w.flatten() - world.centre[client, TALL]) + world.noise[step, TALL]
                momentum = 0.9 * momentum + grad.view(6, 4)
                w = (1 - 0.1 * 0.3) * w - 0.1 * size * _by_svd(momentum)
        torch.testing.assert_close(result.value[client, TALL], w.flatten(), rtol=0, atol=1e-9)
    assert memory[-1][:, 0].tolist() == [rounds * steps for steps in STEPS]
    if rounds == 1:
        fresh = muon.run(world, start, stats, (0, 1))
        torch.testing.assert_close(fresh.value, result.value, rtol=1e-12, atol=1e-12)


def test_the_schedule_is_that_of_both_rates() -> None:
    muon = replace(MUON, schedule="linear", lr_final=0.5)
    assert muon.step_coefficients(0, muon.learning_rate((2, 3)))[0] == pytest.approx(-0.05)
    assert muon.step_coefficients(10**6, muon.learning_rate((2, 3)))[2] == pytest.approx(-0.01)


def test_which_matrices_it_trains(caplog: pytest.LogCaptureFixture) -> None:
    assert MUON.matrices == ((8, 6, 4),)
    assert MUON.rest.runs == ((0, 8), (32, 50))
    assert replace(MUON, skip_last=0).matrices == ((8, 6, 4), (38, 2, 6))
    with caplog.at_level(logging.WARNING, "fedcomp"):
        MUON.check_tensors(TENSORS)
        assert not caplog.text
        MUON.check_tensors(TENSORS[2:])
    assert "client=muon is AdamW here" in caplog.text


def test_from_the_command_line(fedcomp, tmp_path: Path) -> None:
    common = ("client=muon", "rounds=2", "num_clients=3", "pictures=false", f"output_root={tmp_path}")
    assert fedcomp(*common, "server=nesterov", "algorithm.persist_optimizer=true", "client.steps=2") == 0
    logs = [path.read_text() for path in tmp_path.rglob("run.log")]
    assert not any("client=muon is AdamW here" in text for text in logs)
    assert fedcomp(*common, "model=linear") == 0
    assert any("client=muon is AdamW here" in path.read_text() for path in tmp_path.rglob("run.log"))
