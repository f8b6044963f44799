"""A run that is gone on with, or asked for again, after its data, the user's own code or the versions have changed."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fedcomp.config.identity import config_hash
from fedcomp.provenance import check, code
from fedcomp.provenance.check import RunInputs
from fedcomp.records.provenance import Fingerprint, Provenance, read_provenance
from fedcomp.records.reader import read_runs
from fedcomp.records.status import read_status
from fedcomp.reporting.build import report
from fedcomp.reporting.content import Options
from fedcomp.reporting.group import group
from fedcomp.reporting.made_with import made_with
from fedcomp.tracking.contract import Jsonl
from fedcomp.training.build import _check_same_inputs
from tests.interrupted import stopped_after
from tests.looped import looped
from tests.outside import write_files
from tests.refused import one_line_error

TINY = ("num_clients=3", "rounds=4", "checkpoint_every=1", "pictures=false", "client.batch_size=4", "threads=1")
Command = Callable[..., int]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    rows = [f"{number},{number * 7 % 5},{'ab'[number % 2]}" for number in range(20)]
    path.write_text("\n".join(["one,two,label", *rows]) + "\n")
    return path


@pytest.fixture
def csv(table: Path) -> tuple[str, ...]:
    options = ("dataset=csv", f"dataset.path={table}", "dataset.target=label", "dataset.task=classification")
    return (*TINY, *options, "model=linear")


def _stop(fedcomp: Command, *arguments: str) -> None:
    """The run is stopped after round 2."""
    with stopped_after(3):
        assert fedcomp(*arguments) == 130


def _folder(root: Path) -> Path:
    (path,) = root.rglob("provenance.json")
    return path.parent


def _kept(root: Path) -> Provenance:
    return read_provenance(_folder(root))


def _made_with(root: Path) -> list[str]:
    return made_with(group(read_runs([root])))


def _relabel(table: Path) -> None:
    table.write_text(table.read_text().replace("4,3,a", "4,3,b"))


def test_a_run_says_what_it_was_made_with(fedcomp: Command, tmp_path: Path, csv: tuple[str, ...]) -> None:
    assert fedcomp(*csv) == 0
    kept = _kept(tmp_path)
    assert list(kept.data) == ["mine.csv"]
    assert not kept.code
    (session,) = kept.sessions
    assert {"fedcomp", "python", "torch", "numpy"} <= session.versions.keys()
    assert (session.from_round, session.to_round, session.state) == (0, 4, "finished")
    assert (session.device, session.threads, session.processes) == ("cpu", 1, 1)
    assert session.end is not None
    assert session.start <= session.end


def test_a_changed_label_is_refused_accepted_and_noted(fedcomp, tmp_path: Path, capsys, csv, table: Path) -> None:
    _stop(fedcomp, *csv)
    record = (_folder(tmp_path) / "metrics.jsonl").read_bytes()
    before = _kept(tmp_path)
    _relabel(table)
    capsys.readouterr()
    assert fedcomp(*csv) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "data or code have changed since this run's last session: data: mine.csv has changed" in line
    assert "accept_changes=true" in line
    status = read_status(_folder(tmp_path))
    assert (status.state, status.round) == ("failed", 3)
    assert _kept(tmp_path) == before
    assert (_folder(tmp_path) / "metrics.jsonl").read_bytes() == record

    assert fedcomp(*csv, "accept_changes=true") == 0
    assert "resuming with other data or code: data: mine.csv has changed" in capsys.readouterr().err
    first, second = _kept(tmp_path).sessions
    assert (first.accepted, first.state, first.to_round) == ((), "interrupted", 3)
    assert (second.accepted, second.from_round) == (("data: mine.csv has changed",), 2)
    assert fedcomp(*csv) == 0, "the data are those of the last session"
    (folder, words), *_ = (line.split(" went on although ") for line in _made_with(tmp_path) if "went on" in line)
    assert folder == str(_folder(tmp_path))
    assert words == "data: mine.csv has changed (accept_changes=true)"


def test_a_finished_run_of_other_data_is_no_result(fedcomp, capsys, csv, table: Path) -> None:
    """By itself and in a grid, until it is run anew; or its result is kept, and that is said."""
    grid = ("-m", "seed=0,1")
    assert fedcomp(*csv, *grid) == 0
    whole = table.read_text()
    _relabel(table)
    capsys.readouterr()
    assert fedcomp(*csv) == 1
    shown = capsys.readouterr().err
    assert "already finished" not in shown
    assert "finished, but its data or code have changed since: data: mine.csv has changed" in shown
    assert fedcomp(*csv, *grid) == 1
    assert "0 finished, 2 failed" in capsys.readouterr().err
    assert fedcomp(*csv, *grid, "accept_changes=true") == 0
    assert "2 of them: finished, but its data or code have changed" in capsys.readouterr().err
    assert fedcomp(*csv, "overwrite=true") == 0
    assert fedcomp(*csv) == 0
    table.write_text(whole)
    assert fedcomp(*csv, "seed=1") == 0, "put back, it is the same again"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ...]]:
    """A dataset of the user's own, with a module beside it."""
    files = {
        "dataset/own.yaml": "_target_: own_data.load\n",
        "own_data.py": "from own_numbers import numbers\n"
        "from fedcomp.dataset.contract import Dataset, Samples\n"
        "def load():\n"
        "    samples = Samples(numbers(), numbers().sum(1, keepdim=True))\n"
        "    return Dataset('own', samples, samples, 'regression', 1)\n",
        "own_numbers.py": "import torch\ndef numbers():\n    return torch.arange(24.0).reshape(12, 2) / 24\n",
    }
    folder = write_files(tmp_path / "mine", files)
    monkeypatch.setattr(sys, "path", list(sys.path))
    _forget()
    yield ("--config-dir", str(folder), *TINY, "dataset=own", "model=linear")
    _forget()


