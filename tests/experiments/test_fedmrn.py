"""The experiments of FedMRN: their settings, and that every run of table 1 is what stands in the printed row."""

from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fedcomp.config.compose import compose
from fedcomp.reporting.labels import flatten
from fedcomp.reporting.tables.published import load, meets
from tests.looped import looped

CONF = Path(__file__).resolve().parents[2] / "conf"
FOLDER = CONF / "experiment" / "fedmrn"
PART = "experiment/fedmrn/{}@_global_"
COMPARED = ("fedavg", "fedpm", "fedsparsify", "signsgd", "topk", "terngrad", "drive", "eden", "fedmrn", "fedmrns")


@cache
def _config(experiment: str, *parts: tuple[str, str], changes: tuple[str, ...] = ()) -> dict[str, Any]:
    overrides = [f"{PART.format(part)}={choice}" for part, choice in parts] + list(changes)
    config = compose([f"experiment=fedmrn/{experiment}", *overrides])
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True, enum_to_str=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _rows(config: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(dataset, partition, method) of the printed rows that a run of this config stands for."""
    flat = flatten(config)
    rows = [row for row in load("fedmrn") if meets(flat, row.where) and meets(flat, row.match)]
    return [(row.dataset, row.partition, row.method) for row in rows]


@looped("method", COMPARED)
def test_a_method_is_its_row(method: str) -> None:
    config = _config("table1", ("method", method), ("data", "svhn"), ("split", "non_iid_1"))
    assert _rows(config) == [("SVHN", "Non-IID-1", config["label"])]
    client = config["client"]
    assert (client["epochs"], client["batch_size"], client["steps"]) == (10, 64, None)
    assert client["lr"] == {"fedmrn": 0.1, "fedmrns": 0.1, "fedpm": 0.1}.get(method, 0.03)
    assert (config["num_clients"], config["participation"]["num_participants"], config["rounds"]) == (100, 10, 100)


CHANGED = {
    "fedavg": ["num_clients=99", "participation.num_participants=9", "participation=full", "partition.variant=random"],
    "fedmrn": ["algorithm.alpha=0.02", "algorithm.ramp=0.5", "algorithm.power=2", "algorithm.mask_batchnorm=true"],
    "fedmrns": ["algorithm.alpha=0.01"],
    "fedsparsify": ["algorithm.sparsity=0.9"],
    "signsgd": ["compressor=sign"],
    "topk": ["compressor.fraction=0.01"],
    "drive": ["compressor.scale=unbiased"],
    "terngrad": ["compressor@downlink=sign"],
    "eden": ["compressor.bits=4", "compressor@downlink=sign"],
}
CHANGED["fedmrn"] += ["compressor@downlink=sign"]


@looped("method, change", [(name, one) for name, own in CHANGED.items() for one in own])
def test_what_is_changed_is_no_printed_row(method: str, change: str) -> None:
    """Whatever its label still says."""
    assert not _rows(_config("table1", ("method", method), changes=(change,)))


COLUMNS = {"fashion_mnist": ("FMNIST", "cnn4_bn", 100, (0, False)), "svhn": ("SVHN", "cnn4_bn", 100, (0, False))}
COLUMNS |= {"cifar10": ("CIFAR-10", "cnn8_bn", 200, (4, True))}


@looped("data", COLUMNS)
@looped("split, partition", [("iid", "IID"), ("non_iid_1", "Non-IID-1"), ("non_iid_2", "Non-IID-2")])
def test_a_data_set_is_its_column(data: str, split: str, partition: str) -> None:
    name, model, rounds, augmented = COLUMNS[data]
    config = _config("table1", ("data", data), ("split", split))
    assert _rows(config) == [(name, partition, "FedMRN")]
    assert config["model"]["_target_"].endswith(model)
    assert config["rounds"] == rounds
    assert (config["dataset"]["crop_padding"], config["dataset"]["flip"]) == augmented
    assert config["partition"]["seed"] == 1234


@looped("split, partition", [("iid", "IID"), ("non_iid_1_cifar100", "Non-IID-1"), ("non_iid_2_cifar100", "Non-IID-2")])
def test_cifar100_has_its_own_splits(split: str, partition: str) -> None:
    assert _rows(_config("table1_cifar100", ("split", split))) == [("CIFAR-100", partition, "FedMRN")]


def test_the_grids_are_all_methods() -> None:
    for name in ("table1", "table1_cifar100"):
        grid = OmegaConf.load(FOLDER / f"{name}.yaml").hydra.sweeper.params
        assert grid[PART.format("method")].split(",") == list(COMPARED)
        assert grid.seed == "0,1,2,3,4"


def test_the_ablation_is_what_its_names_say() -> None:
    steps = {"fedmrn": (True, True), "without_pm": (True, False), "without_sm": (False, True)}
    for method, (sm, pm) in (steps | {"without_psm": (False, False)}).items():
        part = _config("ablation", ("method", method))["algorithm"]
        assert (part["sm"], part["pm"]) == (sm, pm), method
    after = _config("ablation", ("method", "post_training"))
    assert after["compressor"]["_target_"].endswith("MaskedNoise")
    assert not _rows(_config("ablation", ("method", "without_pm")))


@looped("method", ["fedavg", "signsgd", "eden", "fedmrn"])
@looped("data, name, partition", [("shakespeare", "Shakespeare", "natural"), ("voc", "PascalVOC", "1 class")])
def test_the_other_tasks_are_table_3(data: str, name: str, partition: str, method: str) -> None:
    config = _config("other_tasks", ("data", data), ("method", method))
    assert _rows(config) == [(name, partition, config["label"])]
    client = config["client"]
    settings = (client["lr"], client["epochs"], client["batch_size"], config["rounds"])
    assert settings == {"shakespeare": (3.0, 1, 128, 100), "voc": (0.05, 2, 8, 400)}[data]
    if method == "fedmrn":
        assert config["algorithm"]["alpha"] == {"shakespeare": 0.003, "voc": 0.03}[data]
    assert config["model"]["dropout"] == {"shakespeare": 0.5, "voc": 0.1}[data]


def test_other_tasks_in_small() -> None:
    """Text stands for its printed row, shapes for none; a method's own rate gives way to the task's."""
    for method in ("fedavg", "fedmrn"):
        text = _config("other_tasks_small", ("method", method))
        assert _rows(text) == [("Shakespeare", "natural", text["label"])]
        shapes = _config("other_tasks_small", ("data", "shapes"), ("method", method))
        assert not _rows(shapes)
        assert (text["client"]["lr"], shapes["client"]["lr"]) == (3.0, 0.05)
    rates = [_config("shakespeare", ("method", method))["client"]["lr"] for method in ("signsgd", "eden")]
    assert rates == [0.3, 1.0]
    assert _config("shakespeare", changes=("client.lr=0.7",))["client"]["lr"] == 0.7
    grid = OmegaConf.load(FOLDER / "other_tasks_small.yaml").hydra.sweeper.params
    assert grid[PART.format("data")] == "shakespeare_small,shapes"
    alone = _config("shakespeare")
    assert (alone["rounds"], alone["num_clients"], alone["algorithm"]["alpha"]) == (40, 50, 0.03)


def test_the_magnitude_of_noise_is_the_programs_where_a_task_names_none() -> None:
    assert _config("table1")["algorithm"]["alpha"] == 0.01


def test_the_small_experiment() -> None:
    config = _config("mnist_small")
    assert (config["num_clients"], config["participation"]["num_participants"], config["rounds"]) == (30, 5, 30)
    assert config["client"]["epochs"] == 2
    assert config["model"]["_target_"].endswith("cnn4_bn")
