"""Coins: exact weights, drawn probabilities, an empty round, and what is refused."""

import pytest
import torch
from omegaconf import OmegaConf

from fedcomp.participation.bernoulli import Bernoulli
from fedcomp.random.keys import Key
from tests.looped import looped

ONES = torch.ones(20, dtype=torch.float64)


def test_weights_are_one_over_n_p():
    probability = [0.25 + 0.03 * client for client in range(20)]
    cohort = Bernoulli(probability).sample(Key(("round", 0)), ONES)
    assert 0 < cohort.size < 20
    expected = torch.tensor([1 / (20 * probability[client]) for client in cohort.clients])
    torch.testing.assert_close(cohort.weight, expected)


def test_unequal_importance_is_shared_over_all_clients_not_those_present():
    importance = torch.arange(1, 21, dtype=torch.float64)
    cohort = Bernoulli(0.5).sample(Key(("round", 0)), importance)
    torch.testing.assert_close(cohort.weight, (importance[cohort.ids] / 210 / 0.5).float())


def test_probability_one_is_full_participation():
    cohort = Bernoulli(1).sample(Key(("round", 0)), ONES)
    assert cohort.clients == tuple(range(20))
    assert torch.equal(cohort.weight, torch.full((20,), 1 / 20))


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


@looped(
    "probability",
    [
        0,
        1.5,
        -0.1,
        float("nan"),
        "abc",
        None,
        True,
        {"low": 0.3, "high": 1.0},
        {"low": 0.0, "high": 1.0, "seed": 0},
        {"low": 0.9, "high": 0.3, "seed": 0},
        {"low": "a", "high": 1.0, "seed": 0},
        {"low": 0.3, "high": 1.0, "seed": 0, "alpha": 2.0},
        {"low": 0.3, "high": 1.0, "seed": 0, "mean": 2.0},
    ],
)
def test_what_is_no_probability_is_refused(probability):
    line = r"participation.probability=.* must be a number above 0 and at most 1, a list of one a client, or"
    with pytest.raises(ValueError, match=line) as error:
        Bernoulli(probability)
    assert "\n" not in str(error.value)


def test_a_list_names_the_client():
    with pytest.raises(ValueError, match=r"participation.probability is 0.0 for client 1, but must be above 0"):
        Bernoulli([0.5, 0.0])


def test_a_seed_that_is_no_number():
    with pytest.raises(ValueError, match=r"participation.probability.seed=x must be a whole number, 0 or more"):
        Bernoulli({"low": 0.3, "high": 1.0, "seed": "x"})


def test_a_list_must_have_one_a_client():
    Bernoulli([0.5] * 4).check(4)
    Bernoulli(0.5).check(4)
    Bernoulli({"low": 0.3, "high": 1.0, "seed": 0}).check(4)
    with pytest.raises(ValueError, match=r"lists 3 probabilities, but num_clients is 4; it needs one a client"):
        Bernoulli([0.5] * 3).check(4)


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


@looped("alpha", [0, -1, "a", float("inf"), True])
def test_a_beta_distribution_that_is_none(alpha):
    with pytest.raises(ValueError, match=r"participation.probability.alpha=.* must be a positive number"):
        Bernoulli({"low": 0.2, "high": 0.9, "seed": 0, "alpha": alpha, "beta": 5})


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


@looped(
    "schedule, line",
    [
        ({50: 0.0}, r"participation.schedule\[50\]=0.0 must be a number above 0"),
        ({50: [0.5, 1.5]}, r"participation.schedule\[50\] is 1.5 for client 1, but must be above 0"),
        ({-1: 0.5}, r"participation.schedule has round -1, but rounds are whole numbers"),
        ({"a": 0.5}, r"participation.schedule has round 'a'"),
        ([0.5], r"participation.schedule=\[0.5\] must be \{round: probability\}"),
        ({}, r"participation.schedule=\{\} must be"),
    ],
)
def test_what_is_no_schedule_is_refused(schedule, line):
    with pytest.raises(ValueError, match=line):
        Bernoulli(0.5, schedule)


def test_every_list_of_a_schedule_has_one_a_client():
    with pytest.raises(ValueError, match=r"participation.schedule\[7\] lists 3 probabilities, but num_clients is 4"):
        Bernoulli(0.5, {7: [0.5] * 3}).check(4)


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