def _forget() -> None:
    """As a new process."""
    for name in ("own_data", "own_numbers"):
        sys.modules.pop(name, None)
    code.source.cache_clear()


@pytest.mark.thorough
@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("edit", ["# no more\n", "numbers = lambda: torch.ones(12, 2)\n"])
def test_own_code_and_what_it_imports(fedcomp, tmp_path: Path, capsys, mine, finished: bool, edit: str) -> None:
    if finished:
        assert fedcomp(*mine) == 0
    else:
        _stop(fedcomp, *mine)
    kept = _kept(tmp_path)
    assert list(kept.code) == ["own_data.py", "own_numbers.py"]
    assert sorted(kept.data) == ["mean", "std", "test.x", "test.y", "train.x", "train.y"]
    with (tmp_path / "mine" / "own_numbers.py").open("a") as file:
        file.write(edit)
    _forget()
    capsys.readouterr()
    assert fedcomp(*mine) == 1
    shown = capsys.readouterr().err
    assert "code: own_numbers.py has changed" in shown
    assert ("data: test.x has changed" in shown) == ("ones" in edit)
    assert fedcomp(*mine, "accept_changes=true") == 0


@pytest.mark.thorough
def test_other_versions_are_said(fedcomp: Command, tmp_path: Path, capsys, monkeypatch, csv: tuple[str, ...]) -> None:
    _stop(fedcomp, *csv)
    now = {**check.versions(), "torch": "9.9"}
    monkeypatch.setattr(check, "versions", lambda: now)
    capsys.readouterr()
    assert fedcomp(*csv) == 0
    shown = capsys.readouterr().err
    assert "warning: resuming with torch 9.9 instead of" in shown
    assert "torch 9.9" in (_folder(tmp_path) / "run.log").read_text()
    assert report(Options([tmp_path])) == 0
    assert "9.9 (1)" in capsys.readouterr().out
    for name in ("table.md", "report.html"):
        assert "9.9 (1)" in (tmp_path / "report" / name).read_text()


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_whose_provenance_was_removed_goes_on_and_says_so(fedcomp, tmp_path: Path, capsys, csv, finished) -> None:
    if finished:
        assert fedcomp(*csv) == 0
    else:
        _stop(fedcomp, *csv)
    folder = _folder(tmp_path)
    (folder / "provenance.json").unlink()
    capsys.readouterr()
    assert fedcomp(*csv) == 0
    assert check.UNKNOWN in capsys.readouterr().err
    if not finished:
        kept = _kept(tmp_path)
        assert kept.since == 2
        assert len(kept.sessions) == 1


UNUSED = {"fedavg": (), "fedmrn": ("compressor",), "fedscalar": ("compressor", "downlink")}


