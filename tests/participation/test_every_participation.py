"""What each participation promises: a sorted cohort from the key, whose weights have no bias; coins; absence."""

import itertools
from collections import Counter
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from fedcomp.core.cohort import Cohort
from fedcomp.participation.absent import AbsentOfFile, WithoutAbsent
from fedcomp.participation.cohorts import check_draws, cohort_size, largest_mean_squares, some_idle
from fedcomp.participation.contract import Participation
from fedcomp.random.keys import Key
from tests.conformance import world
from tests.looped import looped
from tests.parts import Bernoulli, Full, Uniform, fedavg
from tests.refused import one_line_error, refused

NUM_CLIENTS = 7
PARTICIPATIONS = [
    *(Full(), Uniform(3), Uniform(NUM_CLIENTS), Bernoulli(0.5), Bernoulli(1.0)),
    Bernoulli([0.9, 0.2, 0.5, 1.0, 0.3, 0.4, 0.1]),
    Bernoulli({"low": 0.3, "high": 1.0, "seed": 0}),
]
EQUAL = torch.ones(NUM_CLIENTS, dtype=torch.float64)
ONE_AWAY = torch.tensor([0.5, 0.5, 0.5, 0, 0.5, 0.5, 0.5], dtype=torch.float64)
UNEQUAL = torch.tensor([5.0, 1, 2, 9, 3, 4, 8], dtype=torch.float64)
ROUNDS = 2000


def aggregates(participation, importance):
    """[rounds, N]: what each client's unit vector weighs in the aggregate, zero where it is absent."""
    rows = torch.zeros(ROUNDS, NUM_CLIENTS, dtype=torch.float64)
    for number in range(ROUNDS):
        cohort = participation.sample(Key(("round", number)), importance)
        rows[number, cohort.ids] = cohort.weight.double()
    return rows


def standard_scores(rows, expected):
    """How many standard errors the mean weight of each client lies from what it must be."""
    error = rows.std(0) / ROUNDS**0.5 + 1e-7  # weights are float32
    return (rows.mean(0) - expected).abs() / error


@looped("participation", PARTICIPATIONS)
def test_a_cohort_is_sorted_distinct_and_follows_from_its_key(participation):
    participation.check(NUM_CLIENTS)
    cohorts = [participation.sample(Key(("round", number)), UNEQUAL) for number in range(50)]
    again = [participation.sample(Key(("round", number)), UNEQUAL) for number in reversed(range(50))][::-1]
    for cohort, same in zip(cohorts, again):
        assert cohort.ids.tolist() == list(cohort.clients) == sorted(set(cohort.clients))
        assert all(0 <= client < NUM_CLIENTS for client in cohort.clients)
        assert (cohort.ids.dtype, cohort.weight.dtype) == (torch.int64, torch.float32)
        assert tuple(cohort.weight.shape) == (cohort.size,)
        assert cohort.clients == same.clients
        assert torch.equal(cohort.weight, same.weight)


@looped(
    "participation, importance",
    [(rule, EQUAL) for rule in PARTICIPATIONS] + [(rule, UNEQUAL) for rule in PARTICIPATIONS if rule != Uniform(3)],
)
def test_the_expected_weight_is_the_share_of_importance_and_inclusion_how_often_a_client_is_there(
    participation, importance
):
    rows = aggregates(participation, importance)
    assert float(standard_scores(rows, importance / importance.sum()).max()) < 5
    assert float(standard_scores((rows > 0).double(), participation.inclusion(NUM_CLIENTS)).max()) < 5


def test_weights_of_uniform_average_those_present():
    importance = torch.tensor([1.0, 3.0, 4.0, 12.0], dtype=torch.float64)
    cohort = Uniform(2).sample(Key(("round", 1)), importance)
    assert cohort.size == 2
    Uniform(1).check(1)
    present = importance[cohort.ids]
    torch.testing.assert_close(cohort.weight, (present / present.sum()).float())


def test_every_cohort_of_uniform_is_equally_likely():
    """6 pairs of 4 clients over 6000 rounds, 4.5 standard deviations."""
    times = Counter(
        Uniform(2).sample(Key(("round", number)), torch.ones(4, dtype=torch.float64)).clients for number in range(6000)
    )
    assert len(times) == 6
    assert max(abs(count - 1000) for count in times.values()) < 4.5 * (6000 / 6 * 5 / 6) ** 0.5


OUTSIDE = r"participation.num_participants=.* must be a whole number from 1 to num_clients=4"

test_num_participants_out_of_range = refused(
    [({"num": num}, OUTSIDE) for num in (0, 5, -1, 0.5, "ten", True, None)], lambda num: Uniform(num).check(4)
)


