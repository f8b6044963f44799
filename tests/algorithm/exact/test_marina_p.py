"""MARINA-P is M3 with whole uplinks and without momentum: equal to its recursion, and exact."""

import torch
from torch import Tensor

from fedcomp.algorithm.bidirectional.m3 import M3
from fedcomp.config.compose import compose
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.algorithm.heterogeneous import D, N, Run, problem
from tests.parts import DENSE, GD, Compressor, PermK, ServerSgd

PERMK = Compressor(PermK())
CLIENTS, GAMMA, P = problem(0), 4 * 0.34, 1 / 7


def _marina_p(downlink: Compressor = PERMK, p: float = P, gamma: float = GAMMA) -> M3:
    return M3(GD(lr=gamma), ServerSgd(), DENSE, downlink, p_down=p, p_up=1, beta=1, uplink_entries="compressor")


def test_is_the_recursion_of_the_paper() -> None:
    """x+ = x - gamma mean grad f_i(w_i);  w_i+ = x+ with probability p, else w_i + Q_i(x+ - x)."""
    run, codec, whole = Run(_marina_p(), CLIENTS), PermK(), 0
    x, models, step = torch.zeros(D), torch.zeros(N, D), torch.zeros(D)
    for index, state in enumerate(run.states(20)):
        key = Key(("heterogeneous", run.seed)).fold_in("round", index)
        coin = float(key.fold_in("full", "down").uniform(torch.zeros(1, dtype=torch.int64), 1))
        if index == 0 or coin < P:
            models, whole = x.expand(N, -1).clone(), whole + 1
        else:
            models = models + _own_part(
                codec, step, SharedKnowledge(key.fold_in("step"), torch.arange(N), CLIENTS.layers)
            )
        step = -GAMMA * CLIENTS.gradients(models).mean(0).float()
        x = x + step
        assert torch.allclose(state.models, models, rtol=0, atol=1e-5)
        assert torch.allclose(state.theta, x, rtol=0, atol=1e-5)
    assert 1 < whole < 10


def _own_part(codec: PermK, step: Tensor, common: SharedKnowledge) -> Tensor:
    return codec.decode(codec.encode(step.expand(N, -1), common, Key()), common)


def test_yaml_of_marina_p_sends_full_uplinks_and_permk_down() -> None:
    config = compose(["algorithm=marina_p"])
    assert (config.algorithm.p_up, config.algorithm.beta, config.algorithm.p_down) == (1.0, 1.0, None)
    assert [config[part]._target_.split(".")[-1] for part in ("client", "compressor", "downlink")] == [
        "GD",
        "Dense",
        "PermK",
    ]
