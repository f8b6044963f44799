"""What each participation promises: a sorted cohort from the key, whose weights aggregate without bias; absence."""

from collections import Counter
from pathlib import Path

import pytest
import torch

from fedcomp.participation.absent import AbsentOfFile
from fedcomp.participation.cohorts import cohort_size, some_idle
from fedcomp.random.keys import Key
from tests.looped import looped
from tests.parts import Bernoulli, Full, Uniform

NUM_CLIENTS = 7
PARTICIPATIONS = [
    Full(),
    Uniform(3),
    Uniform(NUM_CLIENTS),
    Bernoulli(0.5),
    Bernoulli(1.0),
    Bernoulli([0.9, 0.2, 0.5, 1.0, 0.3, 0.4, 0.1]),
    Bernoulli({"low": 0.3, "high": 1.0, "seed": 0}),
]
EQUAL = torch.ones(NUM_CLIENTS, dtype=torch.float64)
UNEQUAL = torch.tensor([5.0, 1, 2, 9, 3, 4, 8], dtype=torch.float64)
ROUNDS = 4000


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
def test_the_expected_weight_is_the_share_of_importance(participation, importance):
    assert float(standard_scores(aggregates(participation, importance), importance / importance.sum()).max()) < 5


@looped("participation", PARTICIPATIONS)
def test_inclusion_is_how_often_a_client_is_there(participation):
    expected = participation.inclusion(NUM_CLIENTS)
    present = (aggregates(participation, EQUAL) > 0).double()
    assert float(standard_scores(present, expected).max()) < 5


def test_weights_of_uniform_average_those_present():
    importance = torch.tensor([1.0, 3.0, 4.0, 12.0], dtype=torch.float64)
    cohort = Uniform(2).sample(Key(("round", 1)), importance)
    assert cohort.size == 2
    present = importance[cohort.ids]
    torch.testing.assert_close(cohort.weight, (present / present.sum()).float())


def test_every_cohort_of_uniform_is_equally_likely():
    """6 pairs of 4 clients over 6000 rounds, 4.5 standard deviations."""
    times = Counter(
        Uniform(2).sample(Key(("round", number)), torch.ones(4, dtype=torch.float64)).clients for number in range(6000)
    )
    assert len(times) == 6
    assert max(abs(count - 1000) for count in times.values()) < 4.5 * (6000 / 6 * 5 / 6) ** 0.5


@looped("num_participants", [0, 5, -1, 0.5, "ten", True, None])
def test_num_participants_out_of_range(num_participants):
    line = r"participation.num_participants=.* must be a whole number from 1 to num_clients=4"
    with pytest.raises(ValueError, match=line):
        Uniform(num_participants).check(4)
    Uniform(1).check(4)


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


@looped(
    "content, said",
    [
        ("{", "is no JSON"),
        ("[1]", "is no list of absent clients"),
        ('{"a": [1]}', "is no list of absent clients"),
        ('{"1": [-1]}', "is no list of absent clients"),
        ('{"1": 2}', "is no list of absent clients"),
    ],
)
def test_other_files_are_refused(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "absent.json").write_text(content)
    with pytest.raises(ValueError, match=said):
        AbsentOfFile(Full(), str(tmp_path / "absent.json"))


def test_no_file_and_a_changed_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="participation.path is empty"):
        AbsentOfFile(Full(), "")
    with pytest.raises(ValueError, match="cannot read .*: No such file"):
        AbsentOfFile(Full(), str(tmp_path / "absent.json"))
    (tmp_path / "absent.json").write_text("{}")
    with pytest.raises(ValueError, match="participation.contents=0 is not the fingerprint"):
        AbsentOfFile(Full(), str(tmp_path / "absent.json"), "0")


def test_a_run_with_it_and_a_method_that_needs_all(fedcomp, tmp_path: Path, capsys) -> None:
    (tmp_path / "absent.json").write_text('{"1": [0, 2]}')
    options = ["participation=absent", f"participation.path={tmp_path / 'absent.json'}", "rounds=2", "eval_every=1"]
    assert fedcomp(*options) == 0
    assert fedcomp(*options, "algorithm=marina") != 0
    assert "needs every client in every round" in capsys.readouterr().err
