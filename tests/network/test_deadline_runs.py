"""Runs and studies with a deadline: what is refused before the first round, repetitions, resume, no replay."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedcomp.network.traffic.file import FILE, load
from fedcomp.network.traffic.rounds import Round
from fedcomp.records.metrics_file import read_lines, read_repetitions
from fedcomp.replay.__main__ import main
from fedcomp.simulation.monte_carlo.study import MonteCarloStudy
from tests.network.recorded import stopped_at

SMALL = (
    "rounds=6",
    "num_clients=4",
    "threads=1",
    "eval_every=2",
    "quiet=true",
    "model.hidden=[3]",
    "client.batch_size=40",
)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("algorithm=bicompfl_gr",), "algorithm=bicompfl_gr needs every client in every round"),
        (("algorithm=powersgd", "algorithm.rank=1"), "the clients of algorithm=powersgd send again after the server's"),
        (("algorithm=tamuna", "algorithm.p=0.5"), "algorithm=tamuna needs as many clients in every round"),
        (("network.deadline_weights=inverse", "compressor=topk", "compressor.positions=rice"), "depends on the data"),
        (("network.deadline_weights=inverse", "network.rtt_s=2.1"), "client 0 never meets network.deadline=1.0"),
        (("network.deadline_weights=inverse", "network.up_bps=1000"), "client 0 never meets network.deadline=1.0"),
        (("network.deadline_weights=inverse", "network.up_bps=100", "algorithm=fedpm"), "client 0 never meets"),
        (("network.deadline_weights=inverse", "network.down=multicast"), "is not for network.down=multicast"),
        (("network.deadline_weights=inverse", "algorithm=scaffold"), "=inverse has no effect on algorithm=scaffold"),
        (("network.deadline_weights=lost", "algorithm=scallion"), "=lost has no effect on algorithm=scallion"),
        (("network.deadline_weights=lost", "algorithm=feddyn"), "=lost has no effect on algorithm=feddyn"),
        (
            (
                "network.deadline_weights=lost",
                "compressor=topk",
                "compressor.predictor=ef21",
                "algorithm.weights=uniform",
                "participation=uniform",
                "participation.num_participants=3",
            ),
            "=lost has no effect on algorithm=fedavg as configured",
        ),
        (("network.capacity_bps=1e6",), "is not for cells"),
        (("network.deadline=0",), "network.deadline=0 must be a number in (0, inf]"),
    ],
)
def test_runs_that_cannot_have_one(
    fedcomp: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    says: str,
) -> None:
    def no_round(*_: object, **__: object) -> None:
        raise AssertionError("refused too late")

    monkeypatch.setattr("fedcomp.simulation.simulation.Simulation.round", no_round)
    assert fedcomp(*SMALL, "network=fixed", "network.deadline=1.0", *options) != 0
    assert says in capsys.readouterr().err


@pytest.mark.thorough
def test_each_repetition_of_a_study_has_its_own_late_clients(
    fedcomp: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Repetition 0 is the run without `repeats`; an interrupted study ends as an unbroken one."""
    options = (*SMALL, "network=fixed", "network.up_bps=1e4", "network.rtt_s=0", "network.jitter=0.5")
    options = (*options, "network.deadline=0.8", "partition.seed=1", f"output_root={tmp_path}")
    assert fedcomp(*options, "name=alone") == 0
    assert fedcomp(*options, "name=study", "repeats=2") == 0
    (alone,), (study,) = ([path.parent for path in (tmp_path / name).rglob(FILE)] for name in ("alone", "study"))
    first, both = load(alone / FILE), load(study / FILE)
    assert both.deadline == 0.8
    late = [[tuple((~one.on_time).tolist()) for one in rounds] for rounds in (*first.rounds, *both.rounds)]
    assert late[0] == late[1] != late[2]
    assert any(any(one) for one in late[0])
    own = [line["test/loss"] for line in read_lines(alone / "metrics.jsonl")]
    assert [each["test/loss"][0] for each in read_repetitions(study).values()] == pytest.approx(own, rel=1e-6)
    last = read_lines(study / "metrics.jsonl")[-1]
    assert last["deadline/late"] == np.mean([np.mean(rounds) for rounds in late[1:]])
    found = (study / FILE).read_bytes(), (study / "repetitions.jsonl").read_bytes()

    resumed = (*options, "name=resumed", "repeats=2", "checkpoint_every=1")
    with stopped_at(3, MonteCarloStudy):
        assert fedcomp(*resumed) != 0
    assert fedcomp(*resumed) == 0
    (again,) = (path.parent for path in (tmp_path / "resumed").rglob(FILE))
    assert ((again / FILE).read_bytes(), (again / "repetitions.jsonl").read_bytes()) == found
    assert read_lines(again / "metrics.jsonl")[-1]["deadline/late"] == last["deadline/late"]


def test_a_repetition_in_which_nobody_is_on_time_is_named(
    fedcomp: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("network=fixed", "network.deadline=1e-6", "repeats=2", f"output_root={tmp_path}")
    assert fedcomp(*SMALL[:-1], *options, "quiet=false") == 0
    shown = capsys.readouterr()
    for number in (0, 1):
        assert f"repetition {number}: nobody met network.deadline=1e-06 in round 1" in shown.out + shown.err


def test_a_run_with_a_deadline_resumes_and_cannot_be_replayed(
    fedcomp: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = (
        *SMALL,
        "network=lognormal",
        "network.down_bps=inf",
        "network.up_bps=1e4",
        "network.rtt_s=0",
        "network.deadline=0.012",
        "network.jitter=0.5",
        "compressor=topk",
        "compressor.feedback=error",
    )
    assert fedcomp(*options, f"output_root={tmp_path / 'whole'}") == 0
    with stopped_at(3):
        assert fedcomp(*options, "checkpoint_every=1", f"output_root={tmp_path / 'parts'}") != 0
    assert fedcomp(*options, "checkpoint_every=1", f"output_root={tmp_path / 'parts'}") == 0
    found = []
    for name in ("whole", "parts"):
        (record,) = (tmp_path / name).rglob("metrics.jsonl")
        lines = [{key: value for key, value in line.items() if key != "seconds"} for line in read_lines(record)]
        found.append((lines, record.with_name(FILE).read_bytes()))
    assert found[0] == found[1]
    lines = found[0][0]
    assert 0 < lines[-1]["deadline/late"] < 1
    assert [line.get("deadline/unbiased") for line in lines] == [0, None, None, None]
    traffic = load(next((tmp_path / "whole").rglob(FILE)))
    assert traffic.deadline == 0.012
    assert any(
        isinstance(one, Round) and one.on_time is not None and not one.on_time.all() for one in traffic.rounds[0]
    )
    assert main([str(tmp_path / "whole"), "network=lte"]) == 1
    assert "had network.deadline=0.012, which changed who learnt" in capsys.readouterr().err
