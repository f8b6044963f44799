"""Online W&B runs against a stand-in of the server (`wandb_server.py`): what arrives, and what happens if it cannot."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedcomp.records.metrics_file import read_lines
from tests.interrupted import before_round, power_cut
from tests.tracking.wandb_pieces import lines_below, pieces
from tests.tracking.wandb_server import WandbServer

CONF = Path(__file__).resolve().parents[2] / "conf"
QUICK = ("tracker=wandb", "tracker.mode=online", "num_clients=5", "client.batch_size=40")
KEY = "x" * 40


@pytest.fixture
def server(without_account, monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    import wandb

    wandb.teardown()  # which server to talk to is read from the environment once a process
    with WandbServer() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        yield server
        wandb.teardown()


@pytest.mark.thorough
def test_a_sweeps_agent_gets_every_run_also_one_that_is_finished(server, tmp_path: Path) -> None:
    """`wandb agent` itself; its second point is its first again, as a random search may try one twice."""
    file = CONF / "wandb" / "topk_grid.yaml"
    server.sweep = file.read_text()
    same = {"compressor": "topk", "compressor.fraction": 0.1, "rounds": 2, "seed": 1}
    server.points = {"one11111": dict(same), "two22222": dict(same)}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-m", "wandb", "agent", "somebody/fedcomp/sweep1"]
    env = {**os.environ, "PATH": path}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (done.stderr, server.operations)
    assert list(server.runs) == ["one11111", "two22222"], done.stderr
    for run in server.runs.values():
        assert [line["round"] for line in run.history if "round" in line] == [0, 1, 2]
        assert run.exit_codes == [0]
        assert {"max_accuracy", "bits/total", "bits/uplink", "bits/downlink"} <= run.summary.keys()
    first, second = (run.summary["max_accuracy"] for run in server.runs.values())
    assert first == second
    (noted,) = tmp_path.rglob("wandb_id")
    assert ("seed=1" in noted.parts, noted.read_text()) == (True, "two22222\n")


def test_a_run_arrives_and_goes_on_after_a_failure(fedcomp_with_pictures, server, tmp_path: Path, capsys) -> None:
    """Fails two rounds after the checkpoint: the server then holds more rounds than the checkpoint does."""
    options = (*QUICK, "rounds=8", "checkpoint_every=3", "tracker.project=bits", "tracker.tags=[first]")
    with power_cut(6):
        fedcomp_with_pictures(*options)
    assert "W&B: http://127.0.0.1" in capsys.readouterr().err
    ((run_id, run),) = server.runs.items()
    assert [line["round"] for line in run.history if "round" in line] == [0, 1, 2, 3, 4, 5]
    assert run.summary["state"] == "failed"

    assert fedcomp_with_pictures(*options) == 0
    assert list(server.runs) == [run_id]
    arrived = [line for line in run.history if "round" in line]
    assert [line["round"] for line in arrived] == list(range(9))
    for line, ours in zip(arrived, lines_below(tmp_path), strict=True):
        assert {name: line[name] for name in ours if name != "seconds"}.items() <= ours.items()
    assert run.exit_codes == [1, 0]
    assert run.summary["state"] == "finished"
    assert run.summary["max_accuracy"] == max(line["test/accuracy"] for line in lines_below(tmp_path))
    assert run.sent["groupName"] == next(tmp_path.rglob("seed=0")).parent.name
    assert run.sent["project"] == "bits"
    assert {"first", "fedavg", "digits"} <= set(run.sent["tags"])
    assert run.config["num_params"] == 2410
    assert run.config["client"]["batch_size"] == 40
    pictures = {name for name, data in run.files.items() if data.startswith(b"\x89PNG")}
    assert {name.split("/")[-1].split("_")[0] for name in pictures} == {"partition", "curve"}


@pytest.mark.thorough
@pytest.mark.parametrize("trouble", ["silent", "refused", "broken"])
def test_a_server_that_does_not_answer_leaves_the_run_offline(fedcomp, server, tmp_path, capsys, trouble) -> None:
    server.silent, server.fail_with = trouble == "silent", {"refused": 401, "broken": 500}.get(trouble)
    assert fedcomp(*QUICK, "rounds=2", "tracker.timeout=2") == 0
    shown = capsys.readouterr().err
    assert shown.count("W&B: no answer, this run stays offline (") == 1
    assert "Traceback" not in shown
    (piece,) = [piece for piece in pieces(tmp_path) if "offline-run" in str(piece.path)]
    assert [row["round"] for row in piece.evaluations] == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["silent", "broken"])
def test_a_server_that_goes_away_costs_the_timeout(fedcomp, server, tmp_path: Path, capsys, trouble) -> None:
    def go_away() -> None:
        server.silent, server.fail_with = trouble == "silent", 500

    with before_round(2, go_away):
        assert fedcomp(*QUICK, "rounds=3", "tracker.timeout=8") == 0
    shown = capsys.readouterr().err
    assert shown.count("W&B: not everything has arrived; `wandb sync ") == 1
    assert [line["round"] for line in lines_below(tmp_path)] == [0, 1, 2, 3]
    (piece,) = pieces(tmp_path)
    assert [row["round"] for row in piece.evaluations] == [0, 1, 2, 3]


def _process(root: Path, *options: str, **settings) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fedcomp", *QUICK, *options, f"output_root={root}"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, **settings)


def _wait_for_round(process: subprocess.Popen[str], root: Path, wanted: int) -> None:
    records = "*/*/seed=0/metrics.jsonl"  # rglob would also walk W&B's folders, which come and go
    while not any(line["round"] >= wanted for path in root.glob(records) for line in read_lines(path)):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


def _services(process: subprocess.Popen[str]) -> list[int]:
    """The process numbers of wandb-core under the run (it is in a group of its own)."""
    found = subprocess.run(["pgrep", "-P", str(process.pid), "wandb-core"], capture_output=True, text=True)
    numbers = [int(number) for number in found.stdout.split()]
    assert numbers
    return numbers


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["online", "offline"])
def test_killed_with_all_its_processes_and_resumed(server, tmp_path: Path, mode: str) -> None:
    """SIGKILL to the run and to W&B's own process at once; the offline piece is uploaded afterwards."""
    options = ("rounds=600", "eval_every=4", "checkpoint_every=10", f"tracker.mode={mode}")
    for wanted in (100, 300):
        process = _process(tmp_path, *options)
        _wait_for_round(process, tmp_path, wanted)
        for number in (process.pid, *_services(process)):
            os.kill(number, signal.SIGKILL)
        process.wait()
    process = _process(tmp_path, *options)
    shown = process.communicate(timeout=300)[1]
    assert process.returncode == 0, shown
    lines = lines_below(tmp_path)
    if mode == "offline":
        (piece,) = pieces(tmp_path)
        assert [row["round"] for row in piece.evaluations] == [line["round"] for line in lines]
        command = [sys.executable, "-m", "wandb", "sync", str(piece.path.parent)]
        subprocess.run(command, check=True, capture_output=True, timeout=120, cwd=tmp_path)
    (run,) = server.runs.values()
    arrived = [line for line in run.history if "round" in line]
    names = ("round", "bits/total", "test/accuracy")
    assert [[line[name] for name in names] for line in arrived] == [[line[name] for name in names] for line in lines]
    assert run.summary["state"] == "finished"


