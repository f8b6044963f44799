"""DASHA and MARINA: what is logged, bits, wrong input; rounds are in `test_plain_rounds.py`."""

from dataclasses import replace

import torch

from fedcomp.algorithm.exact.gradient_estimate import GradientEstimate
from fedcomp.wire import WireLink
from tests.algorithm.heterogeneous import D, N, Run, problem
from tests.conformance import world
from tests.parts import GD, Compressor, Eden, RandK, ServerSgd, Sgd, Spatial, TopK
from tests.refused import refused

RAND4 = Compressor(RandK(k=4, seed_cost="derived"))
STEP, CLIENTS = ServerSgd(), problem(0)
DASHA = GradientEstimate(GD(lr=16 * 0.0482), STEP, RAND4)
MARINA = GradientEstimate(GD(lr=4 * 0.228), STEP, RAND4, "marina")


def test_estimates_become_gradients() -> None:
    run = Run(DASHA, CLIENTS)
    errors = []
    for state in run.states(250):
        assert torch.allclose(state.gradients.mean(0).norm(), run.metrics["grad/norm"], atol=1e-5)
        errors.append(float(run.metrics["estimate/error"]))
    assert errors[-1] < 1e-3 * errors[0]


def test_dasha_never_sends_a_whole_vector_and_marina_in_its_share_of_rounds() -> None:
    down = {"downlink": N * 32 * D, "broadcast": 32 * D}
    run = Run(DASHA, CLIENTS, link=WireLink)
    for _ in run.states(4):
        assert run.bits() == {"uplink": N * 4 * 32, **down}
    run = Run(replace(DASHA, start="gradient"), CLIENTS, link=WireLink)
    found = [run.bits()["uplink"] for _ in run.states(3)]
    assert found == [N * 32 * D, N * 4 * 32, N * 4 * 32]
    run = Run(MARINA, CLIENTS)
    whole = []
    for _ in run.states(400):
        whole.append(float(run.metrics["coin/full"]))
        assert run.bits() == {"uplink": N * 32 * (D if whole[-1] else 4), **down}
    assert whole[0] == 1
    assert abs(sum(whole[1:]) / 399 - 0.1) < 4 * (0.09 / 399) ** 0.5


def test_stochastic_gradients_are_allowed_and_said() -> None:
    for client, exact in ((GD(lr=0.1), 1.0), (Sgd(lr=0.1, batch_size=4), 0.0)):
        run = Run(replace(DASHA, client=client), CLIENTS)
        list(run.states(1))
        assert float(run.metrics["exact"]) == exact


test_wrong_input = refused(
    [
        (lambda: replace(DASHA, uplink=Compressor(TopK())), "DASHA needs an unbiased compressor, not TopK as"),
        (lambda: replace(MARINA, uplink=Compressor(RandK(scale="none"))), "MARINA needs an unbiased compressor, not"),
        (lambda: replace(DASHA, uplink=Compressor(RandK(), estimator=Spatial("avg"))), "compressor.estimator must be"),
        (lambda: replace(DASHA, a=0), r"algorithm.a=0 must be a number in \(0, 1\], or null: a probability"),
        (lambda: replace(MARINA, p=2), "algorithm.p=2 must be a number in"),
        (lambda: replace(DASHA, client=GD(lr=1, steps=2)), "DASHA sets its own number .* but client.steps=2 was given"),
        (lambda: Run(replace(DASHA, uplink=Compressor(Eden())), CLIENTS).init(), "omega of Eden has no closed form:"),
        (lambda: world.simulation(DASHA, world.with_batch_norm).init(), r"DASHA needs a model without running"),
    ]
)