def test_those_of_the_file_are_left_out_of_their_rounds(tmp_path: Path) -> None:
    (tmp_path / "absent.json").write_text('{"1": [0, 2]}')
    rule = AbsentOfFile(Full(), str(tmp_path / "absent.json"))
    rule.check(3)
    ones = torch.ones(3, dtype=torch.float64)
    cohorts = [rule.sample(Key(("round", index)), ones, index) for index in range(3)]
    assert [cohort.clients for cohort in cohorts] == [(0, 1, 2), (1,), (0, 1, 2)]
    assert cohorts[1].weight.tolist() == [1.0]
    assert some_idle(rule, 3, 3)
    assert cohort_size(rule, 3, 3) is None
    with pytest.raises(ValueError, match="client 2 was absent from round 1, but num_clients=2"):
        rule.check(2)


def test_a_rule_that_never_changes_is_asked_about_one_round_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    for rule in (Full, Uniform):
        monkeypatch.setattr(
            rule, "inclusion", lambda self, num, index=0: torch.full((num,), 1.0 if index == 0 else 0.5)
        )
    assert cohort_size(Full(), 3, 9) == cohort_size(WithoutAbsent(Full(), {}), 3, 9) == 3
    assert largest_mean_squares(Uniform(3), EQUAL[:3], 9) == pytest.approx(1 / 3)
    assert cohort_size(type("Own", (Full,), {})(), 3, 9) is None  # a rule of one's own may change


NO_LIST = "is no list of absent clients"


@looped(
    "content, given, said",
    [
        *(("{", (), "is no JSON"), ("{}", ("0",), "participation.contents=0 is not the fingerprint")),
        *((content, (), NO_LIST) for content in ("[1]", '{"a": [1]}', '{"1": [-1]}', '{"1": [0.5]}', '{"1": 2}')),
        (None, (), "cannot read .*: No such file"),
    ],
)
def test_no_file_and_others_are_refused(content: str | None, given: tuple[str, ...], said: str, tmp_path: Path) -> None:
    path = tmp_path / ("absent.json" if content else "none.json")
    path.write_text(content) if content else None
    with pytest.raises(ValueError, match=said):
        AbsentOfFile(Full(), str(path), *given)
    with pytest.raises(ValueError, match="participation.path is empty"):
        AbsentOfFile(Full(), "")


def test_a_run_with_it_and_a_method_that_needs_all(fedcomp, tmp_path: Path, capsys) -> None:
    (tmp_path / "absent.json").write_text('{"1": [0, 2]}')
    options = ["participation=absent", f"participation.path={tmp_path / 'absent.json'}", "rounds=2", "eval_every=1"]
    assert fedcomp(*options) == 0
    assert fedcomp(*options, "algorithm=marina") != 0
    assert "needs every client in every round" in capsys.readouterr().err


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
        ({"probability": DRAWN | {"seed": -2}}, r"participation.probability.seed=-2 must be a whole number, 0 or more"),
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


class Own(Participation):
    """A rule whose cohort and probabilities a test gives."""

    def __init__(self, cohort: object = None, inclusion: object = None) -> None:
        self.cohort = Cohort.of((1, 3), torch.tensor([0.5, 0.5])) if cohort is None else cohort
        self.probabilities = torch.full((NUM_CLIENTS,), 0.5, dtype=torch.float64) if inclusion is None else inclusion

    def inclusion(self, num_clients, round_index=0):
        return self.probabilities

    def sample(self, key, importance, round_index=0):
        return self.cohort(round_index) if callable(self.cohort) else self.cohort


class Asleep(Participation):
    """Client i sleeps where i + round is a multiple of 3; all others come."""

    def inclusion(self, num_clients, round_index=0):
        return ((torch.arange(num_clients) + round_index) % 3 > 0).double()

    def sample(self, key, importance, round_index=0):
        awake = self.inclusion(len(importance), round_index).nonzero()[:, 0]
        return Cohort.of(awake.tolist(), importance[awake] / importance[awake].sum())


def of(clients, weight):
    return Cohort.of(clients, torch.tensor(weight))


HALF = torch.tensor([0.5, 0.5])
TWO_ALONE = torch.tensor([0, 1, 0, 0, 0, 1, 0], dtype=torch.float64)
SAYS = "the participation drew clients"


def drawn_globally(_: int) -> Cohort:
    return Cohort.of(torch.randperm(NUM_CLIENTS)[:2].sort().values.tolist(), HALF)


class Scales(Full):
    """Makes shares of the importance in place."""

    def sample(self, key, importance, round_index=0):
        importance /= importance.sum()
        return Full().sample(key, importance)


in_turn = itertools.cycle([Cohort.of((1, 3), HALF), Cohort.of((2, 4), HALF)])


def drawn_anew(_: int) -> Cohort:
    return next(in_turn)