@pytest.mark.parametrize("algorithm", UNUSED)
def test_parts_of_the_config_that_the_algorithm_does_not_use(fedcomp: Command, tmp_path: Path, algorithm: str) -> None:
    assert fedcomp(*TINY, "rounds=1", f"algorithm={algorithm}") == 0
    assert _kept(tmp_path).unused == UNUSED[algorithm]


def test_a_damaged_file_is_named(fedcomp: Command, tmp_path: Path, capsys, csv: tuple[str, ...]) -> None:
    assert fedcomp(*csv) == 0
    path = _folder(tmp_path) / "provenance.json"
    written = json.loads(path.read_text())
    for wrong in ({"versions": None}, {"commits": [{"folder": None, "commit": "0", "clean": True}]}):
        path.write_text(json.dumps({**written, "sessions": [{**written["sessions"][0], **wrong}]}))
        with one_line_error("is damaged: remove it"):
            read_provenance(path.parent)
    path.write_text(path.read_text()[:100])
    assert fedcomp(*csv) == 1
    assert f"{path} is damaged: remove it" in capsys.readouterr().err
    (path.parent / "status.json").write_text('{"state": "finished", "round": 4}')
    (line,) = _made_with(tmp_path)
    assert line.startswith(f"{path} is damaged")


def test_other_data_in_one_table_are_said(fedcomp: Command, tmp_path: Path, capsys, csv: tuple[str, ...]) -> None:
    assert fedcomp(*csv) == 0
    path = _folder(tmp_path) / "provenance.json"
    assert fedcomp(*csv, "seed=1") == 0
    content = json.loads(path.read_text())
    content["data"]["mine.csv"]["digest"] = "0" * 32
    path.write_text(json.dumps(content))
    config = path.with_name("config.yaml")
    config.write_text(config.read_text().replace("dataset:\n", "dataset:\n  check_md5: true\n"))  # of no effect
    (line,) = (line for line in _made_with(tmp_path) if "DATA" in line)
    assert line.startswith("NOT THE SAME DATA of csv: mine.csv 00000000 (1 runs); mine.csv ")


def test_one_that_is_deleted_while_the_run_lasts_is_written_again(fedcomp, tmp_path: Path, monkeypatch, csv) -> None:
    def log(self: Jsonl, record: dict) -> None:
        for path in tmp_path.rglob("provenance.json"):
            path.unlink()

    monkeypatch.setattr(Jsonl, "log", log)
    assert fedcomp(*csv) == 0
    (session,) = _kept(tmp_path).sessions
    assert session.state == "finished"


def test_accepting_changes_is_no_setting_of_a_run() -> None:
    assert config_hash({"rounds": 3, "accept_changes": True}) == config_hash({"rounds": 3})


def test_processes_with_other_options_or_data_are_refused() -> None:
    parts = {"mine.csv": Fingerprint("aa", 1, 3)}
    mine = RunInputs(parts, {}, parts)
    _check_same_inputs(("run", mine), ("run", mine))
    with pytest.raises(ValueError, match="options on .* are not those of process 0: they make the run other instead"):
        _check_same_inputs(("other", mine), ("run", mine))
    for kind, words in (("data", "data"), ("model", "the model's parts")):
        with pytest.raises(ValueError, match=f"{words} on .* are not those of process 0: mine.csv "):
            _check_same_inputs(("run", mine), ("run", replace(mine, **{kind: {"mine.csv": Fingerprint("bb", 1, 3)}})))


@looped(
    "names, line",
    [
        ("ab", None),
        ("ac", None),  # b is called c now
        ("ba", "a has changed, b has changed"),  # training and test data in each other's place
        ("a", "b is gone"),
    ],
)
def test_renamed_data_are_the_same_and_exchanged_ones_are_not(
    names: str, line: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = dict(zip("ab", (Fingerprint("0", 1, 9), Fingerprint("1", 1, 9))))
    now = dict(zip(names, kept.values()))
    monkeypatch.setattr(check, "read_provenance", lambda _: Provenance(kept, {}, (), 0))
    monkeypatch.setattr(check, "data_parts", lambda *_: now)
    said = check.changed_data(tmp_path, {}, None)
    assert said is None if line is None else f"the data have changed since the run: {line};" in said
