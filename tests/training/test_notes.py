"""What a run says beside its progress: that it has hardly learnt, that memory is short, and notes of the log."""

import gc
import logging
from pathlib import Path

import pytest
import torch

from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.simulation import evaluation
from fedcomp.simulation.autotune.plan import FILE, Plan
from fedcomp.simulation.chunks.executor import Executor
from fedcomp.training import build
from fedcomp.training.hardly_learnt import chance, hardly_learnt, nothing_sent
from fedcomp.training.setup import _log_file
from tests.left import record
from tests.looped import looped

SHORT = ("rounds=2", "num_clients=4", "eval_every=2")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("algorithm=decomfl",), "more rounds, a larger algorithm.lr or more algorithm.perturbations"),
        (("algorithm=fedsparsify", "algorithm.sparsity=0.999"), "a lower algorithm.sparsity, or more rounds"),
        (
            ("algorithm=fedsparsify", "algorithm.sparsity=0.999", "algorithm.schedule=constant"),
            "algorithm.schedule=progressive, a lower algorithm.sparsity, or more rounds",
        ),
        (
            ("network=lte", "network.deadline=0.001"),
            "every client was late in every round, so that nothing was learnt: a longer network.deadline",
        ),
        (("client.lr=1e-6",), "more rounds, or another learning rate"),  # a method without a declaration
        (("dataset=diabetes", "model=linear", "client.lr=1e-6"), "more rounds, or another learning rate"),
    ],
)
def test_a_run_says_that_it_has_hardly_learnt(fedcomp, capsys, words, says: str) -> None:
    assert fedcomp(*SHORT, *words) == 0
    *_, last, folder = capsys.readouterr().err.splitlines()
    assert folder.startswith("record in")
    start = "test loss" if "dataset=diabetes" in words else "test accuracy"
    assert last.startswith(start)
    assert last.endswith(says)


def test_a_run_says_once_that_a_matrix_has_no_weight_left(fedcomp, capsys) -> None:
    pruned = "algorithm=fedsparsify", "algorithm.schedule=constant", "algorithm.sparsity=0.99"
    assert fedcomp("rounds=3", "num_clients=4", "client.lr=0.01", *pruned) == 0
    said = capsys.readouterr().err
    assert said.count("pruning leaves no weight in") == 1
    assert "round 1: pruning leaves no weight in 1 of 2 matrices (number 1, of 2,048 weights)" in said
    assert "algorithm.schedule=progressive, which prunes later, or a lower algorithm.sparsity" in said


def test_a_run_says_at_its_end_that_fedmrns_noise_is_small(fedcomp, capsys) -> None:
    for alpha, small in (("0.001", True), ("1", False)):
        assert fedcomp(*SHORT, "algorithm=fedmrn", f"algorithm.alpha={alpha}", "rounds=1") == 0
        said = capsys.readouterr().err
        assert ("(mask/saturated): a larger algorithm.alpha lets clients go further" in said) == small


def test_a_run_that_learns_says_nothing(fedcomp, capsys) -> None:
    assert fedcomp("rounds=3", "client.epochs=5", "num_clients=4") == 0
    assert not any(words in capsys.readouterr().err for words in ("chance", "hardly"))


@looped(
    "first, last, says",
    [
        ((0.10, 2.3), (0.18, 1.0), "test accuracy 18.00 % is near chance (10.00 %): why"),
        ((0.10, 2.3), (0.30, 2.2), "test loss 2.20 is hardly below its first value, 2.30: why"),
        ((0.10, 2.3), (0.30, 4.6), "test loss 4.60 is above its first value, 2.30: why"),
        ((0.10, 2.3), (0.30, 2.0), None),
        ((0.95, 0.1), (0.96, 0.1), None),  # it began with a trained model
        ((0.95, 0.1), (0.12, 2.3), "test accuracy 12.00 % is near chance (10.00 %): why"),
    ],
)
def test_what_is_near_chance_and_what_has_hardly_fallen(first, last, says) -> None:
    lines = [{"test/accuracy": accuracy, "test/loss": loss} for accuracy, loss in (first, last)]
    assert hardly_learnt(lines, 0.1, "why") == says
    assert hardly_learnt(lines[:1], 0.1, "why") is None


