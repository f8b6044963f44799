"""FedBAT against a loop of its own, where it is plain SGD, and what a round can move; the law of S(m, alpha)."""

from dataclasses import dataclass, replace

import pytest
import torch

from fedcomp.algorithm.contract import Context
from fedcomp.algorithm.learnt_bits.binarised import StepSizes, binarise, probability, slopes
from fedcomp.algorithm.learnt_bits.fedbat import FedBAT
from fedcomp.client import Batch
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import ParameterSubset
from fedcomp.wire import Ledger, Link
from tests.conformance import world
from tests.looped import looped
from tests.parts import Compressor, Dense, FedAvg, ServerSgd, Sgd, StochasticSign
from tests.refused import refused
from tests.rounds import one_round, rounds


def test_binarise_has_the_stated_mean_and_variance() -> None:
    """Mean clip(m, -alpha, alpha), variance alpha^2 - m^2 inside, P(+) at 0, half and twice alpha; 400,000 draws."""
    alpha, num = 0.3, 400_000
    generator = torch.Generator().manual_seed(0)
    for m in (-0.6, -0.15, 0.0, 0.15, 0.3, 0.6):
        draws = torch.rand(1, num, generator=generator)
        sent = binarise(torch.full((1, num), m), torch.full((1, num), alpha), draws).double()
        inside = max(-alpha, min(alpha, m))
        assert abs(float(sent.mean()) - inside) <= 5 * (alpha**2 - inside**2) ** 0.5 / num**0.5 + 1e-7
        assert float(sent.var()) == pytest.approx(alpha**2 - inside**2, rel=1e-2, abs=1e-12)
        assert torch.allclose(sent.abs(), torch.tensor(alpha).double())
        expected = max(0.0, min(1.0, (m / alpha + 1) / 2))
        assert float(probability(torch.tensor([[m]]), torch.tensor([[alpha]])).clamp(0, 1)) == pytest.approx(expected)


def test_gradients_are_autograds() -> None:
    """Of alpha (x + stop(sign - x)) with x = clip(m / alpha, -1, 1)."""
    generator = torch.Generator().manual_seed(1)
    m = torch.randn(3, 50, generator=generator, dtype=torch.float64).requires_grad_()
    sizes = StepSizes((20, 30), 1e-9, 1e9)
    alpha = torch.rand(3, 2, generator=generator, dtype=torch.float64).add(0.3).requires_grad_()
    wide = sizes.spread(alpha)
    sent = binarise(m.detach(), wide.detach(), torch.rand(3, 50, generator=generator))
    x = (m / wide).clamp(-1, 1)
    through = wide * (x + (sent / wide - x).detach())
    g = torch.randn(3, 50, generator=generator, dtype=torch.float64)
    of_m, of_alpha = torch.autograd.grad((through * g).sum(), (m, alpha))
    inside, c = slopes(m.detach(), wide.detach(), sent)
    assert torch.allclose(g * inside, of_m, atol=1e-12)
    assert torch.allclose(sizes.sums(g * c), of_alpha, atol=1e-12)
    assert 0 < int((inside == 0).sum()) < inside.numel()


def test_a_tensor_of_zeros_sends_zero() -> None:
    sizes = StepSizes((3, 2), 5e-4, 5e-2)
    m = torch.tensor([[0.0, 0, 0, 0.01, -0.03]])
    alpha = sizes.alpha(sizes.mean_log(m))
    assert alpha.tolist() == [[0.0, pytest.approx(0.02)]]
    sent = binarise(m, sizes.spread(alpha), torch.rand(1, 5))
    assert sent[0, :3].tolist() == [0, 0, 0]
    assert all(part.isfinite().all() for part in slopes(m, sizes.spread(alpha), sent))
    assert sizes.is_free(sizes.mean_log(m)).tolist() == [[False, True]]
    assert sizes.is_free(torch.tensor([[4e-4, 1e-3, 6e-2]]).log()).tolist() == [[False, True, False]]


