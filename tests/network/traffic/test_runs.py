"""Runs with a network: the same file and times however they are computed, and nothing changes without one."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedcomp.network.clock import Clock
from fedcomp.network.links.csv import CsvLinks
from fedcomp.network.links.lognormal import LognormalLinks
from fedcomp.network.traffic.file import FILE, load
from fedcomp.random.keys import Key
from fedcomp.replay.__main__ import main
from tests.interrupted import before_round
from tests.left import checkpoint_of, folder_of, record
from tests.network.recorded import sums
from tests.raising import raising

ROOT = Path(__file__).resolve().parents[3]
NETWORK_OF = ("model.hidden=[3]", "client.batch_size=40", "threads=1")
SMALL = ("rounds=8", "num_clients=5", "eval_every=3", *NETWORK_OF, "quiet=true")
STOP = raising(ValueError("stopped"))
VARYING = ("compressor=topk", "compressor.fraction=0.1", "compressor.positions=rice", "compressor.feedback=error")
SOME = ("participation=bernoulli", "participation.probability=0.3", "partition=dirichlet")
NETWORK = ("network=lte", "network.seconds_per_gradient=1e-3", "network.spread_gradient=4", "network.jitter=0.2")
Fedcomp = Callable[..., int]


def _run(fedcomp: Fedcomp, root: Path, *options: str) -> tuple[bytes, list[dict[str, Any]]]:
    """(bytes of traffic.npz, times of every line)."""
    assert fedcomp(*SMALL, *options, f"output_root={root}") == 0
    lines = [{name: value for name, value in line.items() if name.startswith("time/")} for line in record(root)]
    file = folder_of(root) / FILE
    assert not list(file.parent.glob("traffic-*.npz"))
    return file.read_bytes() if file.exists() else b"", lines


def test_file_and_times_do_not_depend_on_how_they_are_computed(fedcomp: Fedcomp, tmp_path: Path) -> None:
    common = *VARYING, *SOME, *NETWORK, "dtype=float64"
    file, times = _run(fedcomp, tmp_path / "one", *common)
    assert times[0]["time/total"] == 0
    assert 0 < times[1]["time/total"] < times[-1]["time/total"]
    for number, options in enumerate((("wire=packed",), ("chunk_size=2", "checkpoint_every=1"))):
        again, same = _run(fedcomp, tmp_path / str(number), *common, *options)
        assert again == file
        assert same == times


@pytest.mark.thorough
def test_a_resumed_run_has_the_same_file_and_times(fedcomp: Fedcomp, tmp_path: Path) -> None:
    common = *VARYING, *SOME, *NETWORK
    file, times = _run(fedcomp, tmp_path / "whole", *common)
    for stop in (4, 6):  # between two checkpoints, and after a checkpoint that is no evaluation
        with before_round(stop + 1, STOP):
            assert fedcomp(*SMALL, *common, f"output_root={tmp_path / 'parts'}", "checkpoint_every=2") != 0
    again, same = _run(fedcomp, tmp_path / "parts", *common, "checkpoint_every=2")
    assert again == file
    assert same == times


def test_a_run_whose_segments_are_gone_says_so(fedcomp: Fedcomp, tmp_path: Path, capsys) -> None:
    options = *SMALL, "record_traffic=true", "checkpoint_every=2", f"output_root={tmp_path}"
    with before_round(6, STOP):
        assert fedcomp(*options) != 0
    for path in tmp_path.rglob("traffic-*.npz"):
        path.unlink()
    assert fedcomp(*options) != 0
    assert "has no traffic of round 1, but the run was at round 4" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("size", "options"), [(2, ()), (3, ()), (2, ("network.deadline=0.4",))])  # which one misses
def test_several_processes_write_the_same_file(fedcomp, tmp_path: Path, size: int, options: tuple[str, ...]) -> None:
    common = *VARYING, *SOME, *NETWORK, "chunk_size=2", "device=cpu", *options
    file, times = _run(fedcomp, tmp_path / "one", *common)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={size}"]
    command = [*torchrun, "-m", "fedcomp", *SMALL, *common, f"output_root={tmp_path / 'all'}"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    assert (folder_of(tmp_path / "all") / FILE).read_bytes() == file
    lines = record(tmp_path / "all")
    assert [{name: line[name] for name in line if name.startswith("time/")} for line in lines] == times


@pytest.mark.parametrize("options", [("repeats=3",), ("repeats=3", *VARYING, "wire=packed")], ids=["at once", "apart"])
def test_a_study_has_the_rounds_of_its_repetitions(fedcomp: Fedcomp, tmp_path: Path, options: tuple[str, ...]) -> None:
    _, times = _run(fedcomp, tmp_path / "study", *options, *SOME, *NETWORK)
    _, first = _run(fedcomp, tmp_path / "alone", *options[2:], *options[1:2], *SOME, *NETWORK)
    study, alone = (load(folder_of(tmp_path / name) / FILE) for name in ("study", "alone"))
    assert len(study.rounds) == 3
    for one, other in zip(study.rounds[0], alone.rounds[0], strict=True):
        assert (one.template, one.clients) == (other.template, other.clients)
    assert len({one.clients for rounds in study.rounds for one in rounds}) > 8, "repetitions differ"
    last, found = record(tmp_path / "study")[-1], sums(study)
    assert found["uplink"] == pytest.approx(3 * last["bits/uplink"])
    assert found["gradients"] == pytest.approx(3 * last["gradients"])
    network = LognormalLinks(
        down_bps=29e6, up_bps=5.74e6, rtt_s=0.0616, spread_down=10, spread_up=10, correlation=0.5,
        seconds_per_gradient=1e-3, spread_gradient=4, jitter=0.2,
    )  # fmt: skip
    ends = []
    for number, rounds in enumerate(study.rounds):
        key = Key(("run", 0)).fold_in("repetition", number) if number else Key(("run", 0))
        clock = Clock(network, network.links(5), key)
        for one in rounds:
            clock.advance(one)
        ends.append(clock.server)
    assert times[-1]["time/total"] == pytest.approx(sum(ends) / 3, rel=1e-12)
    assert first[-1]["time/total"] == pytest.approx(ends[0], rel=1e-12)
    assert "time/slowest" not in times[-1]


def test_without_a_network_nothing_is_recorded_and_with_one_nothing_else_changes(fedcomp, tmp_path: Path) -> None:
    def left(name: str, *options: str) -> tuple[list[str], list[dict[str, Any]], list[str], list[bytes]]:
        root = tmp_path / name
        assert fedcomp(*SMALL, *VARYING, *options, f"output_root={root}") == 0
        files, kept = sorted(one.name for one in folder_of(root).iterdir()), checkpoint_of(root)
        return files, record(root), sorted(kept), [one.numpy().tobytes() for one in kept["state"].values()]

    plain, timed = left("plain"), left("timed", *NETWORK)
    assert FILE not in plain[0]
    assert set(timed[0]) - set(plain[0]) == {FILE}
    assert not any(name.startswith("time/") for line in plain[1] for name in line)
    assert [{key: value for key, value in line.items() if not key.startswith("time/")} for line in timed[1]] == plain[1]
    assert timed[2:] == plain[2:]


def test_a_table_of_rates_is_identified_by_its_contents(fedcomp: Fedcomp, tmp_path: Path) -> None:
    def run(path: Path) -> set[str]:
        assert fedcomp(*SMALL, "network=csv", f"network.path={path}", f"output_root={tmp_path / 'out'}") == 0
        return {one.parent.name for one in (tmp_path / "out").rglob("identity.json")}

    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    one.write_text("down_bps,up_bps\n" + 5 * "1e6,1e5\n")
    first = run(one)
    assert run(one.rename(other)) == first, "a moved file"
    other.write_text("down_bps,up_bps\n" + 5 * "1e6,2e5\n")
    assert len(run(other)) == 2, "a changed file"
    assert main([str(tmp_path / "out"), "network=csv", f"network.path={other}", "--out", str(tmp_path / "again")]) == 0
    found = {path.parent.name for path in (tmp_path / "again").rglob("identity.json")}
    assert found == {name for name in run(other) if name not in first}
    with pytest.raises(ValueError, match=r"network.contents=00 is not the fingerprint of .*: the file has changed"):
        CsvLinks(path=str(other), contents="00")