@pytest.mark.slow
def test_ctrl_c_for_the_whole_group_marks_the_run_preempted(server, tmp_path: Path) -> None:
    options = ("rounds=100000", "eval_every=100", "tracker.mode=offline")
    process = _process(tmp_path, *options)
    _wait_for_round(process, tmp_path, 200)
    os.killpg(process.pid, signal.SIGINT)
    assert "state saved; the same command resumes it" in process.communicate(timeout=120)[1]
    (piece,) = pieces(tmp_path)
    assert piece.preempted
    assert piece.exit_code == 1
    assert piece.summary["state"] == "interrupted"
    assert [row["round"] for row in piece.evaluations] == [line["round"] for line in lines_below(tmp_path)]


@pytest.mark.slow
def test_a_refused_key_on_a_terminal_asks_nothing(server, tmp_path: Path) -> None:
    server.fail_with = 401
    master, terminal = pty.openpty()
    process = _process(tmp_path, "rounds=2", "tracker.timeout=5", stdin=terminal, stdout=terminal)
    shown = process.communicate(timeout=180)[1]
    os.close(terminal)
    os.close(master)
    assert process.returncode == 0, shown
    assert "this run stays offline" in shown
    assert KEY not in shown


@pytest.mark.slow
def test_the_death_of_wandbs_own_process_does_not_end_the_run(server, tmp_path: Path) -> None:
    process = _process(tmp_path, "rounds=400", "eval_every=10", "tracker.mode=offline", "quiet=true")
    _wait_for_round(process, tmp_path, 100)
    for number in _services(process):
        os.kill(number, signal.SIGKILL)
    shown = process.communicate(timeout=300)[1]
    assert process.returncode == 0, shown
    assert lines_below(tmp_path)[-1]["round"] == 400