SGD, STEP, DENSE = Sgd(lr=0.1, batch_size=4, epochs=4), ServerSgd(), Compressor(Dense())
BAT = FedBAT(SGD, STEP, DENSE, alpha_max=1.0)


@dataclass(frozen=True, kw_only=True)
class Plain(FedBAT):
    """Never binarises in training: phi = 1."""

    def plain_steps(self, num_steps):
        return num_steps


def _trained(algorithm: FedBAT, sim=None):
    """(m [M, D], lambda [M, L], ln alpha_0 [M, L]) of round 0, and the simulation."""
    sim = sim or world.simulation(algorithm, participation=world.FULL)
    found, original = {}, FedBAT._train

    def noting(self, *arguments):
        found["it"] = original(self, *arguments)
        return found["it"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FedBAT, "_train", noting)
        one_round(sim)
    return *found["it"], sim


@looped("rho", [0.0, 3.0])
def test_training_is_that_of_alpha_0_and_a_trained_beside_m(rho: float) -> None:
    """The program's form: alpha = clip(alpha_0 exp(rho a)), a from 0 at the rate of m; a loop over clients, each S."""
    algorithm = replace(BAT, rho=rho, alpha_min=0.005, alpha_max=0.2)
    wide = world.in_float64(world.simulation(algorithm, participation=world.FULL))
    local, log, first, sim = _trained(algorithm, wide)
    part = ParameterSubset.of(sim.model.tensors, lambda tensor: True)
    sizes, state, cohort = algorithm._sizes(part), sim.init(), sim.cohort(0)
    key = sim.round_key(0).fold_in("message").fold_in("update")
    executor = sim.clients(sim.round_key(0).fold_in("client"), Ledger())
    ctx = Context(0, sim.rounds, sim.round_key(0).fold_in("message"), Link(Ledger()), executor)
    key = ctx.sender_key("training")

    def one(data, w):
        m, a, alpha0 = torch.zeros_like(w), w.new_zeros(len(w), 4), None
        steps = int(data.num_steps(SGD.batching)[0])
        for step, (x, y, weight) in enumerate(data.batches(SGD.batching)):
            batch = Batch(x, y, weight, w[:, :0])
            if step < max(1, steps // 2):
                m = m - 0.1 * data.gradient(w + m, batch, step).grad
                continue
            if alpha0 is None:
                alpha0 = torch.stack([piece.abs().mean(1) for piece in m.split(part.layers, 1)], 1)
            raw = alpha0 * (rho * a).exp()
            alpha = raw.clamp(0.005, 0.2)
            wide = sizes.spread(alpha)
            sent = binarise(m, wide, key.fold_in(step).uniform(data.ids, m.shape[1]))
            g = data.gradient(w + sent, batch, step).grad
            inside, c = slopes(m, wide, sent)
            a = a - 0.1 * rho * alpha * (raw == alpha) * sizes.sums(g * c)
            m = m - 0.1 * g * inside
        if alpha0 is None:
            alpha0 = torch.stack([piece.abs().mean(1) for piece in m.split(part.layers, 1)], 1)
        return m, alpha0 * (rho * a).exp(), alpha0

    rows = [executor.map_clients(one, _only(cohort, place), state.theta[None]) for place in range(cohort.size)]
    m, alpha, alpha0 = (torch.cat(parts) for parts in zip(*rows))
    assert torch.allclose(local.value.double(), m.double(), atol=1e-6)
    assert torch.allclose(log.exp().double(), alpha.double(), rtol=1e-5)
    assert torch.allclose(first.exp().double(), alpha0.double(), rtol=1e-5)
    assert (rho == 0) == torch.allclose(alpha, alpha0, rtol=1e-4)


def _only(cohort, place: int):
    return Cohort.of([cohort.clients[place]], torch.ones(1))


def test_never_binarised_it_sends_the_law_of_stochastic_signs() -> None:
    """As FedAvg with compressor=stochastic_sign compressor.scale=mean_abs: means over 60 rounds from one start."""
    one = Sgd(lr=0.1, batch_size=4)
    plain = Plain(client=one, server=STEP, downlink=DENSE, alpha_min=1e-9, alpha_max=1.0, weights="uniform")
    signs = FedAvg(one, STEP, Compressor(StochasticSign("mean_abs")), DENSE, "uniform")
    found = []
    for algorithm in (plain, signs):
        sim = world.simulation(algorithm, participation=world.FULL)
        start = sim.init()
        found.append(torch.stack([one_round(sim, start, index).after.theta - start.theta for index in range(60)]))
    error = ((found[0].var(0) + found[1].var(0)) / 60).sqrt()
    assert ((found[0].mean(0) - found[1].mean(0)).abs() < 5 * error + 1e-7).all()
    assert torch.allclose(found[0].var(0), found[1].var(0), rtol=2)


def test_a_client_of_one_step_sends_mean_m() -> None:
    local, log, first, sim = _trained(replace(BAT, client=Sgd(lr=0.1, steps=1)))
    part = ParameterSubset.of(sim.model.tensors, lambda tensor: True)
    assert torch.allclose(log, BAT._sizes(part).mean_log(local.value))
    assert torch.equal(log, first)
    assert BAT.plain_steps(torch.tensor([1, 2, 3, 40])).tolist() == [1, 1, 1, 20]


def test_a_given_first_step_is_everybodys() -> None:
    one = one_round(world.simulation(replace(BAT, rho=0, alpha0=0.02)))
    torch.testing.assert_close(one.metrics["bat/alpha"], torch.full((3,), 0.02))


def test_at_a_learning_rate_of_zero_nobody_sends_anything() -> None:
    """As in the last round of a cosine: m stays 0, and so is mean |m|; the loss is that of the model."""
    falling = Sgd(lr=0.1, steps=4, schedule="linear")
    _, one = rounds(world.simulation(replace(BAT, client=falling), rounds=2))
    assert torch.equal(one.after.theta, one.before.theta)
    assert not one.metrics["bat/alpha"].any()
    still = world.simulation(FedAvg(falling, STEP, DENSE, DENSE), rounds=2)
    wanted = one_round(still, replace(still.init(), theta=one.before.theta), 1)
    torch.testing.assert_close(one.metrics["train/loss"], wanted.metrics["train/loss"])


def test_no_weight_moves_by_more_than_the_largest_step_and_small_rates_move_by_the_smallest() -> None:
    for lr, wanted in ((0.5, None), (1e-6, 1.0)):
        one = one_round(world.simulation(FedBAT(Sgd(lr=lr, batch_size=4), STEP, DENSE)))
        moved = (one.after.theta - one.before.theta).abs()
        assert 0 < float(moved.max()) <= 5e-2 + 1e-6
        if wanted:
            assert (one.metrics["bat/at_bound"] == wanted).all()
            assert float(moved.max()) <= 5e-4 + 1e-6


def test_the_server_decodes_what_the_client_sent() -> None:
    sim = world.simulation(BAT, participation=world.FULL, sizes=(20,))
    one = one_round(sim)
    for piece in (one.after.theta - one.before.theta).split(sim.model.layers):
        assert torch.allclose(piece.abs(), piece.abs().max().expand(len(piece)), atol=1e-6)
    assert one.metrics["bat/error"].min() > 0


test_wrong_options = refused(
    [
        ({"alpha_min": 0.1, "alpha_max": 0.05}, "algorithm.alpha_min=0.1 must be at most alpha_max=0.05"),
        *(
            ({"client": Sgd(lr=0.1, **{option: 0.5})}, "algorithm=fedbat needs plain SGD")
            for option in ("momentum", "clip_norm", "weight_decay", "proximal")
        ),
    ],
    lambda **options: replace(BAT, **options),
)
