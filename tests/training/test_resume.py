"""A run that was stopped, or is given more rounds, goes on and ends bit for bit as one from the start."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedcomp.records.provenance import read_provenance
from tests.left import assert_same_run, status_of, wait_for_round
from tests.thorough import thorough_rows

# Adam on the server, error feedback on both links, ragged clients, rounds without anybody: all
# state there is.
EVERYTHING = [
    "rounds=60",
    "eval_every=5",
    "checkpoint_every=3",
    "partition=dirichlet",
    "participation=bernoulli",
    "participation.probability=0.1",
    "compressor=topk",
    "compressor.feedback=error",
    "compressor@downlink=sign",
    "downlink.feedback=error",
    "server=adam",
    "client.momentum=0.5",
    "pictures=false",
    "threads=1",
]


@pytest.mark.thorough
def test_a_run_that_is_stopped_in_every_way_ends_as_an_unbroken_one(fedcomp, tmp_path: Path) -> None:
    """SIGKILL, then Ctrl-C, then SIGTERM, each in a later piece of the same run, and then to the end."""
    root = tmp_path / "stopped"
    root.mkdir()
    process = _start(root)
    wait_for_round(process, root, 5)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert status_of(root).state == "running"
    for number, code, wanted in ((signal.SIGINT, 130, 15), (signal.SIGTERM, 143, 30)):
        process = _start(root)
        wait_for_round(process, root, wanted)
        process.send_signal(number)
        shown = process.communicate(timeout=120)[1]
        assert process.returncode == code
        assert "resuming after round" in shown
        status = status_of(root)
        assert status.state == "interrupted"
        assert f"interrupted after round {status.round} of 60, state saved; the same command resumes it" in shown
        assert "Traceback" not in shown
    process = _start(root)
    assert f"resuming after round {status.round}" in process.communicate(timeout=120)[1]
    assert process.returncode == 0

    assert fedcomp(*EVERYTHING.split(), f"output_root={tmp_path / 'unbroken'}") == 0
    assert_same_run(root, tmp_path / "unbroken")


def _start(root: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fedcomp", *EVERYTHING.split(), f"output_root={root}"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=root, env=environment)


OPTIONS = ["num_clients=4", "model=logistic", "client.steps=2", "pictures=false", "threads=1", "eval_every=2"]
MEMORIES = ["compressor=topk", "compressor.feedback=error", "server=adam", "participation=bernoulli"]
NETWORK = ["network=lte", "participation=bernoulli"]
STUDY = ["repeats=2", "compressor=topk"]


def _folder(root: Path, rounds: int) -> Path:
    (folder,) = (path.parent for path in root.rglob("config.yaml") if f"\nrounds: {rounds}\n" in path.read_text())
    return folder


@pytest.mark.parametrize(
    ("options", "first", "then"), [(MEMORIES, 3, 6), *thorough_rows([(NETWORK, 4, 5), (STUDY, 21, 24)])]
)
def test_more_rounds_end_as_from_the_start(fedcomp, tmp_path: Path, capsys, options, first: int, then: int) -> None:
    assert fedcomp(*OPTIONS, *options, f"rounds={first}") == 0
    folder = _folder(tmp_path, first)
    capsys.readouterr()
    assert fedcomp(*OPTIONS, *options, f"rounds={then}") == 0
    shown = capsys.readouterr().err
    assert f"going on from round {first} of {folder}" in shown
    assert f"resuming after round {first}" in shown
    longer, anew = _folder(tmp_path, then), tmp_path / "anew"
    assert fedcomp(*OPTIONS, *options, f"rounds={then}", f"output_root={anew}") == 0
    assert_same_run(longer, anew)
    provenance = read_provenance(longer)
    assert provenance.continues == f"{folder}, round {first}"
    assert [one.to_round for one in provenance.sessions] == [first, then]
    assert fedcomp(*OPTIONS, *options, f"rounds={then}") == 0
    assert "already finished" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["client.schedule=cosine"], "the method or a schedule depends on the number of rounds"),
        (["client.schedule=exponential", "client.lr_final=0.9"], None),
        (["algorithm=fedsparsify"], "the method or a schedule depends on the number of rounds"),
        (["repeats=2"], "the method or a schedule depends on the number of rounds"),
        (["participation=bernoulli", "participation.probability=1e-9"], "nobody took part in them"),
    ],
)
def test_rounds_that_depend_on_their_number_are_not_continued(fedcomp, tmp_path, capsys, options, why) -> None:
    for rounds in (1, 2):
        assert fedcomp(*OPTIONS, *options, f"rounds={rounds}") == 0
    shown = capsys.readouterr().err
    assert ("going on from round 1" in shown) is (why is None)
    assert why is None or f"they cannot be continued: {why}; starting anew" in shown


def test_only_an_undamaged_finished_run_of_the_same_settings_is_continued(fedcomp, tmp_path: Path, capsys) -> None:
    def said(*words: str) -> str:
        capsys.readouterr()
        assert fedcomp(*OPTIONS, *words) == 0
        return capsys.readouterr().err

    said("rounds=2")
    for other in (["client.lr=0.2"], ["seed=1"], ["overwrite=true"]):
        assert "going on from" not in said("rounds=3", *other)
    assert "going on from" not in said("rounds=1")
    assert "going on from round 3 of" in said("rounds=4"), "the one with the most rounds"
    record = _folder(tmp_path, 4) / "metrics.jsonl"
    record.write_text(record.read_text().replace('"test/loss": ', '"test/loss": 1'))
    assert "is not what the run wrote" in said("rounds=5")
