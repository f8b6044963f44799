"""A run whose device has no memory left: half as many clients at once, or one line."""

import pytest
import torch

from fedcomp.simulation import evaluation
from fedcomp.simulation.autotune.conv_autotune import FILE, ConvPlan
from fedcomp.simulation.chunks.executor import Executor
from fedcomp.training import build
from tests.left import record

RUN = ["rounds=3", "num_clients=8", "device=cpu", "threads=1", "checkpoint_every=1"]


@pytest.fixture
def room(monkeypatch):
    """`room(n)`: from now on, n clients at once fit; the plan of a new run is eight."""
    real, most = Executor.map_clients, [8]

    def planned(simulation, mode, batch_size, most_clients, fixed, path):
        if path.exists():
            return ConvPlan.read(path)
        plan = ConvPlan((), 8 if not fixed else simulation.chunk_size)
        plan.write(path)
        return plan

    def run(self, *given):
        if self.chunk_size > most[0]:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nmore")
        return real(self, *given)

    monkeypatch.setattr(Executor, "map_clients", run)
    monkeypatch.setattr(build, "plan_convolutions", planned)
    return lambda num: most.__setitem__(0, num)


def test_half_as_many_clients_at_once(fedcomp, room, tmp_path, capsys) -> None:
    """And half of that; the record is that of a run which began so, and the plan keeps the number."""
    room(2)
    assert fedcomp(*RUN, f"output_root={tmp_path}/found") == 0
    said = capsys.readouterr().err
    assert "out of memory with 8 clients at once: trying it with 4\n" in said
    assert "out of memory with 4 clients at once: trying it with 2\n" in said
    (plan,) = tmp_path.glob(f"found/fedcomp/*/seed=0/{FILE}")
    assert ConvPlan.read(plan) == ConvPlan((), 2)
    assert fedcomp(*RUN, "chunk_size=2", f"output_root={tmp_path}/given") == 0
    assert record(tmp_path / "found") == record(tmp_path / "given")


@pytest.mark.parametrize("option", ["chunk_size=8", "chunk_size=null"])
def test_one_line_where_nothing_is_left_to_halve(fedcomp, room, capsys, option) -> None:
    room(0)
    assert fedcomp(*RUN, option) != 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert "out of memory (CUDA out of memory. Tried to allocate 20.00 GiB.)" in line
    for word in ("chunk_size", "client.batch_size", "launcher.runs_per_gpu", "tests 1024 samples at once"):
        assert word in line


def test_a_run_that_has_begun_goes_on_with_its_chunks_or_not_at_all(
    fedcomp, room, capsys, monkeypatch, tmp_path
) -> None:
    """The chunk size is the run's, whatever memory is free when it resumes."""
    real = Executor.map_clients
    calls = []

    def until_the_third(self, *given):
        calls.append(self.chunk_size)
        room(8 if len(calls) < 3 else 4)
        return real(self, *given)

    monkeypatch.setattr(Executor, "map_clients", until_the_third)
    assert fedcomp(*RUN) != 0
    assert "out of memory" in capsys.readouterr().err
    monkeypatch.setattr(Executor, "map_clients", real)
    assert fedcomp(*RUN) != 0
    room(8)
    assert fedcomp(*RUN) == 0
    assert calls == [8] * 3
    room(8)
    assert fedcomp(*RUN, f"output_root={tmp_path}/whole") == 0
    assert record(tmp_path / "fedcomp") == record(tmp_path / "whole")


@pytest.mark.parametrize(("gib", "batch"), [(140, 2048), (22, 256), (0.1, 1)])
def test_the_batch_of_an_evaluation_follows_the_gpus_memory(monkeypatch, gib, batch) -> None:
    from fedcomp.dataset.contract import Dataset, Samples

    x = torch.zeros(2, 8, 8, 3)
    data = Dataset("pictures", Samples(x, x[:, 0, 0, 0].long()), Samples(x, x[:, 0, 0, 0].long()), "classification", 2)
    monkeypatch.setattr(evaluation, "forward_bytes", lambda model, shape, num, dtype: num << 21)
    monkeypatch.setattr(evaluation, "total_bytes", lambda device: int(gib * 2**30))
    assert evaluation.samples_at_once(f"a network {gib}", data, torch.device("cuda")) == batch
    assert evaluation.samples_at_once("a network", data, torch.device("cpu")) == 1024
