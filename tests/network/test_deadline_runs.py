"""Runs and studies with a deadline: what is refused before the first round, repetitions, resume, no replay."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedcomp.network.traffic.file import FILE, load
from fedcomp.records.metrics_file import read_lines, read_repetitions
from fedcomp.replay.__main__ import main
from fedcomp.simulation.monte_carlo.study import MonteCarloStudy
from fedcomp.simulation.simulation import Simulation
from tests.interrupted import before_round
from tests.left import folder_of, record
from tests.looped import looped
from tests.raising import raising

NETWORK = ("model.hidden=[3]", "client.batch_size=40", "threads=1")
SMALL = ("rounds=6", "num_clients=4", "eval_every=2", *NETWORK, "quiet=true")


SOME = ("participation=uniform", "participation.num_participants=3", "algorithm.weights=uniform")
EF21 = ("compressor=topk", "compressor.predictor=ef21", *SOME)


@looped(
    "options, says",
    [
        (("algorithm=bicompfl_gr",), "algorithm=bicompfl_gr needs every client in every round"),
        (("algorithm=powersgd", "algorithm.rank=1"), "the clients of algorithm=powersgd send again after the server's"),
        (("algorithm=tamuna", "algorithm.p=0.5"), "algorithm=tamuna needs as many clients in every round"),
        (("network.deadline_weights=inverse", "compressor=topk", "compressor.positions=rice"), "depends on the data"),
        (("network.deadline_weights=inverse", "network.rtt_s=2.1"), "client 0 never meets network.deadline=1.0"),
        (("network.deadline_weights=inverse", "network.up_bps=1000"), "client 0 never meets network.deadline=1.0"),
        (("network.deadline_weights=inverse", "network.up_bps=100", "algorithm=fedmrn"), "client 0 never meets"),
        (("network.deadline_weights=inverse", "network.down=multicast"), "is not for network.down=multicast"),
        (("network.deadline_weights=inverse", "algorithm=scaffold"), "=inverse is not for algorithm=scaffold"),
        (("network.deadline_weights=lost", "algorithm=scallion"), "=lost is not for algorithm=scallion"),
        (("network.deadline_weights=lost", "algorithm=feddyn"), "=lost is not for algorithm=feddyn"),
        (("network.deadline_weights=inverse", "algorithm=fedpm"), "=inverse is not for algorithm=fedpm as configured"),
        (("network.deadline_weights=lost", *EF21), "=lost is not for algorithm=fedavg as configured"),
    ],
)
def test_runs_that_cannot_have_one(fedcomp, capsys, monkeypatch, options: tuple[str, ...], says: str) -> None:
    monkeypatch.setattr(Simulation, "round", raising(AssertionError("refused too late")))
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
    with before_round(4, raising(ValueError("stopped")), MonteCarloStudy):
        assert fedcomp(*resumed) != 0
    assert fedcomp(*resumed) == 0
    (again,) = (path.parent for path in (tmp_path / "resumed").rglob(FILE))
    assert ((again / FILE).read_bytes(), (again / "repetitions.jsonl").read_bytes()) == found
    assert read_lines(again / "metrics.jsonl")[-1]["deadline/late"] == last["deadline/late"]


def test_a_repetition_in_which_nobody_is_on_time_is_named(fedcomp: Callable[..., int], tmp_path: Path, capsys) -> None:
    options = ("network=fixed", "network.deadline=1e-6", "repeats=2", f"output_root={tmp_path}")
    assert fedcomp(*SMALL[:-1], *options, "quiet=false") == 0
    shown = capsys.readouterr()
    for number in (0, 1):
        assert f"repetition {number}: nobody met network.deadline=1e-06 in round 1" in shown.out + shown.err


def test_a_run_with_a_deadline_resumes_and_cannot_be_replayed(
    fedcomp: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = ("network=lognormal", "network.down_bps=inf", "network.up_bps=1e4", "network.rtt_s=0")
    late = ("network.deadline=0.05", "network.jitter=0.5", "compressor=topk", "compressor.feedback=error")
    options = (*SMALL, *network, *late)
    assert fedcomp(*options, f"output_root={tmp_path / 'whole'}") == 0
    with before_round(4, raising(ValueError("stopped"))):
        assert fedcomp(*options, "checkpoint_every=1", f"output_root={tmp_path / 'parts'}") != 0
    assert fedcomp(*options, "checkpoint_every=1", f"output_root={tmp_path / 'parts'}") == 0
    lines = record(tmp_path / "whole")
    assert lines == record(tmp_path / "parts")
    assert len({(folder_of(tmp_path / name) / FILE).read_bytes() for name in ("whole", "parts")}) == 1
    assert 0 < lines[-1]["deadline/late"] < 1
    assert [line.get("deadline/unbiased") for line in lines] == [0, None, None, None]
    traffic = load(next((tmp_path / "whole").rglob(FILE)))
    assert traffic.deadline == 0.05
    assert any(one.on_time is not None and not one.on_time.all() for one in traffic.rounds[0])
    assert main([str(tmp_path / "whole"), "network=lte"]) == 1
    assert "had network.deadline=0.05, which changed who learnt" in capsys.readouterr().err
