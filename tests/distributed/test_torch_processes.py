"""Several real processes (gloo) make bit for bit the run that one makes, and end together."""

from __future__ import annotations

import ast
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from fedcomp.core.pytree import flatten
from fedcomp.distributed import torch_processes as processes
from fedcomp.distributed.context import TorchrunEnv, torchrun_env
from fedcomp.distributed.sharding import TorchProcessGroup, balance_load
from fedcomp.records.metrics_file import read_lines
from fedcomp.records.status import read_status
from tests.conformance import world
from tests.distributed import one_process as ranked

ROOT = Path(__file__).resolve().parents[2]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def together(request, tmp_path_factory):
    """(size, folder) after `size` processes did their work."""
    size, folder = request.param, tmp_path_factory.mktemp("ranks")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.distributed.one_process"])
    ports = _free_port(), _free_port()
    processes = [context.Process(target=ranked.work, args=(rank, size, ports, folder)) for rank in range(size)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    assert [process.exitcode for process in processes] == [0] * size
    return size, folder


def test_every_process_has_what_one_process_has(together) -> None:
    size, folder = together
    alone = ranked.measured(size)
    for rank in range(size):
        found = torch.load(folder / f"{rank}.pt", weights_only=False)["found"]
        assert found.keys() == alone.keys()
        for name, value in alone.items():
            if isinstance(value, torch.Tensor):
                assert found[name].dtype == value.dtype, name
                assert torch.equal(found[name], value), name
            else:
                assert found[name] == value, name


def test_what_one_process_knows_all_agree_on(together) -> None:
    size, folder = together
    for rank in range(size):
        theirs = torch.load(folder / f"{rank}.pt", weights_only=False)["theirs"]
        assert theirs["agreed"] == (15, True)
        assert theirs["quiet"] == (None, False)
        assert theirs["told"] == "by 0"
        done, state, ledger, seconds = theirs["start"]
        assert (done, ledger, seconds) == (1, {"rounds": 0}, 0.0)
        assert [tensor.tolist() for tensor in flatten(state).values()] == [[[0, 0]] * 3, [True, False]]
        assert "no longer hold the same state" in theirs["differ"]


def test_the_first_process_alone_writes(together, tmp_path: Path, fedcomp) -> None:
    size, folder = together
    assert fedcomp(*ranked.RUN, f"output_root={tmp_path / 'one'}") == 0
    (single,), (shared,) = ((root.rglob("checkpoint.pt")) for root in (tmp_path / "one", folder / "run"))
    assert single.parent.relative_to(tmp_path / "one") == shared.parent.relative_to(folder / "run")
    assert sorted(path.name for path in shared.parent.iterdir()) == sorted(p.name for p in single.parent.iterdir())
    _assert_equal(single.parent, shared.parent)
    assert "round 4/4" in (folder / "0.said").read_text()
    assert f"{size} processes share cohorts of 9 clients, 2 at once" in (folder / "0.said").read_text()
    assert all((folder / f"{rank}.said").read_text() == "" for rank in range(1, size))


def test_shares_take_the_dearest_first() -> None:
    assert balance_load([1, 5, 2, 2], 2) == [1, 0, 1, 1]
    assert balance_load([3, 3, 3], 2) == [0, 1, 0]
    assert balance_load([7], 3) == [0]
    assert balance_load([], 3) == []
    generator = torch.Generator().manual_seed(0)
    for size in (1, 2, 3, 5):
        costs = torch.randint(1, 100, (40,), generator=generator).tolist()
        load = [0] * size
        for owner, cost in zip(balance_load(costs, size), costs):
            load[owner] += cost
        assert max(load) - min(load) <= max(costs)
        assert max(load) <= sum(costs) / size + max(costs)


@dataclass(frozen=True)
class _Likewise(TorchProcessGroup):
    """Others that all have this process's values."""

    def all_reduce_max(self, *values: int) -> list[int]:
        return list(values)


def test_each_process_takes_a_gpu_of_its_own(monkeypatch) -> None:
    taken: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(processes, "_nccl", lambda: None)
    group = _Likewise(5, 8, torch.distributed.HashStore())
    one = processes.TorchProcesses(TorchrunEnv(5, 8, 1, 4), group)
    assert one.device(torch.device("cpu")) == torch.device("cpu")
    assert one.device(torch.device("cuda")) == torch.device("cuda", 1)
    assert taken == [torch.device("cuda", 1)]
    with pytest.raises(ValueError, match="device=cuda:0 is one GPU for 8 processes: give device=cuda"):
        one.device(torch.device("cuda", 0))
    with pytest.raises(ValueError, match="4 processes on a machine with 2 GPUs"):
        processes.TorchProcesses(TorchrunEnv(6, 8, 2, 4), group).device(torch.device("cuda"))


def test_a_gpus_own_chunk_size_leaves_work_for_all(monkeypatch) -> None:
    monkeypatch.setattr(processes, "_nccl", lambda: None)
    one = processes.TorchProcesses(TorchrunEnv(0, 3, 0, 3), _Likewise(0, 3, torch.distributed.HashStore()))
    sim = world.simulation(ranked.ALGORITHM, participation=world.FULL)  # 7 clients, 100 at once
    on_gpu = world.variant(sim, device=torch.device("cuda"))
    assert one.distribute(on_gpu, None, None).chunk_size == 3
    assert one.distribute(on_gpu, 100, None).chunk_size == 100  # the user's own, so that it is the run of one process
    on_cpu = one.distribute(sim, None, None)
    assert on_cpu.chunk_size == 100
    assert one.describe_split(on_cpu).endswith("that is work for 1 of them, chunk_size=3 gives more of them some")
    assert one.describe_split(one.distribute(on_gpu, None, None)) == "3 processes share cohorts of 7 clients, 3 at once"


def test_alone_nothing_is_shared(monkeypatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    assert torchrun_env() is None  # one process of one
    monkeypatch.setenv("WORLD_SIZE", "4")
    place = torchrun_env()
    assert place is not None
    assert (place.rank, place.size, place.local_rank) == (1, 4, 1)
    monkeypatch.delenv("MASTER_PORT")
    assert torchrun_env() is None


def test_a_run_of_one_process_touches_no_group() -> None:
    """Only the two files of several processes name torch.distributed, and only within a function is one imported."""
    package = ROOT / "fedcomp"
    several = {package / "distributed" / "torch_processes.py", package / "distributed" / "sharding.py"}
    for path in set(package.rglob("*.py")) - several:
        text = path.read_text()
        assert "import torch.distributed" not in text, path
        for statement in ast.parse(text).body:  # not what is nested in it
            if isinstance(statement, ast.ImportFrom):
                assert statement.module not in (
                    "fedcomp.distributed.torch_processes",
                    "fedcomp.distributed.sharding",
                ), path
    assert all("import torch.distributed as dist" in path.read_text() for path in several)


def _assert_equal(one: Path, other: Path) -> None:
    """Two run folders hold the same record (but for seconds) and the same checkpoint."""
    records = [[{**line, "seconds": 0} for line in read_lines(path / "metrics.jsonl")] for path in (one, other)]
    assert records[0] == records[1]
    left, right = (torch.load(path / "checkpoint.pt", weights_only=True) for path in (one, other))
    assert left["ledger"] == right["ledger"]
    assert left["state"].keys() == right["state"].keys()
    assert all(torch.equal(tensor, right["state"][name]) for name, tensor in left["state"].items())


# Server and client memories, ragged clients, cohorts of any size, nobody at all now and then.
LONG = (
    "rounds=120",
    "num_clients=12",
    "chunk_size=2",
    "eval_every=5",
    "checkpoint_every=4",
    "pictures=false",
    "partition=dirichlet",
    "participation=bernoulli",
    "participation.probability=0.4",
    "compressor=topk",
    "compressor.feedback=error",
    "compressor@downlink=sign",
    "downlink.feedback=error",
    "server=adam",
)


def _torchrun(size: int, root: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={size}"]
    return subprocess.Popen(
        [*command, "-m", "fedcomp", *LONG, f"output_root={root}"], stderr=subprocess.PIPE, text=True, cwd=ROOT
    )


def _wait_for_round(process: subprocess.Popen[str], root: Path, wanted: int) -> Path:
    for _ in range(6000):
        found = next(iter(root.rglob("metrics.jsonl")), None)
        lines = read_lines(found) if found else []
        if found and lines and lines[-1]["round"] >= wanted:
            return found.parent
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    raise AssertionError("the run makes no progress")


def _workers(process: subprocess.Popen[str]) -> list[int]:
    """The processes that torchrun started, by rank."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    processes = {}
    for child in children:
        environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        processes |= {int(entry[5:]): int(child) for entry in environment if entry.startswith(b"RANK=")}
    return [processes[rank] for rank in sorted(processes)]


def _said(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if line.startswith("fedcomp:")]


@pytest.mark.slow
def test_torchrun_killed_stopped_and_resumed_by_another_number_of_processes(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "fedcomp", *LONG, f"output_root={tmp_path / 'one'}"]
    subprocess.run(command, check=True, cwd=ROOT, env=environment, capture_output=True, timeout=300)
    root = tmp_path / "several"

    for victim, size in ((1, 3), (0, 2)):  # a follower is killed, then the leader
        process = _torchrun(size, root)
        folder = _wait_for_round(process, root, 10 if victim else 30)
        os.kill(_workers(process)[victim], signal.SIGKILL)
        stderr = process.communicate(timeout=120)[1]
        assert process.returncode == 1
        assert len(_said(stderr)) == 1, stderr
        assert "was killed or cannot be reached; the last checkpoint holds" in _said(stderr)[0]
        status = read_status(folder)
        assert status is not None
        assert status.state == ("failed" if victim else "running")

    process = _torchrun(3, root)  # one process is asked to stop: all do, after the same round
    folder = _wait_for_round(process, root, 50)
    os.kill(_workers(process)[2], signal.SIGTERM)
    stderr = process.communicate(timeout=120)[1]
    (line,) = _said(stderr)
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "interrupted"
    assert (
        line == f"fedcomp: interrupted after round {status['round']} of 120, state saved; the same command resumes it"
    )

    process = _torchrun(2, root)
    folder = _wait_for_round(process, root, 70)
    process.send_signal(signal.SIGINT)  # Ctrl-C: torchrun passes it on
    stderr = process.communicate(timeout=120)[1]
    assert len(_said(stderr)) == 1
    assert "state saved; the same command resumes it" in _said(stderr)[0]

    process = _torchrun(2, root)
    folder = _wait_for_round(process, root, 90)
    process.send_signal(signal.SIGHUP)  # a closed terminal: torchrun passes it on too
    (line,) = _said(process.communicate(timeout=120)[1])
    assert "state saved; the same command resumes it" in line

    process = _torchrun(2, root)
    stderr = process.communicate(timeout=300)[1]
    assert process.returncode == 0, stderr
    assert "resuming after round" in stderr
    (single,) = (tmp_path / "one").rglob("checkpoint.pt")
    _assert_equal(single.parent, folder)

    process = _torchrun(2, root)  # finished: nothing to do
    assert "already finished" in process.communicate(timeout=120)[1]
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("client.lr=-1",), "client.lr=-1 must be"),
        (("compresor=topk",), "did you mean 'compressor'"),
        (("-m", "seed=0,1"), "torchrun starts one run in several processes, not a grid"),
        (("client.lr=1e30",), "lower client.lr"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_an_error_is_one_line(tmp_path: Path, arguments, words) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "fedcomp"]
    options = (*arguments, "rounds=5", "pictures=false", f"output_root={tmp_path}")
    done = subprocess.run([*command, *options], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 1
    (line,) = _said(done.stderr)
    assert words in line
    assert line.startswith("fedcomp: error: ")
