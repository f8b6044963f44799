"""Coins: exact weights, drawn probabilities, an empty round, and what is refused."""

import pytest
import torch
from omegaconf import OmegaConf

from fedcomp.keys import Key
from fedcomp.participation.bernoulli import Bernoulli

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


@pytest.mark.parametrize("given", [0.5, [0.5, 0.25], {"low": 0.3, "high": 1.0, "seed": 0}])
def test_hydras_containers_are_as_good_as_pythons(given):
    node = OmegaConf.create({"probability": given}).probability
    assert Bernoulli(node) == Bernoulli(given)
    assert hash(Bernoulli(node)) == hash(Bernoulli(given))


@pytest.mark.parametrize(
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
    ],
)
def test_what_is_no_probability_is_refused(probability):
    line = r"participation.probability is .*, but must be a number above 0 and at most 1, a list of one a client, or"
    with pytest.raises(ValueError, match=line) as error:
        Bernoulli(probability)
    assert "\n" not in str(error.value)


def test_a_list_names_the_client():
    with pytest.raises(ValueError, match=r"participation.probability is 0.0 for client 1, but must be above 0"):
        Bernoulli([0.5, 0.0])


def test_a_seed_that_is_no_number():
    with pytest.raises(ValueError, match=r"participation.probability.seed is 'x', but must be a whole number"):
        Bernoulli({"low": 0.3, "high": 1.0, "seed": "x"})


def test_a_list_must_have_one_a_client():
    Bernoulli([0.5] * 4).check(4)
    Bernoulli(0.5).check(4)
    Bernoulli({"low": 0.3, "high": 1.0, "seed": 0}).check(4)
    with pytest.raises(ValueError, match=r"lists 3 probabilities, but num_clients is 4; it needs one a client"):
        Bernoulli([0.5] * 3).check(4)