@looped(
    "up, down, gradients, says",
    [
        (0, 32, 10, "no message went up, so that 0 bits"),
        (32, 0, 10, "no message went down, so that 0 bits"),
        (0, 0, 10, "no message went up or down"),
        (0, 32, 0, None),  # nobody trained
        (32, 32, 10, None),
    ],
)
def test_a_direction_without_a_message_is_said(up, down, gradients, says) -> None:
    said = nothing_sent({"bits/uplink": up, "bits/downlink": down, "gradients": gradients})
    assert (said is None) if says is None else says in said


def test_a_server_that_heard_nobody_has_nothing_to_answer() -> None:
    line = {"bits/uplink": 32, "bits/downlink": 0, "gradients": 10}
    assert nothing_sent(line | {"deadline/late": 1.0}) is None
    assert nothing_sent(line | {"deadline/late": 0.5}) is not None
    assert nothing_sent(line | {"bits/uplink": 0, "deadline/late": 1.0}) is not None


def test_chance_is_the_share_of_the_largest_class() -> None:
    def of(task, y: list, outputs: int = 3) -> float | None:
        samples = Samples(torch.zeros(len(y), 1), torch.tensor(y))
        return chance(Dataset("some", samples, samples, task, outputs))

    assert of("classification", [0, 2, 2, 2]) == 0.75
    assert of("segmentation", [[0, 1, 255, 255], [1, 1, 255, 255]]) == 0.75
    assert of("next_token", [[0, 1], [2, 1]]) == 0.5
    assert of("regression", [[0.5], [0.25]]) is None


def test_notes_of_the_log_are_shown_while_a_run_lasts(tmp_path: Path) -> None:
    shown: list[str] = []
    log = logging.getLogger("fedcomp")
    with _log_file(tmp_path, shown.append):
        log.info("for the file")
        log.info("for %s", "both", extra={"note": True})
    log.info("for nobody", extra={"note": True})
    assert shown == ["for both"]
    kept = (tmp_path / "run.log").read_text().splitlines()
    assert [line.split(" INFO ")[1] for line in kept] == ["for the file", "for both"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_no_traceback_of_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.log").symlink_to("/dev/full")
    with _log_file(tmp_path, lambda _: None):
        logging.getLogger("fedcomp").info("no room for this")
    assert capsys.readouterr().err == ""


RUN = ["rounds=3", "num_clients=8", "device=cpu", "threads=1", "checkpoint_every=1"]


@pytest.fixture
def room(monkeypatch):
    """`room(n)`: from now on, n clients at once fit; the plan of a new run is eight."""
    real, most = Executor.map_clients, [8]

    def planned(simulation, mode, batch_size, fixed, path):
        if path.exists():
            return Plan.read(path)
        plan = Plan((), 8 if not fixed else simulation.chunk_size)
        plan.write(path)
        return plan

    def run(self, *given):
        if self.chunk_size > most[0]:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nmore")
        return real(self, *given)

    monkeypatch.setattr(Executor, "map_clients", run)
    monkeypatch.setattr(build, "plan_convolutions", planned)
    monkeypatch.setattr(gc, "collect", int)  # it looks at all that the tests made
    return lambda num: most.__setitem__(0, num)


def test_half_as_many_clients_at_once(fedcomp, room, tmp_path, capsys) -> None:
    """And half of that; the record is that of a run which began so, and the plan keeps the number."""
    room(2)
    assert fedcomp(*RUN, f"output_root={tmp_path}/found") == 0
    said = capsys.readouterr().err
    assert "out of memory with 8 clients at once: trying it with 4\n" in said
    assert "out of memory with 4 clients at once: trying it with 2\n" in said
    (plan,) = tmp_path.glob(f"found/fedcomp/*/seed=0/{FILE}")
    assert Plan.read(plan) == Plan((), 2)
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


def test_a_run_that_has_begun_goes_on_with_its_chunks_or_not(fedcomp, room, capsys, monkeypatch, tmp_path) -> None:
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
    x = torch.zeros(2, 8, 8, 3)
    data = Dataset("pictures", Samples(x, x[:, 0, 0, 0].long()), Samples(x, x[:, 0, 0, 0].long()), "classification", 2)
    monkeypatch.setattr(evaluation, "forward_bytes", lambda model, shape, num, dtype: num << 21)
    monkeypatch.setattr(evaluation, "total_bytes", lambda device: int(gib * 2**30))
    assert evaluation.samples_at_once(f"a network {gib}", data, torch.device("cuda")) == batch
    assert evaluation.samples_at_once("a network", data, torch.device("cpu")) == 1024
