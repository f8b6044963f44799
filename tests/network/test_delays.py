"""The few steps of most rounds' delays against going over all clients leg by leg: the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcomp.network.clock import Clock
from fedcomp.network.delays import plans
from fedcomp.network.traffic.rounds import Round, RoundForms, round_of
from fedcomp.wire.legs import COHORT, UP, WORK, Leg, Legs
from tests.looped import looped
from tests.network.random_legs import random_legs
from tests.network.two_clients import clock

NUM = 5
HEADER = {"message": 22, "packet": 40, "payload": 1460}


def _legs(rng: np.random.Generator) -> Legs:
    """A round of any methods' legs, most often the usual three."""

    def choose(names: list[str]) -> list[str]:
        usual = ["broadcast", "work", "up"]
        return usual if rng.random() < 0.7 else rng.choice(names, int(rng.integers(1, 9))).tolist()

    return random_legs(rng, NUM, int(rng.integers(0, NUM + 1)) if rng.random() < 0.6 else NUM, choose)


def _clock(rng: np.random.Generator, **options: Any) -> Clock:
    rates = [(*rng.uniform(0.1, 10, 2), rng.uniform(0, 0.2), rng.uniform(0, 0.01)) for _ in range(NUM)]
    rates[0] = (np.inf, np.inf, 0.0, 0.0)
    return clock(tuple(rates), **options)


@pytest.mark.parametrize("options", [{}, {"header": HEADER}], ids=["bits", "headers"])
def test_all_clients_leg_by_leg_come_to_the_same_bits(options: dict[str, Any]) -> None:
    few = apart = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        quick, slow = (_clock(np.random.default_rng(seed), **options) for _ in range(2))
        slow.delays._cohort = None
        usual = [_legs(rng) for _ in range(2)]
        for each in (*usual, _legs(rng), *usual, usual[1], _legs(rng)):
            one = round_of(each, NUM)
            few += plans(one.template, len(one.clients) == NUM) is not None
            apart += len(one.clients) < NUM
            quick.advance(one)
            slow.advance(round_of(each, NUM))
            assert quick.metrics() == slow.metrics()
            assert quick.ready.tolist() == slow.ready.tolist()
            assert quick.critical.tolist() == slow.critical.tolist()
    assert few > 600
    assert apart > 400


@looped("options", [{"jitter": 0.1}, {"start_s": 0.1}, {"trailing": "wait"}, {"down": "multicast"}])
def test_links_that_change_and_messages_for_several_go_over_all_clients(options: dict[str, Any]) -> None:
    assert clock(**options).delays._cohort is None


def test_templates_and_vectors_that_never_come_again_are_not_kept_for_ever() -> None:
    one = clock()
    for bits in range(1, 1000):
        one.advance(round_of(Legs((0, 1), [Leg(UP, COHORT, bits)]), 2))
    assert one.delays._cohort is not None
    assert max(len(one.delays._cohort._plans), len(one.delays._cohort._same)) < 100


def _equal(one: Round, other: Round) -> bool:
    same = (one.template, one.clients, one.listed) == (other.template, other.clients, other.listed)
    return same and [row.tolist() for row in one.varying] == [row.tolist() for row in other.varying]


def test_rounds_that_are_like_the_one_before_have_the_form_of_their_own_legs() -> None:
    again = 0
    for seed in range(300):
        rng, forms = np.random.default_rng(seed), RoundForms(NUM)
        usual = [_legs(rng) for _ in range(2)]
        before = None
        for each in (usual[0], usual[0], usual[1], usual[1], _legs(rng), _legs(rng)):
            one = forms.of(each)
            again += one is before
            assert _equal(one, round_of(each, NUM))
            before = one
    assert again > 100


def test_work_that_adds_up_to_a_number_in_one_round_alone() -> None:
    """Two legs of work of one phase: whether their sum is the same for all clients changes from round to round."""
    forms = RoundForms(4)
    for first, second in (([1, 2], [2, 1]), ([1, 2], [1, 2]), ([3, 3], [1, 1]), ([0, 0], [1, 2])):
        made = [Leg(WORK, COHORT, np.array(first)), Leg(WORK, COHORT, np.array(second)), Leg(UP, COHORT, 8)]
        legs = Legs((0, 2), made)
        assert _equal(forms.of(legs), round_of(legs, 4))


@pytest.mark.parametrize("clients", [(0, 1), (0, 2)])
def test_work_that_changes_alone(clients: tuple[int, ...]) -> None:
    """Gradients of all clients are in the template, those of a cohort vary; a number is in the template either way."""
    forms = RoundForms(2 if clients == (0, 1) else 4)
    for work in ([1, 2], [1, 3], [2, 2], [3, 3], [0, 0], [1, 2]):
        legs = Legs(clients, [Leg(WORK, COHORT, np.array(work)), Leg(UP, COHORT, np.array(work) + 1)])
        assert _equal(forms.of(legs), round_of(legs, forms.num_clients))
