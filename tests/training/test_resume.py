"""A run or a study of repetitions that was stopped, or is given more rounds, ends bit for bit as from the start."""

import signal
from pathlib import Path

import pytest

from fedcomp.cli.main import main
from fedcomp.records.metrics_file import read_repetitions
from fedcomp.records.provenance import read_provenance
from fedcomp.simulation.monte_carlo.study import MonteCarloStudy
from tests.forked import Forked
from tests.interrupted import before_round
from tests.left import assert_same_run, folder_of, record, status_of, wait_for_round
from tests.raising import raising
from tests.thorough import thorough, thorough_rows

# Adam on the server, error feedback on both links, ragged clients, rounds without anybody: all
# state there is.
EVERYTHING = """
rounds=60 eval_every=5 checkpoint_every=3 partition=dirichlet participation=bernoulli participation.probability=0.1
compressor=topk compressor.feedback=error compressor@downlink=sign downlink.feedback=error server=adam
client.momentum=0.5 pictures=false threads=1
"""


@pytest.mark.thorough
def test_a_run_that_is_stopped_in_every_way_ends_as_an_unbroken_one(fedcomp, tmp_path: Path) -> None:
    """SIGKILL, then Ctrl-C, then SIGTERM, each in a later piece of the same run, and then to the end."""
    root = tmp_path / "stopped"
    root.mkdir()
    process = _start(root)
    wait_for_round(process, root, 5)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert status_of(root).state == "running"
    for number, code, wanted in ((signal.SIGINT, 130, 15), (signal.SIGTERM, 143, 30)):
        process = _start(root)
        wait_for_round(process, root, wanted)
        process.send_signal(number)
        assert process.wait() == code
        shown = process.shown()
        assert "resuming after round" in shown
        status = status_of(root)
        assert status.state == "interrupted"
        assert f"interrupted after round {status.round} of 60, state saved; the same command resumes it" in shown
        assert "Traceback" not in shown
    process = _start(root)
    assert process.wait() == 0
    assert f"resuming after round {status.round}" in process.shown()

    assert fedcomp(*EVERYTHING.split(), f"output_root={tmp_path / 'unbroken'}") == 0
    assert_same_run(root, tmp_path / "unbroken")


def _start(root: Path) -> Forked:
    argv = ["fedcomp", *EVERYTHING.split(), f"output_root={root}"]
    return Forked(main, argv, folder=root, shown=root / "shown")


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
        (["repeats=2"], "with repeats this needs 20 rounds"),
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


REGRESSION = ("algorithm=fedavg_svrg", "dataset=diabetes", "model=linear", "client.lr=0.02", "quiet=true")
SHORT = (*REGRESSION, "rounds=6", "pictures=false", "checkpoint_every=2")


@pytest.mark.parametrize("options", [(), ("wire=packed",)], ids=["together", "one after another"])
def test_repetition_0_is_the_run_without_repeats(fedcomp, tmp_path: Path, options) -> None:
    """And all of them have a line, a curve, a mean and a variance; who holds what differs too."""
    for repeats in (1, 4):
        assert fedcomp(*SHORT, *options, f"repeats={repeats}", f"output_root={tmp_path / str(repeats)}") == 0
    alone, each = record(tmp_path / "1"), read_repetitions(folder_of(tmp_path / "4"))
    assert not (folder_of(tmp_path / "1") / "repetitions.jsonl").exists()
    for line, mean in zip(alone, record(tmp_path / "4")):
        values = each[line["round"]]["test/loss"]
        assert len(set(values)) == 4
        assert values[0] == pytest.approx(line["test/loss"], rel=1e-5)
        assert mean["test/loss"] == pytest.approx(sum(values) / 4)
        assert mean["variance/test/loss"] > 0
        assert each[line["round"]]["test/excess"][0] == pytest.approx(line["test/excess"], rel=1e-4)
    assert {"cep/plane", "cep/theta", "cep/loss", "participation/max_inverse", "gradients"} <= mean.keys()
    assert 0 < mean["bits/uplink"] < 6 * 20 * 32 * 11


@pytest.mark.parametrize("at", [*thorough([1]), 4])
def test_a_study_that_was_stopped_ends_as_an_unbroken_one(fedcomp, tmp_path: Path, monkeypatch, at: int) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert fedcomp(*SHORT, "repeats=3", f"output_root={whole}") == 0
    monkeypatch.setattr("fedcomp.simulation.monte_carlo.study._verified_vmap", lambda repetitions: None)
    with before_round(at + 1, raising(KeyboardInterrupt()), MonteCarloStudy):
        assert fedcomp(*SHORT, "repeats=3", f"output_root={broken}") == 130
    for folder in (broken, tmp_path / "apart"):
        assert fedcomp(*SHORT, "repeats=3", f"output_root={folder}") == 0
    assert_same_run(broken, tmp_path / "apart")
    for line, other in zip(record(whole), record(broken)):
        assert line == pytest.approx(other, rel=1e-3, abs=1e-7)


def test_a_fixed_partition_is_the_same_in_all_repetitions(fedcomp, tmp_path: Path) -> None:
    assert fedcomp(*SHORT, "repeats=2", "partition.seed=0", "dtype=float64") == 0
    last = read_repetitions(folder_of(tmp_path))[6]
    assert len(last["optimum/0"]) == 1
    assert last["theta/0"][0] != last["theta/0"][1]
