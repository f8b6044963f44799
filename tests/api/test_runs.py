"""Runs from Python: in a thread, their metrics, their models (whole again where a base is frozen), their export."""

import json
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import fedcomp
from fedcomp.api import Run, compose, load_runs, report, run
from fedcomp.api.export import main as export
from fedcomp.api.runs import table
from fedcomp.dataset.images import digits
from fedcomp.records.checkpoint import read_last
from fedcomp.records.run_folder import CHECKPOINT, LOG
from tests.interrupted import at_line
from tests.looped import looped

SMALL = ["num_clients=4", "rounds=4", "eval_every=2", "pictures=false", "quiet=true", "device=cpu"]


@pytest.fixture
def finished(tmp_path: Path) -> Run:
    return run(compose([*SMALL, f"output_root={tmp_path}"]))


def _accuracy(module: torch.nn.Module) -> float:
    dataset = digits.load()
    (inputs,) = dataset.inputs(dataset.test)
    return float((module(inputs).argmax(1) == dataset.test.y).float().mean())


@looped("name", [name for name in fedcomp.__all__ if name != "__version__"])
def test_the_package_offers_these_names_and_no_folder_takes_one(name: str) -> None:
    offered = getattr(fedcomp, name)
    assert callable(offered)
    assert offered.__module__.startswith("fedcomp.")
    assert name in dir(fedcomp)
    assert not (Path(fedcomp.__file__).parent / name).exists()  # a folder `run` would be `fedcomp.run` once imported


def test_the_package_names_what_it_lacks() -> None:
    with pytest.raises(AttributeError, match="module 'fedcomp' has no attribute 'train'"):
        fedcomp.train  # noqa: B018


def test_a_run_and_its_record(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Run(str(finished.folder)) == finished  # a folder may be a string
    assert finished.state == "finished"
    assert finished.config.rounds == 4
    assert [line["round"] for line in finished.lines] == [0, 2, 4]
    assert run([*SMALL, f"output_root={finished.config.output_root}"]) == finished  # finished: returned at once
    (found,) = load_runs(finished.config.output_root)
    assert found.folder.resolve() == finished.folder.resolve()
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    assert finished.metrics["round"].tolist() == [0, 2, 4]
    assert finished.metrics["bits/total"][-1] == finished.lines[-1]["bits/total"]


@pytest.mark.parametrize("overrides", [["compressor=sign"], ["algorithm=fedmrn"]])
def test_the_model_is_the_one_that_was_evaluated(tmp_path: Path, overrides: list[str]) -> None:
    done = run([*SMALL, f"output_root={tmp_path}", *overrides])
    assert _accuracy(done.model()) == pytest.approx(done.lines[-1]["test/accuracy"], abs=1e-6)
    assert _accuracy(done.model(4)) == _accuracy(done.model("last"))
    with pytest.raises(ValueError, match="no model of round 2: a run keeps its last one, of 4"):
        done.model(2)


def test_several_models(tmp_path: Path) -> None:
    """FedPM evaluates three drawn masks."""
    done = run([*SMALL, f"output_root={tmp_path}", "algorithm=fedpm"])
    found = done.models()
    assert len(found) == 3
    mean = sum(map(_accuracy, found)) / 3
    assert mean == pytest.approx(done.lines[-1]["test/accuracy"], abs=1e-6)
    with pytest.raises(ValueError, match=r"evaluates 3 models and records their mean: take models\(\)"):
        done.model()


def test_running_statistics_are_in_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Normed(torch.nn.Sequential):
        def __init__(self) -> None:
            super().__init__(torch.nn.Linear(64, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 10))

    module = ModuleType("normed_")
    module.Normed = Normed  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "normed_", module)
    done = run([*SMALL, f"output_root={tmp_path}", "model=module", "model.path=normed_.Normed"])
    trained = done.model(trust_code=True)
    assert float(trained[1].running_mean.abs().max()) > 0
    assert _accuracy(trained) == pytest.approx(done.lines[-1]["test/accuracy"], abs=1e-6)


@looped("done, state", [(2, "interrupted"), (4, "finished")])
def test_ctrl_c_is_raised_once_the_run_is_saved(tmp_path: Path, done: int, state: str) -> None:
    """Also in the last round, so that a loop over runs ends there."""
    words = [*SMALL, f"output_root={tmp_path}", f"name={state}"]
    with at_line(done, lambda: signal.raise_signal(signal.SIGINT)), pytest.raises(KeyboardInterrupt):
        run(words)
    (stopped,) = load_runs(tmp_path / state)
    assert (stopped.state, stopped.lines[-1]["round"]) == (state, done)
    assert run(words).state == "finished"


def test_in_a_thread(tmp_path: Path) -> None:
    """Where Python allows no signal handlers."""
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run, [*SMALL, f"output_root={tmp_path}"]).result().state == "finished"


