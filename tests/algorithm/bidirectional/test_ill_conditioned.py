"""Methods that remember what signs leave out converge where plain sign descent stalls: condition number 1,000."""

from __future__ import annotations

import pytest
import torch

from fedcomp.algorithm.bidirectional.cser import CSER
from fedcomp.algorithm.bidirectional.doublesqueeze import DoubleSqueeze
from fedcomp.algorithm.bidirectional.liec import LIEC
from fedcomp.algorithm.bidirectional.memsgd import MemSGD
from fedcomp.algorithm.bidirectional.neolithic import Neolithic
from fedcomp.algorithm.contract import Algorithm
from tests.algorithm import quadratic
from tests.algorithm.quadratic import STEP, D, Quadratics
from tests.parts import DENSE, Compressor, FedAvg, ServerSgd, Sign

SIGN, SERVER = Compressor(Sign(granularity="model")), ServerSgd(0.1)
CLIENTS = Quadratics.of(condition=1e3)
START = CLIENTS.excess(torch.zeros(D))


def _excess(algorithm: Algorithm) -> float:
    """Of the model, or of the mean of the clients' models, after 1,500 rounds."""
    return CLIENTS.excess(quadratic.last(algorithm, CLIENTS, 1500).theta.reshape(-1, D).mean(0)) / START


@pytest.mark.thorough
def test_plain_sign_descent_stalls() -> None:
    assert _excess(FedAvg(STEP, SERVER, SIGN, DENSE, "uniform")) > 0.1
    assert _excess(FedAvg(STEP, SERVER, SIGN, SIGN, "uniform")) > 0.1


@pytest.mark.thorough
def test_memory_converges() -> None:
    for method in (CSER, MemSGD):
        assert _excess(method(STEP, SERVER, SIGN, DENSE)) < 0.01, method
    for method in (DoubleSqueeze, LIEC, Neolithic):
        assert _excess(method(STEP, SERVER, SIGN, SIGN)) < 0.01, method
