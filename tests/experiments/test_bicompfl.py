"""The experiments of BiCompFL's tables: their settings, and that every run is what stands in the printed row."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from fedcomp.config.comments import comments_of
from fedcomp.config.compose import compose
from fedcomp.records.metrics_file import read_lines
from fedcomp.reporting.labels import flatten
from fedcomp.reporting.tables.published import load, meets
from tests.looped import looped

CONF = Path(__file__).resolve().parents[2] / "conf"
FOLDER = CONF / "experiment" / "bicompfl"
SETTINGS = ("mnist_lenet", "mnist_cnn4", "fashion_cnn4", "cifar10_cnn6")
SPLITS = [f"{data} {split}" for data in SETTINGS for split in ("iid", "non_iid")]
TABLES = {chosen: str(number) for number, chosen in enumerate(SPLITS, start=5)}
METHOD = "experiment/bicompfl/method@_global_"
METHODS = sorted(path.stem for path in (FOLDER / "method").glob("*.yaml"))


@cache
def _config(table: str, method: str, *changes: str) -> dict[str, Any]:
    """Of a run of a table ("mnist_lenet iid"), or of another experiment."""
    data, _, split = table.partition(" ")
    chosen = [*_table(data, split)] if split else [f"experiment=bicompfl/{table}"]
    config = compose([*chosen, f"{METHOD}={method}", *changes])
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True, enum_to_str=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _table(data: str, split: str) -> tuple[str, str, str]:
    groups = "experiment/bicompfl/data@_global_", "experiment/bicompfl/split@_global_"
    return "experiment=bicompfl/tables", f"{groups[0]}={data}", f"{groups[1]}={split}"


def _rows(config: dict[str, Any]) -> list[tuple[str, str]]:
    """(table, method) of the printed rows that a run of this config stands for."""
    flat = flatten(config)
    return [(row.table, row.method) for row in load("bicompfl") if meets(flat, row.where) and meets(flat, row.match)]


@looped("chosen, table", TABLES.items())
def test_a_choice_of_data_and_split_is_its_table(chosen: str, table: str) -> None:
    config = _config(chosen, "m3")
    assert _rows(config) == [(table, "M3")]
    assert config["rounds"] == (400 if "cifar10" in chosen else 200)


@looped("method", METHODS)
def test_a_method_is_its_row(method: str) -> None:
    config = _config("mnist_lenet non_iid", method)
    printed = method not in ("pr_op", "gr_cfl")
    assert _rows(config) == ([("6", config["label"])] if printed else [])
    local, step = config["client"], config["server"]
    masks = method.startswith(("gr_", "pr_")) and method != "gr_cfl"
    algorithm = f"bicompfl_{'cfl' if method == 'gr_cfl' else method[:2]}" if masks or method == "gr_cfl" else method
    assert config["algorithm"]["_target_"].split(".")[-2] == algorithm
    assert local["_target_"] == "fedcomp.client.adam.Adam"
    assert (local["lr"], local["epochs"], local["steps"], local["batch_size"]) == (0.1 if masks else 3e-4, 3, None, 128)
    steps = {"m3": 0.02, "gr_cfl": 1.0}
    assert (step["lr"], step["momentum"]) == (1.0 if masks else steps.get(method, 0.1), 0.0)
    assert config["algorithm"].get("weights", "uniform") == "uniform"
    assert (config["num_clients"], config["partition"]["alpha"]) == (10, 0.1)


CHANGED = {
    "fedavg": ["num_clients=20"],
    "gr_fixed": ["num_clients=50", "algorithm.block=128"],
    "gr_reconst": ["algorithm.n_dl=5"],
    "pr_fixed": ["algorithm.n_dl=20", "participation=bernoulli"],
    "pr_split": ["algorithm.n_dl=20"],
    "liec": ["algorithm.period=10", "compressor=topk"],
    "cser": ["algorithm.period=25", "compressor@downlink=sign_model"],
    "neolithic": ["algorithm.passes=3"],
    "doublesqueeze": ["compressor=topk"],
    "memsgd": ["compressor@downlink=sign_model"],
    "m3": ["algorithm.uplink_entries=compressor"],
}


@looped("method, change", [(name, one) for name, own in CHANGED.items() for one in own])
def test_a_changed_run_is_no_row(method: str, change: str) -> None:
    assert _rows(_config("mnist_lenet non_iid", method, change)) == []


def test_an_ablation_is_its_row_where_it_changes_nothing() -> None:
    for method in ("gr_reconst", "pr_fixed"):
        config = _config("ablation_n_dl", method, "algorithm.n_dl=10")
        assert _rows(config) == [("9", config["label"])]


def test_cifar_has_the_predecessors_normalisation() -> None:
    dataset = _config("cifar10_cnn6 iid", "m3")["dataset"]
    assert dataset["mean"] == dataset["std"] == [0.5] * 3


def test_one_command_is_every_method_over_three_seeds() -> None:
    grid = OmegaConf.load(FOLDER / "setting" / "paper.yaml").hydra.sweeper.params
    assert sorted(grid[METHOD].split(",")) == METHODS
    assert grid.seed == "0,1,2"
    named = {
        name.removeprefix("bicompfl/") for name in comments_of("experiment", [CONF]) if name.startswith("bicompfl/")
    }
    ablations = {f"ablation_{what}" for what in ("clients", "n_dl", "block", "n_is", "prior")}
    assert named == ablations | {"tables", "short"}
    every = OmegaConf.load(FOLDER / "tables.yaml").hydra.sweeper.params
    data, splits = (every[f"experiment/bicompfl/{group}@_global_"].split(",") for group in ("data", "split"))
    assert [f"{one} {split}" for one in data for split in splits] == list(TABLES)


@pytest.mark.thorough
def test_a_grid_of_two_methods_runs(fedcomp, tmp_path: Path) -> None:
    small = ("dataset=digits", "dataset.pixels=unit", "model=mlp", "partition.min_size=10", "rounds=3", "seed=1")
    assert fedcomp(*_table("mnist_lenet", "non_iid"), f"{METHOD}=fedavg,m3", *small) == 0
    lines = [read_lines(path)[-1] for path in (tmp_path / "bicompfl_tables").rglob("metrics.jsonl")]
    assert len(lines) == 2
    assert all(line["round"] == 3 for line in lines)


def test_m3_alone_sends_what_it_sends_in_its_experiment() -> None:
    alone = compose(["algorithm=m3"])
    inside = _config("mnist_lenet iid", "m3")
    for part in ("algorithm", "compressor", "downlink"):
        assert OmegaConf.to_container(alone[part]) == inside[part]
    assert alone.compressor.positions == "index"
