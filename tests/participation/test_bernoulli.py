"""Coins: drawn probabilities, an empty round, and what is refused."""

import pytest
import torch
from omegaconf import OmegaConf

from fedcomp.participation.bernoulli import Bernoulli
from fedcomp.random.keys import Key
from tests.looped import looped
from tests.refused import refused

ONES = torch.ones(20, dtype=torch.float64)


def test_an_empty_round_is_legal():
    cohort = Bernoulli(1e-9).sample(Key(("round", 0)), ONES)
    assert (cohort.size, tuple(cohort.weight.shape), tuple(cohort.ids.shape)) == (0, (0,), (0,))
    assert torch.equal(cohort.weight @ torch.zeros(0, 3), torch.zeros(3))


def test_drawn_probabilities_are_fixed_by_their_seed():
    drawn = Bernoulli({"low": 0.3, "high": 1.0, "seed": 0}).inclusion(1000)
    assert torch.equal(drawn, Bernoulli({"seed": 0, "high": 1.0, "low": 0.3}).inclusion(1000))
    assert not torch.equal(drawn, Bernoulli({"low": 0.3, "high": 1.0, "seed": 1}).inclusion(1000))
    assert float(drawn.min()) >= 0.3
    assert float(drawn.max()) <= 1.0
    standard_error = 0.7 / 12**0.5 / 1000**0.5
    assert abs(float(drawn.mean()) - 0.65) < 4.5 * standard_error


@looped("given", [0.5, [0.5, 0.25], {"low": 0.3, "high": 1.0, "seed": 0}])
def test_hydras_containers_are_as_good_as_pythons(given):
    node = OmegaConf.create({"probability": given}).probability
    assert Bernoulli(node) == Bernoulli(given)
    assert hash(Bernoulli(node)) == hash(Bernoulli(given))


NONE = r"participation.probability=.* must be a number above 0 and at most 1, a list of one a client, or"
DRAWN = {"low": 0.3, "high": 0.9, "seed": 0}

test_what_it_refuses = refused(
    [
        *(({"probability": one}, NONE) for one in (0, 1.5, -0.1, float("nan"), "abc", None, True)),
        *(({"probability": DRAWN | {"low": low}}, NONE) for low in (0.0, 0.95, "a")),
        *(({"probability": DRAWN | {name: 2.0}}, NONE) for name in ("alpha", "mean")),
        ({"probability": {"low": 0.3, "high": 1.0}}, NONE),
        ({"probability": [0.5, 0.0]}, r"participation.probability is 0.0 for client 1, but must be above 0"),
        ({"probability": DRAWN | {"seed": "x"}}, r"participation.probability.seed=x must be a whole number, 0 or more"),
        *(
            ({"probability": DRAWN | {"alpha": alpha, "beta": 5}}, r"probability.alpha=.* must be a positive number")
            for alpha in (0, -1, "a", float("inf"), True)
        ),
        *(
            ({"probability": 0.5, "schedule": schedule}, rf"participation.schedule{line}")
            for schedule, line in [
                ({50: 0.0}, r"\[50\]=0.0 must be a number above 0"),
                ({50: [0.5, 1.5]}, r"\[50\] is 1.5 for client 1, but must be above 0"),
                ({-1: 0.5}, r" has round -1, but rounds are whole numbers"),
                ({"a": 0.5}, r" has round 'a'"),
                ([0.5], r"=\[0.5\] must be \{round: probability\}"),
                ({}, r"=\{\} must be"),
            ]
        ),
        (lambda: Bernoulli([0.5] * 3).check(4), "lists 3 probabilities, but num_clients is 4; it needs one a client"),
        (lambda: Bernoulli(0.5, {7: [0.5] * 3}).check(4), r"schedule\[7\] lists 3 probabilities, but num_clients is 4"),
    ],
    Bernoulli,
)


def test_a_list_of_one_a_client_is_taken():
    for probability in ([0.5] * 4, 0.5, DRAWN):
        Bernoulli(probability).check(4)


def test_beta_drawn_probabilities():
    """Mean 2/7 and variance 10/(49 * 8) of Beta(2, 5), moved to [0.2, 0.9]; within 4.5 standard errors."""
    drawn = Bernoulli({"low": 0.2, "high": 0.9, "seed": 0, "alpha": 2, "beta": 5}).inclusion(4000)
    assert float(drawn.min()) > 0.2
    assert float(drawn.max()) < 0.9
    spread = 0.7 * (10 / (49 * 8)) ** 0.5
    assert abs(float(drawn.mean()) - (0.2 + 0.7 * 2 / 7)) < 4.5 * spread / 4000**0.5
    assert abs(float(drawn.std()) - spread) < 4.5 * spread / (2 * 4000) ** 0.5
    same = Bernoulli({"low": 0.2, "high": 0.9, "seed": 0, "alpha": 1, "beta": 1}).inclusion(40)
    assert torch.equal(same, Bernoulli({"low": 0.2, "high": 0.9, "seed": 0}).inclusion(40))


def test_a_schedule_changes_probabilities_and_weights_by_round():
    rule = Bernoulli(0.9, {50: [0.1] * 20, 10: {"low": 0.3, "high": 0.4, "seed": 1}})
    rule.check(20)
    assert float(rule.inclusion(20, 9).mean()) == pytest.approx(0.9)
    assert 0.3 <= float(rule.inclusion(20, 10).min()) <= float(rule.inclusion(20, 49).max()) <= 0.4
    assert torch.equal(rule.inclusion(20, 50), torch.full((20,), 0.1, dtype=torch.float64))
    for index, probability in ((0, 0.9), (60, 0.1)):
        cohort = rule.sample(Key(("round", 3)), ONES, index)
        torch.testing.assert_close(cohort.weight, torch.full((cohort.size,), 1 / (20 * probability)))
    assert rule.sample(Key(("round", 3)), ONES, 0).size > rule.sample(Key(("round", 3)), ONES, 60).size
    assert rule.metrics(20, 60) == {"participation/max_inverse": pytest.approx(10)}
    node = OmegaConf.create({"schedule": {0: 0.9, 50: 0.3}}).schedule
    assert hash(Bernoulli(0.5, node)) == hash(Bernoulli(0.5, {50: 0.3, 0: 0.9}))


def test_the_largest_inverse_is_that_of_the_rarest_client():
    assert Bernoulli([0.25, 1.0, 0.5]).metrics(3, 0) == {"participation/max_inverse": 4.0}


def test_the_aggregate_of_fixed_changes_is_unbiased_with_the_variance_of_the_closed_form():
    """Mean (1/N) sum Delta_i, variance (1/N^2) sum (1/p_i - 1) ||Delta_i||^2, each within 4.5 standard errors."""
    rounds, probability = 6000, torch.linspace(0.2, 1.0, 20, dtype=torch.float64)
    delta = torch.randn(20, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 1
    rule = Bernoulli(probability.tolist())
    aggregates = torch.zeros(rounds, 4, dtype=torch.float64)
    for index in range(rounds):
        cohort = rule.sample(Key(("round", index)), ONES)
        aggregates[index] = cohort.weight.double() @ delta[cohort.ids]
    error = aggregates - delta.mean(0)
    assert ((aggregates.mean(0) - delta.mean(0)).abs() < 4.5 * aggregates.std(0) / rounds**0.5).all()
    squares = error.square().sum(1)
    closed = ((1 / probability - 1) * delta.square().sum(1)).sum() / 20**2
    assert abs(float(squares.mean() - closed)) < 4.5 * float(squares.std()) / rounds**0.5
    assert float(closed) > 20 * float(squares.std()) / rounds**0.5
