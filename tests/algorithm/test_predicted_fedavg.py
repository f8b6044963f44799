"""CAFe, EF21 and EF21-P in FedAvg: gradient descent where nothing is left out, bits, what both ends know."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedcomp.compressor.predictors import Aggregate
from tests.algorithm.heterogeneous import D, Run, problem
from tests.looped import looped
from tests.parts import Compressor, Dense, FedAvg, ServerSgd, Sgd, Sign, TopK
from tests.refused import refused

TOP4, DENSE, SERVER = TopK(k=4, positions="index"), Compressor(Dense()), ServerSgd()
LR = 1.02
"""1 / L_f of the problem of seed 0."""
WORD = 32 + 6
"""Bits of an entry of Top-4 of 40."""


def _fedavg(
    up: Compressor = DENSE, down: Compressor = DENSE, lr: float = LR, server: Any = SERVER, **options: Any
) -> FedAvg:
    return FedAvg(Sgd(lr=lr, steps=1), server, up, down, "uniform", **options)


def _up(predictor: str, codec: Any = TOP4) -> Compressor:
    return Compressor.of(codec, predictor=predictor)


def test_ef21_p_reaches_the_optimum_with_a_compressed_downlink() -> None:
    run = Run(_fedavg(down=_up("ef21_p")), problem(0))
    rounds = run.rounds_to(1e-8, 450)
    assert rounds is not None  # 302
    assert run.bits()["downlink"] == 7 * 4 * WORD
    assert run.bits()["uplink"] == 7 * 32 * D
    some = Run(run.algorithm, problem(0), participants=3)
    some.once(some.init(), 0)
    assert some.bits()["downlink"] == 7 * 4 * WORD  # idle clients follow, too
    models = run.algorithm.evaluation_models(run.once(run.init(), 0), None)  # type: ignore[arg-type]
    assert set(models) == {"test", "clients"}


def test_dense_messages_are_gradient_descent() -> None:
    whole = TopK(k=D)
    plain = [state.theta for state in Run(_fedavg(), problem(0)).states(20)]
    for algorithm in (
        _fedavg(_up("ef21", whole)),
        _fedavg(_up("aggregate", whole)),
        _fedavg(down=_up("ef21_p", whole)),
    ):
        for state, wanted in zip(Run(algorithm, problem(0)).states(20), plain):
            torch.testing.assert_close(state.theta, wanted, rtol=1e-4, atol=1e-4)


def test_first_round_of_cafe_is_plain_compression() -> None:
    cafe, plain = (next(Run(_fedavg(up), problem(0)).states(1)) for up in (_up("aggregate"), Compressor(TOP4)))
    assert torch.equal(cafe.theta, plain.theta)


@looped("sends", ["model", "step", "mean_update"])
def test_both_ends_of_cafe_know_the_same_mean(sends: str) -> None:
    """It is what went down, in its bits: with a model its mean goes beside, 32 D for each participant."""
    lossy = Compressor(Sign()) if sends != "model" else DENSE
    run = Run(_fedavg(_up("aggregate"), lossy, sends=sends), problem(0), 3)
    for index, (before, after, bits) in enumerate(run.rounds(4)):
        known = after.uplink.shared
        assert known.shape == (D,)
        if sends != "model":
            torch.testing.assert_close(before.theta + known, after.theta)
            assert len(known.abs().unique()) <= 2 + 2  # signs and one scale for each of two tensors
        extra = 32 * D * (3 if index and sends == "model" else 0)
        down = 3 * 32 * D if sends == "model" else 7 * (D + 64)
        assert (bits["downlink"], bits["uplink"]) == (down + extra, 3 * 4 * WORD)
    assert float(run.metrics["predictor/ratio"]) > 0


def test_a_decayed_mean_decays_once_whatever_goes_down() -> None:
    """Clients predict half of the last mean, whether it comes beside the model or as what goes down."""
    half = Compressor.of(TOP4, predictor=Aggregate(0.5))
    beside, alone = (Run(_fedavg(half, sends=sends), problem(0)).states(4) for sends in ("model", "mean_update"))
    for state, wanted in zip(beside, alone, strict=True):
        torch.testing.assert_close(state.theta, wanted.theta)


def test_ratio_is_its_closed_form() -> None:
    run = Run(_fedavg(_up("aggregate")), problem(0))
    first = run.once(run.init(), 0)
    run.once(first, 1)
    changes = -LR * run.clients.gradients(first.theta)
    wanted = (changes - first.uplink.shared.double()).square().sum() / changes.square().sum()
    assert float(run.metrics["predictor/ratio"]) == pytest.approx(float(wanted), rel=1e-4)


def test_a_mean_that_clients_know_goes_with_any_step() -> None:
    _fedavg(_up("aggregate"), Compressor(Sign()), server=replace(SERVER, lr=0.5), sends="mean_update")


test_wrong_input = refused(
    [
        ({"up": _up("ef21_p")}, "compressor.predictor=ef21_p follows a model: it is the downlink's"),
        ({"down": _up("aggregate")}, "downlink.predictor=aggregate makes no sense"),
        ({"down": _up("ef21_p"), "sends": "mean_update"}, "downlink.predictor does not fit algorithm.sends=mean"),
        ({"down": _up("ef21"), "sends": "model"}, "algorithm.sends=model needs a dense downlink"),
        ({"up": _up("aggregate"), "down": Compressor(Sign()), "server": ServerSgd(0.5)}, "predictor=aggregate needs"),
    ],
    _fedavg,
)