@looped("rule", [*PARTICIPATIONS, Own(), WithoutAbsent(Full(), {0: (2,)}), Own(of((), []))])
def test_sound_rules_pass_without_a_word(rule, caplog: pytest.LogCaptureFixture) -> None:
    check_draws(rule, NUM_CLIENTS, 6)
    assert not caplog.records


@looped(
    "rule, words",
    [
        (Own(of((3, 1), [0.5, 0.5])), rf"^{SAYS} \[3, 1\], but a cohort is ascending, without repetition, and of 0"),
        (Own(of((3, 3), [0.5, 0.5])), rf"^{SAYS} \[3, 3\]"),
        (Own(of((1, 7), [0.5, 0.5])), rf"^{SAYS} \[1, 7\]"),
        (Own(of((-1, 2), [0.5, 0.5])), rf"^{SAYS} \[-1, 2\]"),
        (Own(Cohort(torch.tensor([3, 1]), HALF, (1, 3))), r"drew ids \[3, 1\] of torch.int64, but clients \[1, 3\]"),
        (Own(Cohort(torch.tensor([1, 3]), HALF.double(), (1, 3))), r"weights \[0.5, 0.5\] \(torch.float64\)"),
        (Own(of((1, 3), [0.5, float("nan")])), r"the participation gives 2 clients the weights \[0.5, nan\]"),
        (Own(of((1, 3), [0.5, 0.2, 0.3])), r"the participation gives 2 clients the weights \[0.5, 0.2"),
        (Own(lambda index: of((index, 3), [0.5, 0.5])), rf"^{SAYS} \[3, 3\]"),
        (Own([1, 3]), r"participation=\w+: sample returned a list, but must return a Cohort"),
        (
            Own(of((1, 3), [2.0, -1.0])),
            r"weights \[2.0, -1.0\] \(torch.float32\), but each needs one finite float32, 0 or",
        ),
        (Own(drawn_globally), r"draws from torch's global generator"),
        (Own(drawn_anew), r"drew clients \[1, 3\], and by the same key \[2, 4\]: a resumed run would have other"),
        (Scales(), r"sample writes into the importance that it is given, which is that of all rounds"),
        (Own(inclusion=0.5), r"inclusion must return float64 \[7\]"),
        (Own(inclusion=EQUAL * 2), r"inclusion returned \[2.0, .* but probabilities are in \[0, 1\]"),
        (Own(inclusion=ONE_AWAY), r"drew clients \[3\] for round 0, although its inclusion says that they cannot"),
        (Own(inclusion=EQUAL), r"drew 2 of 7 clients, although its inclusion says that all take part"),
    ],
)
def test_a_rule_of_ones_own_is_tried_before_the_first_round(rule, words: str) -> None:
    with one_line_error(words):
        check_draws(rule, NUM_CLIENTS, 6)


def test_weights_that_are_no_average_are_said(caplog: pytest.LogCaptureFixture) -> None:
    check_draws(Own(of((1, 3), [0.2, 0.2])), NUM_CLIENTS, 6)
    assert "the weights of a first cohort add up to 0.4: they are no average of those present" in caplog.text


class ThreeOfSeven(Own):
    """Draws three clients at random, of equal weights, whatever the probabilities it says."""

    def sample(self, key, importance, round_index=0):
        drawn = torch.randperm(NUM_CLIENTS, generator=key.generator())[:3].sort().values
        return of(drawn.tolist(), [1 / 3] * 3)


def test_a_client_that_is_not_drawn_as_often_as_the_rule_says_is_said(caplog: pytest.LogCaptureFixture) -> None:
    always_the_same = Own(of((1, 3, 5), [1 / 3] * 3), inclusion=EQUAL * 3 / 7)
    for rule, words in [
        (always_the_same, "drew client 0 in 0 of 300 trial cohorts, where its inclusion says 129"),
        (ThreeOfSeven(inclusion=EQUAL / 4), "of 300 trial cohorts, where its inclusion says 75"),
        (ThreeOfSeven(inclusion=EQUAL * 3 / 7), ""),
        (Own(lambda index: of((index % 7,), [1.0]), inclusion=EQUAL / 7), ""),  # they take turns
        (Asleep(), ""),
        (
            Own(of((1, 5), [0.5, 0.5]), inclusion=TWO_ALONE),
            "by its inclusion clients [0, 2, 3, 4, 6] take part in no round",
        ),
    ]:
        caplog.clear()
        check_draws(rule, NUM_CLIENTS, 70)
        assert words in caplog.text
        assert bool(words) == bool(caplog.records)


def test_a_later_cohort_of_a_rule_of_ones_own_is_checked_too() -> None:
    counts_up = Own(lambda index: of((index,), [1.0]))
    sim = world.simulation(fedavg(), participation=counts_up)
    assert sim.cohort(3).clients == (3,)
    with one_line_error(rf"^{SAYS} \[9\], but a cohort is ascending"):
        sim.cohort(9)
