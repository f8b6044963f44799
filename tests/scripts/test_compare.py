"""A method of one's own gets the row that it would have in the table: FedAvg's, if it is FedAvg."""

import sys
from pathlib import Path

import pytest

from scripts import compare
from scripts.reproduce.experiment import Ended
from scripts.reproduce.records import Folder, Run
from scripts.reproduce.same_bits_search import COMMITTED, SEEDS
from tests.looped import looped
from tests.outside import write_files

DIGITS = compare.TASKS["digits"]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Those that are given; their runs end as FedAvg's have in the committed records."""
    given: list[list[str]] = []

    def update(folder: Folder, search, outputs: Path) -> None:
        made = SEEDS if f"seed={','.join(SEEDS)}" in given[-1] else ()
        rows = [run for run in COMMITTED[DIGITS].where(label="FedAvg") if run.about["seed"] in ("10", "11", *made)]
        folder.path.mkdir(parents=True, exist_ok=True)
        folder._write(search, [Run({**run.about, "label": compare.OWN}, run.lines) for run in rows])

    monkeypatch.setattr(compare, "run", lambda words, deadline: given.append(words) or Ended.FINISHED)
    monkeypatch.setattr(Folder, "update", update)
    return given


def test_fedavg_gets_fedavgs_row(commands: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    outputs = ("--outputs", str(tmp_path))
    assert compare.main(["digits", "compressor=dense", "client.lr=0.08", *outputs, "--label", "mine"]) == 0
    text = capsys.readouterr().out
    rows = {line.split(" | ")[0]: line.split(" | ")[1:] for line in text.splitlines()}
    assert rows["| **mine**"] == rows["| FedAvg"]
    trials, runs = commands
    for words in (trials, runs):
        assert {"compressor=dense", "algorithm.weights=uniform", "label=own", f"output_root={tmp_path}"} <= set(words)
    assert {"client.lr=0.03,0.1,0.3", "client.steps=5,20,60", "seed=10,11", "rounds=40"} <= set(trials)
    assert {"client.lr=0.3", "client.steps=60", "seed=0,1,2"} <= set(runs)
    (place,) = tmp_path.glob("compare_digits_*/compare")
    assert (place / "compare.png").stat().st_size > 10_000
    assert (place / "compare.md").read_text(encoding="utf-8").splitlines()[2:5] == text.splitlines()[2:5]


def _named(*overrides: str, like: str = "fedavg") -> str:
    return compare.own_row(DIGITS, compare.LIKE[like], overrides, None)[1]


def test_methods_have_a_folder_each_wherever_they_run() -> None:
    assert _named() == _named("launcher=joblib", "device=cpu", "threads=2")
    assert len({_named(), _named("server=adam"), _named("client.batch_size=16"), _named(like="svrg")}) == 4


def test_other_code_is_another_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a codec that was mended would show the results of the wrong one."""
    names = set()
    for place, halved in (("a", ""), ("b", ""), ("c", "    halved = True\n")):
        folder = _own_codec(tmp_path / place, halved)
        monkeypatch.syspath_prepend(folder)
        sys.modules.pop("own_codec", None)
        names.add(compare.own_row(DIGITS, compare.LIKE["fedavg"], ["compressor=own_codec"], str(folder))[1])
    assert len(names) == 2


def _own_codec(folder: Path, more: str = "") -> Path:
    code = f"from fedcomp.compressor.dense import Dense\n\n\nclass Own(Dense):\n    pass\n{more}"
    text = "# Own.\n_target_: own_codec.Own\nprecision: float16\n"
    return write_files(folder, {"own_codec.py": code, "compressor/own_codec.yaml": text})


@looped(
    "words, says",
    [
        (["rounds=3"], "rounds=3: rounds is the same for all methods of the table: leave it out"),
        (["repeats=2"], "repeats is the same for all methods"),
        (["dataset@data=mnist"], "dataset is the same for all methods"),
        (["compressor=nope"], "compressor=nope is unknown"),
        (
            ["--rate", "client.alpha"],
            "--rate client.alpha is no number of this method: give --rate the name of the option",
        ),
        (["output_root=there"], "output_root=there: give --outputs there instead"),
        (["compressor=topk", "compressor.fraction=2"], "compressor.fraction=2 must be a number in (0, 1]"),
        (["client.lr_final=0.1"], "client.lr_final=0.1 has no effect with client.schedule=constant"),
        (["--label", "FedAvg"], "the table has a row of that name"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    commands: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture, words: list[str], says: str
) -> None:
    assert compare.main(["digits", *words, "--outputs", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert commands == []


def test_a_method_without_a_row_is_told_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(compare, "run", lambda words, deadline: Ended.FAILED)
    assert compare.main(["digits", "--outputs", str(tmp_path)]) == 2
    assert "no run came to its first test" in capsys.readouterr().err


def test_ctrl_c_says_what_stands(commands: list[list[str]], tmp_path: Path, monkeypatch, capsys) -> None:
    whole = compare.run

    def stopped(words: list[str], deadline: float) -> Ended:
        whole(words, deadline)
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "run", stopped)
    assert compare.main(["digits", "compressor=dense", "client.lr=0.08", "--outputs", str(tmp_path)]) == 2
    over = len(COMMITTED[DIGITS].where(label="FedAvg", seed="10")) + len(
        COMMITTED[DIGITS].where(label="FedAvg", seed="11")
    )
    assert capsys.readouterr().err == f"error: stopped with {over} runs at their end; the same command goes on\n"


@pytest.mark.thorough
def test_one_file_of_a_users_own_is_run(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """All clients and steps of the digits, which take a minute."""
    words = ["compressor=own_codec", "compressor@downlink=own_codec", "device=cpu"]
    own = ["--config-dir", str(_own_codec(tmp_path / "mine")), "--outputs", str(tmp_path / "outputs")]
    assert compare.main(["digits", *words, *own]) == 0
    rows = {line.split(" | ")[0]: line.split(" | ")[1:] for line in capsys.readouterr().out.splitlines()}
    assert rows["| **ours**"][0] == rows["| FedAvg, 16 bits"][0]
    assert rows["| **ours**"][2:5] == rows["| FedAvg, 16 bits"][2:5]  # rounds and bits, on every processor
