"""The cohorts of a rule without clients who are absent by a file: who is left out, and what is refused."""

from pathlib import Path

import pytest
import torch

from fedcomp.participation.absent import AbsentOfFile
from fedcomp.participation.cohorts import cohort_size, some_idle
from fedcomp.participation.full import Full
from fedcomp.random.keys import Key
from tests.looped import looped


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