def test_threads_compose_one_after_another() -> None:
    """Hydra knows one config loader in a process."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda seed: compose([f"seed={seed}"]).seed, range(8)))
    finally:
        sys.setswitchinterval(before)
    assert found == list(range(8))


@looped("words", [["-m", "seed=0"], {"rounds": 3}, [3], [""]])
def test_what_is_no_override(words) -> None:
    with pytest.raises(ValueError, match="is no override: give strings such as 'rounds=50'") as refused:
        compose(words)
    assert ("config_dir=" in str(refused.value)) == ("-m" in words)


def test_threads_of_torch_are_as_before(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    try:
        run([*SMALL, f"output_root={tmp_path}"])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)  # as tests/conftest.py has it


def test_columns_have_gaps() -> None:
    columns = table([{"round": 0, "a": 1.0}, {"round": 1, "b": 2.0}])
    values = {name: np.asarray(columns[name]).tolist() for name in ("round", "a", "b")}
    assert values["round"] == [0, 1]
    assert values["a"][0] == 1.0
    assert np.isnan(values["a"][1])


@pytest.mark.thorough
def test_reports(finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: another one would import the user's script, which calls `report` again."""
    monkeypatch.setattr("fedcomp.reporting.build.FEW_PANELS", 0)
    monkeypatch.setattr("fedcomp.reporting.build.ProcessPoolExecutor", None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    out = report([finished], tmp_path / "report")
    assert (out / "table.md").read_text().count("|")
    out = report(str(finished.folder), tmp_path / "again", target=0.01)
    assert "bits to 1 %" in (out / "table.md").read_text()
    with pytest.raises(ValueError, match="no run to report"):
        report([], tmp_path)


def test_export(finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export([str(finished.folder), str(tmp_path / "model.pt")]) == 0
    weights = torch.load(tmp_path / "model.pt", weights_only=True)
    wanted = finished.model().state_dict()
    assert weights.keys() == wanted.keys()
    assert all(torch.equal(weights[name], wanted[name]) for name in weights)
    for run_folder, file, line in (
        (finished.folder, "/proc/model.pt", "cannot write /proc/model.pt: "),
        (finished.folder, "model.onnx", "must end in .pt or .safetensors"),
        (tmp_path, "model.pt", "is no run's folder"),
        (finished.folder, "nowhere/model.pt", "there is no folder"),
    ):
        assert export([str(run_folder), str(tmp_path / file)]) == 2
        (said,) = capsys.readouterr().err.splitlines()
        assert line in said


def test_wrong_folders_and_files_that_are_missing(finished: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no folder"):
        load_runs(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no run found"):
        load_runs(tmp_path / "empty")
    (finished.folder / "metrics.jsonl").unlink()
    again = Run(str(finished.folder))
    with pytest.raises(ValueError, match="is finished, but has no record: its metrics.jsonl is missing or empty"):
        again.metrics  # noqa: B018
    assert again.model() is not None
    for path in finished.folder.glob("checkpoint*.pt"):
        path.unlink()
    with pytest.raises(ValueError, match="has no checkpoint"):
        finished.model()


BASE = """
from pathlib import Path
import torch

class Net(torch.nn.Module):
    def __init__(self, num_outputs, buffer=False):
        super().__init__()
        base = torch.full((100, 64), float(Path(__file__).with_name("base.txt").read_text()))
        if buffer:
            self.register_buffer("base", base)
        else:
            self.base = torch.nn.Parameter(base, requires_grad=False)
        self.head = torch.nn.Linear(100, num_outputs)

    def forward(self, x):
        return self.head(torch.tanh(x @ self.base.mT))
"""
GIVEN = ("model=module", "model.path=frozen_base_net.Net", "num_clients=3", "rounds=2", "pictures=false", "device=cpu")
HEAD = 100 * 10 + 10


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "frozen_base_net.py").write_text(BASE)
    (tmp_path / "base.txt").write_text("0.01")
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("frozen_base_net", None)
    return tmp_path / "base.txt"


def test_it_is_neither_sent_nor_saved_and_the_model_is_whole(base: Path, tmp_path: Path) -> None:
    done = run([*GIVEN, f"output_root={tmp_path}"])
    assert done.lines[-1]["bits/uplink"] == 2 * 3 * 32 * HEAD
    assert done.lines[-1]["bpp/whole_model"] == pytest.approx(done.lines[-1]["bpp/total"] * HEAD / (HEAD + 6400))
    content = read_last(done.folder / CHECKPOINT)
    assert max(tensor.numel() for tensor in content.state.values()) == HEAD
    model = done.model(trust_code=True)
    assert torch.equal(model.base, torch.full((100, 64), 0.01))
    assert bool(model.head.weight.any())
    shares = f"model: {HEAD:,} trained numbers, 6,400 frozen, 0 statistics; 13.6 % of the whole model"
    assert shares in (done.folder / LOG).read_text()
    (kept,) = json.loads((done.folder / "provenance.json").read_text())["model"].values()
    assert (kept["files"], kept["bytes"]) == (1, 4 * 6400)


def test_another_base_is_refused(base: Path, tmp_path: Path) -> None:
    done = run([*GIVEN, f"output_root={tmp_path}"])
    base.write_text("0.02")
    with pytest.raises(ValueError, match="the model's frozen tensors are not those of the run: restore the file"):
        done.model(trust_code=True)


def test_statistics_that_outnumber_the_trained_numbers_are_pointed_at(base: Path, tmp_path: Path) -> None:
    log = (run([*GIVEN, "model.options.buffer=true", f"output_root={tmp_path}"]).folder / LOG).read_text()
    assert f"model: {HEAD:,} trained numbers, 0 frozen, 6,400 statistics" in log
    assert "warning: the model's statistics" in log
