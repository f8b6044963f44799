"""What PowerSGD sends: floats of known models, bits of a round and of both downlinks; options that are refused."""

from typing import Any

import pytest
import torch

from fedcomp.algorithm.contract import Setup
from fedcomp.algorithm.low_rank.matrices import LowRank
from fedcomp.core.parameter_layout import BIAS, NORMALISATION, WEIGHT, ParameterTensor
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger
from tests.algorithm.low_rank.power_rounds import DIM, TENSORS, make_clients, one_round, power_sgd, start
from tests.looped import looped
from tests.refused import refused


def test_bits_of_a_round_and_idle_clients() -> None:
    clients, algorithm = make_clients(), power_sgd(rank=2, min_ratio=1.5)
    low = LowRank.of(TENSORS, 2, 1.5)
    assert [(one.outputs, one.inputs) for one in low.matrices] == [(12, 8)]
    state, ledger = start(algorithm, clients), Ledger()
    after, metrics = one_round(algorithm, clients, state, 0, [1, 3], ledger=ledger)
    counters = ledger.counters()
    each = 32 * low.num_floats
    assert low.num_floats == 2 * (12 + 8) + 12 + 60
    assert (counters["uplink"], counters["broadcast"], counters["downlink"]) == (2 * each, each, 4 * each)
    assert float(metrics["exchanges"]) == 2
    assert not after.errors[[0, 2]].any()
    assert after.errors[[1, 3]].any()


def _resnet18() -> list[ParameterTensor]:
    """ResNet-18 for 32 x 32 images and 10 classes."""
    tensors, channels = [ParameterTensor(64 * 27, WEIGHT, 27)], 64
    norms = [64]
    for width in (64, 128, 256, 512):
        for block in range(2):
            tensors += [ParameterTensor(width * channels * 9, WEIGHT, channels * 9)]
            tensors += [ParameterTensor(width * width * 9, WEIGHT, width * 9)]
            norms += [width, width]
            if block == 0 and width != 64:
                tensors += [ParameterTensor(width * channels, WEIGHT, channels)]
                norms += [width]
            channels = width
    tensors += [ParameterTensor(2 * width, NORMALISATION) for width in norms]
    return [*tensors, ParameterTensor(5120, WEIGHT, 512), ParameterTensor(10, BIAS)]


@looped("rank, floats", [(1, 45_935), (2, 82_260), (4, 154_910)])
def test_floats_of_the_papers_network(rank: int, floats: int) -> None:
    tensors = _resnet18()
    assert sum(tensor.size for tensor in tensors) == 11_173_962
    low = LowRank.of(tensors, rank, 0.0)
    assert low.num_floats == floats
    assert round(11_173_962 / low.num_floats, 1) == {1: 243.3, 2: 135.8, 4: 72.1}[rank]


def test_a_tensor_of_one_row() -> None:
    tensors = (ParameterTensor(7, WEIGHT, 7),)
    low = LowRank.of(tensors, 3, 0.0)
    assert (low.matrices[0].rank, low.num_floats) == (1, 8)
    assert low.part.size == 7


@pytest.mark.parametrize("mode", ["aggregated", "independent"])
def test_a_model_sent_down_is_the_same_run_and_nobody_else_is_told(mode: str) -> None:
    """Up to the last bit, since float32 goes down either way; 4 clients, 2 of them in a round."""
    clients, found = make_clients(), {}
    for downlink in ("factors", "model"):
        algorithm = power_sgd(rank=2, mode=mode, sends=downlink)
        state, bits = start(algorithm, clients), []
        for index, who in enumerate(([0, 1], [1, 3], [0, 2])):
            ledger = Ledger()
            state, _ = one_round(algorithm, clients, state, index, who, ledger=ledger)
            bits.append(ledger.counters())
        found[downlink] = state, bits
    (one, told), (other, asked) = found.values()
    assert torch.equal(one.theta, other.theta)
    assert torch.equal(one.errors, other.errors)
    assert [one["uplink"] for one in told] == [one["uplink"] for one in asked]
    p, q = 2 * (12 + 3), 2 * (8 + 20)
    if mode == "aggregated":  # the first Q follows from the seed
        assert [one["downlink"] for one in told] == [4 * 32 * (p + q + 12)] * 3
        assert [one["downlink"] for one in asked] == [2 * 32 * (DIM + p), *[2 * 32 * (DIM + p + q)] * 2]
    else:
        assert [one["downlink"] for one in told] == [4 * 32 * DIM] * 3
        assert [one["downlink"] for one in asked] == [2 * 32 * DIM] * 3


def test_models_without_such_matrices_are_refused() -> None:
    def init(tensors: tuple[ParameterTensor, ...], **options: Any) -> None:
        size = sum(tensor.size for tensor in tensors)
        power_sgd(**options).init(torch.zeros(size), torch.zeros(0), Setup(2, tensors, Key()))

    with pytest.raises(ValueError, match="algorithm=powersgd compresses weight matrices, and this model has none"):
        init((ParameterTensor(9, BIAS),))
    with pytest.raises(
        ValueError, match="algorithm.rank=9 is above the smaller side of every weight matrix.* at most 8"
    ):
        init(TENSORS, rank=9)
    with pytest.raises(ValueError, match="algorithm.rank=4 saves less than algorithm.min_ratio=5.0 of every matrix"):
        init(TENSORS, rank=4, min_ratio=5.0)


test_wrong_options = refused(
    [
        ({"refresh_every": -1}, "algorithm.refresh_every=-1 must be a whole number, 0 or more: a number of rounds"),
        ({"memory": "mean", "sends": "model"}, r"algorithm.memory=mean is what is left of the mean, .*sends=model"),
    ],
    power_sgd,
)
