"""A trained model on its own and on another test set, by client and by class; and every wrong argument."""

import csv
import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcomp.api import Run, run
from fedcomp.api.evaluate import _other_test, evaluate, main
from fedcomp.api.export import main as export
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.records.metrics_file import read_repetitions
from tests.looped import looped
from tests.thorough import thorough

SMALL = ["num_clients=8", "partition=dirichlet", "rounds=3", "pictures=false", "quiet=true", "device=cpu"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("run")
    return run([*SMALL, f"output_root={root}", "evaluation=per_client"])


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_its_own_test_set_is_the_record(finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in finished.folder.iterdir() if path.is_file()}
    assert main([str(finished.folder), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "by client (8 clients), accuracy: mean " in said.out
    found = {row["metric"]: float(row["value"]) for row in _rows(tmp_path / "out" / "metrics.csv")}
    last = finished.lines[-1]
    assert found == pytest.approx({name: last[name] for name in found}, abs=1e-6)
    assert {"test/accuracy", "per_client/accuracy_worst_decile"} <= found.keys()
    clients = [float(row["accuracy"]) for row in _rows(tmp_path / "out" / "clients.csv")]
    assert np.mean(clients) == pytest.approx(last["per_client/accuracy_mean"], abs=1e-6)
    classes = _rows(tmp_path / "out" / "classes.csv")
    right = sum(int(row["samples"]) * float(row["accuracy"]) for row in classes)
    assert right / sum(int(row["samples"]) for row in classes) == pytest.approx(last["test/accuracy"], abs=1e-6)
    assert (tmp_path / "out" / "clients.png").read_bytes()[1:4] == b"PNG"
    assert {path: path.read_bytes() for path in finished.folder.iterdir() if path.is_file()} == before


def test_data_that_have_changed_since_the_run_are_named(finished: Run, tmp_path: Path, caplog) -> None:
    folder = Path(shutil.copytree(finished.folder, tmp_path / "seed=0"))
    kept = json.loads((folder / "provenance.json").read_text())
    kept["data"]["digits.csv.gz"]["digest"] = "0" * 32
    (folder / "provenance.json").write_text(json.dumps(kept))
    assert main([str(folder)]) == 0
    assert "the data have changed since the run: digits.csv.gz has changed; test samples may be others" in caplog.text


def test_a_file_that_was_moved_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog) -> None:
    file, moved = tmp_path / "a.csv", tmp_path / "b.csv"
    file.write_text("x,y\n" + "".join(f"{row},{row % 7}\n" for row in range(30)))
    data = ["dataset=csv", f"dataset.path={file}", "dataset.target=y", "model=linear", "num_clients=2"]
    done = run([*data, "rounds=1", "quiet=true", "pictures=false", f"output_root={tmp_path}", "device=cpu"])
    found = evaluate(done.folder).metrics
    file.rename(moved)
    assert main([str(done.folder)]) == 2
    assert "or set dataset.path" in capsys.readouterr().err
    assert evaluate(done.folder, [f"dataset.path={moved}"]).metrics == found
    assert export([str(done.folder), str(tmp_path / "model.pt"), f"dataset.path={moved}"]) == 0
    weights = done.model(dataset=[f"dataset.path={moved}"]).state_dict()
    torch.testing.assert_close(torch.load(tmp_path / "model.pt"), weights)
    assert "have changed" not in caplog.text
    with pytest.raises(ValueError, match="target=x does not say where the run's data lie by now: give dataset.root"):
        done.model(dataset=["dataset.target=x"])
    moved.write_text(moved.read_text().replace("3,3", "3,4"))
    evaluate(done.folder, [f"dataset.path={moved}"])
    assert "the data have changed since the run" in caplog.text


def test_another_test_set_is_normalised_as_in_training(finished: Run) -> None:
    """`dataset.pixels` says how the same pixels become inputs: what counts is how the run's network has seen them."""
    own, other = (evaluate(finished.folder, words) for words in ([], ["dataset.pixels=raw"]))
    again = evaluate(finished.folder, ["dataset=digits"])
    assert again.metrics == own.metrics
    assert other.metrics == own.metrics
    split = evaluate(finished.folder, ["dataset.split_seed=3"])
    assert split.metrics["test/accuracy"] != own.metrics["test/accuracy"]
    assert len(split.values) == 8


def test_on_the_clients_own_samples(finished: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(finished.folder), "--clients", "train"]) == 0
    assert (finished.folder / "evaluation" / "digits-train" / "clients.csv").is_file()
    mean = "per_client/accuracy_mean"
    assert evaluate(finished.folder, clients="train").metrics[mean] != pytest.approx(finished.lines[-1][mean])


@pytest.mark.parametrize("algorithm", [*thorough(["fedavg"]), "fedscalar"])
def test_each_repetition_of_a_study(finished: Run, tmp_path: Path, capsys, algorithm: str) -> None:
    """As their record has them; the first one is the run without repeats, and the clients of each are its own."""
    options = [*SMALL, f"output_root={tmp_path}", "repeats=3", "evaluation=per_client", f"algorithm={algorithm}"]
    study = run(options)
    assert main([str(study.folder), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.startswith("3 repetitions: means and standard deviations over them\n")
    assert "by client (8 clients in each repetition), accuracy: mean " in said.out
    judged = ("test/", "per_client/")
    recorded = {name: one for name, one in read_repetitions(study.folder)[3].items() if name.startswith(judged)}
    each = {name: [float(row[name]) for row in _rows(tmp_path / "out" / "repetitions.csv")] for name in recorded}
    assert each == {name: pytest.approx(values, abs=1e-6) for name, values in recorded.items()}
    for row in _rows(tmp_path / "out" / "metrics.csv"):
        values = each.get(row["metric"])
        if values is not None:
            found = float(row["value"]), float(row["std"])
            assert found == pytest.approx((np.mean(values), np.std(values, ddof=1)), abs=1e-6)
    clients = _rows(tmp_path / "out" / "clients.csv")
    assert [(int(row["repetition"]), int(row["client"])) for row in clients] == [*itertools.product(range(3), range(8))]
    assert len(_rows(tmp_path / "out" / "classes.csv")) == 10
    assert (tmp_path / "out" / "clients.png").read_bytes()[1:4] == b"PNG"
    if algorithm == "fedavg":
        alone = evaluate(finished.folder)
        own = evaluate(study.folder).repetitions
        assert own[0].metrics == pytest.approx(alone.metrics, abs=1e-6)
        assert own[1].metrics != pytest.approx(alone.metrics, abs=1e-3)
    other = evaluate(study.folder, ["dataset.split_seed=3"], "test")
    assert len({one.metrics["test/loss"] for one in other.repetitions}) == 3
    with pytest.raises(ValueError, match="is a study of repeats=3, .*: without repeats the same run"):
        study.model()


def test_a_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["dataset=diabetes", "model=linear", "num_clients=4", "rounds=1", "quiet=true", "pictures=false"]
    done = run([*data, f"output_root={tmp_path}", "device=cpu"])
    assert main([str(done.folder)]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "no figures by client: evaluation=per_client cannot tell" in line
    assert main([str(done.folder), "--clients", "train"]) == 0
    assert "by client (4 clients), loss: mean " in capsys.readouterr().out


@looped(
    "words, line",
    [
        (["rounds=3"], "rounds=3 is no override of the data: give dataset=NAME or dataset.OPTION=VALUE"),
        (["dataset=diabetes"], "dataset=diabetes does not fit the run's model: its task is regression, not classifica"),
        (["dataset=nothing"], "nothing"),
        (["dataset.colour=1"], "colour"),
        (["dataset.split_seed=1", "--clients", "train"], "leave dataset.split_seed=1 out"),
        (["--out", "/proc/nowhere"], "cannot write /proc/nowhere"),
    ],
)
def test_wrong_words(finished: Run, capsys: pytest.CaptureFixture[str], words: list[str], line: str) -> None:
    assert main([str(finished.folder), *words]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert line in said


def test_texts_that_are_filled_up_otherwise_do_not_fit() -> None:
    texts = Samples(torch.tensor([[2, 1, 0]]), torch.tensor([0]))
    own = Dataset("own", texts, texts, "classification", 2, vocab_size=3, padding_token=0)
    with pytest.raises(ValueError, match="its padding is 1, not 0"):
        _other_test(own, replace(own, name="other", padding_token=1))


def test_a_run_that_is_not_finished_says_so(finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for state, said in (("interrupted", "is interrupted: these"), ("running", "is not finished: these")):
        folder = tmp_path / state / "seed=0"
        shutil.copytree(finished.folder, folder)
        (folder / "status.json").write_text(f'{{"state": "{state}", "round": 3}}')
        for call, words in ((main, []), (export, [str(tmp_path / "model.pt")])):
            assert call([str(folder), *words]) == 0
            (line,) = capsys.readouterr().err.splitlines()
            assert f"{folder} {said} are its weights after round 3 of 3" in line


def test_a_folder_that_cannot_be_written_loses_no_figure(finished: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(finished.folder), "--out", "/proc/nowhere"]) == 2
    said = capsys.readouterr()
    assert "cannot write /proc/nowhere" in said.err
    assert f"accuracy {100 * finished.lines[-1]['test/accuracy']:.2f} %" in said.out


def test_only_the_run_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().err.endswith("the following arguments are required: run\n")


def test_wrong_runs(finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = run(["dataset=vectors", "model=mean_vector", "algorithm=mean_estimation", "rounds=1", "quiet=true",
                "pictures=false", "partition=one_each", "num_clients=4", f"output_root={tmp_path}"])  # fmt: skip
    for folder, line in (
        (tmp_path, "is no run's folder: it has no config.yaml; a run's is <output_root>/<name>/<hash>/seed=<n>"),
        (tmp_path / "nowhere", "there is no folder"),
        (task.folder, "model=mean_vector is no network"),
    ):
        assert main([str(folder)]) == 2
        (said,) = capsys.readouterr().err.splitlines()
        assert line in said
