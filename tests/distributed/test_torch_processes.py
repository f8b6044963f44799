"""Several real processes (gloo) make bit for bit the run that one makes, and end together."""

import ast
import contextlib
import multiprocessing
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fedcomp.core.accelerated import FILE as FORMS
from fedcomp.core.pytree import flatten
from fedcomp.distributed import torch_processes as processes
from fedcomp.distributed.context import TorchrunEnv, torchrun_env
from fedcomp.distributed.sharding import PeerLost, TorchProcessGroup, balance_load
from fedcomp.training.error_location import is_in_code
from tests.conformance import world
from tests.distributed import one_process as ranked
from tests.left import assert_same_run, folder_of

ROOT = Path(__file__).resolve().parents[2]


def _free_ports(num: int) -> tuple[int, ...]:
    """Different ones: who is first in the next group would else find the store of the one before."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(num)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return tuple(probe.getsockname()[1] for probe in probes)


def _start(work: Callable[..., None], size: int, folder: Path) -> tuple[int, Path]:
    """(size, folder) after `size` processes did this work."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.distributed.one_process"])
    ports = _free_ports(4)
    processes = [context.Process(target=work, args=(rank, size, ports, folder)) for rank in range(size)]
    for process in processes:
        process.start()
    left = {process.sentinel: process for process in processes}
    while left and (ended := wait(left, timeout=480)) and not any(left.pop(one).exitcode for one in ended):
        pass
    for process in left.values():  # one that still waits for another
        process.kill()
        process.join()
    assert [process.exitcode for process in processes] == [0] * size
    return size, folder


SIZES = [2, pytest.param(3, marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=SIZES)
def together(request, tmp_path_factory):
    return _start(ranked.work, request.param, tmp_path_factory.mktemp("ranks"))


@pytest.mark.thorough
@pytest.mark.parametrize("size", SIZES)
def test_every_process_has_what_one_process_has(size: int, tmp_path: Path) -> None:
    _start(ranked.measure, size, tmp_path)
    alone = ranked.measured(size)
    for rank in range(size):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=False)
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
        theirs = torch.load(folder / f"{rank}.pt", weights_only=False)
        assert theirs["agreed"] == (15, True)
        assert theirs["quiet"] == (None, False)
        assert theirs["told"] == "by 0"
        done, state, ledger, seconds = theirs["start"]
        assert (done, ledger, seconds) == (1, {"rounds": 0}, 0.0)
        assert [tensor.tolist() for tensor in flatten(state).values()] == [[[0, 0]] * 3, [True, False]]
        assert "no longer hold the same state" in theirs["differ"]


def test_the_first_process_alone_writes(together, tmp_path: Path, fedcomp) -> None:
    _, folder = together
    assert fedcomp(*ranked.RUN, f"output_root={tmp_path / 'one'}") == 0
    single, shared = folder_of(tmp_path / "one"), folder_of(folder / "run")
    assert single.relative_to(tmp_path / "one") == shared.relative_to(folder / "run")
    alone, first = ({path.name for path in one.iterdir()} - {FORMS} for one in (single, shared))
    assert first == alone  # which forms proved themselves hangs on what the process has drawn before
    assert_same_run(single, shared)
    assert "round 4/4" in (folder / "0.said").read_text()


def test_processes_share_repetitions(together, tmp_path: Path, fedcomp) -> None:
    """A study is the same bit for bit, with cohorts of any size."""
    size, folder = together
    assert f"{size} processes share 3 repetitions" in (folder / "0.said").read_text()
    assert fedcomp(*ranked.REPEATED, f"output_root={tmp_path / 'one'}") == 0
    assert_same_run(tmp_path / "one", folder / "study")
    assert f"{size} processes share cohorts of 9 clients, 2 at once" in (folder / "0.said").read_text()
    assert all((folder / f"{rank}.said").read_text() == "" for rank in range(1, size))


def test_a_way_that_one_process_refuses_is_refused_by_all(together, tmp_path: Path, fedcomp) -> None:
    """One process has all clients; the others must not wait for what it could not compute."""
    _, folder = together
    assert fedcomp(*ranked.REFUSED, f"output_root={tmp_path / 'one'}") == 0
    assert_same_run(tmp_path / "one", folder / "refused")
    assert "repetitions run one after another: " in (folder_of(folder / "refused") / "run.log").read_text()


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
    on_gpu = replace(sim, device=torch.device("cuda"))
    assert one.distribute(on_gpu, None, None).chunk_size == 3
    assert one.distribute(on_gpu, 100, None).chunk_size == 100  # the user's own, so that it is the run of one process
    on_cpu = one.distribute(sim, None, None)
    assert on_cpu.chunk_size == 100
    assert one.describe_split(on_cpu).endswith("that is work for 1 of them, chunk_size=3 gives more of them some")
    assert one.describe_split(one.distribute(on_gpu, None, None)) == "3 processes share cohorts of 7 clients, 3 at once"


def test_more_processes_than_clients_are_told_so() -> None:
    one = processes.TorchProcesses(TorchrunEnv(0, 9, 0, 9), _Likewise(0, 9, torch.distributed.HashStore()))
    sim = world.simulation(ranked.ALGORITHM, participation=world.FULL)
    assert one.describe_split(sim) == (
        "9 processes share cohorts of 7 clients: at least 2 of them train nobody and only share the test set; "
        "start 7 or fewer"
    )


def test_alone_nothing_is_shared(monkeypatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    assert torchrun_env() is None  # one process of one
    monkeypatch.setenv("WORLD_SIZE", "4")
    place = torchrun_env()
    assert (place.rank, place.size, place.local_rank) == (1, 4, 1)
    monkeypatch.delenv("MASTER_PORT")
    assert torchrun_env() is None


def test_a_process_that_is_lost_is_no_error_in_the_code_that_waits_for_it() -> None:
    store = SimpleNamespace(check=lambda names: False)
    group = TorchProcessGroup(0, 2, store)  # type: ignore[arg-type]
    with pytest.raises(PeerLost, match="another of the 2 processes was killed") as lost, group.peer_errors():
        raise RuntimeError("Connection closed by peer")
    assert not is_in_code(lost.value)


def test_a_run_of_one_process_touches_no_group() -> None:
    """Only the files of several processes name torch.distributed, and only within a function is one imported."""
    package = ROOT / "fedcomp"
    several = {package / "distributed" / "torch_processes.py", package / "distributed" / "sharding.py"}
    for path in set(package.rglob("*.py")) - several - {package / "codecs" / "ddp.py"}:
        text = path.read_text()
        assert "import torch.distributed" not in text, path
        loose = [one.module for one in ast.parse(text).body if isinstance(one, ast.ImportFrom)]  # not what is nested
        parts = ("fedcomp.distributed.torch_processes", "fedcomp.distributed.sharding", "fedcomp.codecs.ddp")
        assert not {*parts} & {*loose}, path
    assert all("import torch.distributed as dist" in path.read_text() for path in several)
