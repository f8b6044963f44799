"""Accuracy by client: against loops over clients, closed forms of the figures, and a record that is else the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.evaluation.per_client import ClientSamples, PerClient, fairness
from fedcomp.records.metrics_file import read_lines
from fedcomp.simulation.evaluation import client_values
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger
from tests.looped import looped
from tests.refused import one_line_error

CPU = torch.device("cpu")
SKEWED = ("num_clients=13", "partition=dirichlet", "partition.alpha=0.2")
NAMES = {f"per_client/accuracy_{name}" for name in ("mean", "worst_decile", "best_decile", "std")}


def _trained(*overrides: str) -> tuple[Simulation, list[torch.Tensor], object]:
    simulation, parts = build_simulation(compose([*SKEWED, "evaluation=per_client", *overrides]), CPU)
    state, _ = simulation.round(0, simulation.init(), Ledger())
    return simulation, parts, state


def _right(simulation: Simulation, state: object, samples: Samples) -> torch.Tensor:
    """[n] whether the model is right, one sample at a time."""
    (theta,), (stats,) = (lambda models: (models.theta, models.stats))(
        simulation.algorithm.evaluation_models(state, simulation.key)["test"]
    )
    inputs = simulation.dataset.normalise(samples.x)
    return torch.stack([simulation.model.outputs(theta, stats, x[None]).argmax() for x in inputs]) == samples.y


def _values(simulation: Simulation, state: object) -> np.ndarray:
    models = simulation.algorithm.evaluation_models(state, simulation.key)["test"]
    clients = simulation.client_samples
    assert clients is not None
    return client_values(models, simulation.model, simulation.dataset, clients).numpy()


def test_by_class_is_the_accuracy_of_a_test_set_with_the_clients_classes() -> None:
    simulation, parts, state = _trained()
    dataset = simulation.dataset
    right = _right(simulation, state, dataset.test).double()
    of_class = [float(right[dataset.test.y == label].mean()) for label in range(10)]
    wanted = [np.mean([of_class[label] for label in dataset.train.y[part].tolist()]) for part in parts]
    assert _values(simulation, state) == pytest.approx(wanted, abs=1e-12)
    found = simulation.test_metrics(1, state)
    assert float(found["per_client/accuracy_mean"]) == pytest.approx(np.mean(wanted), abs=1e-12)
    assert float(found["per_client/accuracy_worst_decile"]) == pytest.approx(np.mean(sorted(wanted)[:2]), abs=1e-12)


def test_on_the_clients_own_training_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches, of which one ends within a client."""
    monkeypatch.setattr("fedcomp.simulation.evaluation.BATCH", 100)
    simulation, parts, state = _trained("evaluation.data=train")
    right = _right(simulation, state, simulation.dataset.train).double()
    wanted = [float(right[part].mean()) for part in parts]
    assert _values(simulation, state) == pytest.approx(wanted, abs=1e-12)
    found = simulation.test_metrics(1, state)
    assert float(found["per_client/accuracy_std"]) == pytest.approx(np.std(wanted), abs=1e-12)


def _owned(train_owner: list[int], test_owner: list[int] | None) -> Dataset:
    """Sample i has class i mod 2 and a single feature, its number."""
    train, test = (torch.arange(num).float()[:, None] for num in (len(train_owner), len(test_owner or [0, 0])))
    owners = torch.tensor(train_owner), None if test_owner is None else torch.tensor(test_owner)
    made = [Samples(x, x[:, 0].long() % 2, owner) for x, owner in zip((train, test), owners)]
    return Dataset("owned", made[0], made[1], "classification", 2)


def _samples(dataset: Dataset, parts: list[list[int]], data: str = "test") -> ClientSamples:
    sizes = np.array([len(part) for part in parts])
    return PerClient(data).samples(dataset, torch.tensor([number for part in parts for number in part]), sizes)


def test_owners_are_judged_by_their_own_test_samples() -> None:
    dataset = _owned([4, 4, 7, 7, 9, 9], [7, 4, 7, 7, 5])
    clients = _samples(dataset, [[2, 3], [0, 1], [4, 5]])  # of owners 7, 4 and 9, who is not in the test set
    assert clients.clients.tolist() == [0, 1]
    outputs = torch.tensor([[1.0, 0.0]] * 4)  # says class 0: right for samples 0 and 2
    x, y = clients.batch(0, 9)
    assert x[:, 0].tolist() == [0, 1, 2, 3]
    assert clients.values(clients.sums("classification", outputs, y, 0)).tolist() == pytest.approx([2 / 3, 0])


@looped("parts", [[[0], [1, 2]], [[0], [1], [2, 3]]])
def test_owners_count_only_where_each_client_is_one(parts: list[list[int]]) -> None:
    """A client with samples of two owners, and an owner with two clients."""
    clients = _samples(_owned([4, 4, 7, 7], [4, 7, 7, 4]), parts)
    assert clients.of_test
    assert clients.num_groups == 2, "classes"


def test_clients_without_samples_are_left_out() -> None:
    dataset = _owned([0] * 4, None)
    for data in ("test", "train"):
        assert _samples(dataset, [[0, 1], [], [2, 3]], data).clients.tolist() == [0, 2]
    only_zeros = replace(dataset, test=Samples(torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64)))
    clients = _samples(only_zeros, [[0, 1, 2], [1], [3]])  # classes 0 1 0, 1 and 1: class 1 is not tested
    assert clients.clients.tolist() == [0]
    assert clients.share is not None
    assert clients.share.tolist() == [[1, 0]]


def test_figures_of_known_values() -> None:
    values = torch.arange(21, dtype=torch.float64)[torch.randperm(21, generator=torch.Generator().manual_seed(0))]
    found = {name.rpartition("/")[2]: float(value) for name, value in fairness("classification", values).items()}
    assert found == pytest.approx(
        {
            "accuracy_mean": 10,
            "accuracy_worst_decile": 1,
            "accuracy_best_decile": 19,
            "accuracy_std": np.std(values.numpy()),
        }
    )
    losses = {name.rpartition("/")[2]: float(value) for name, value in fairness("regression", values).items()}
    assert losses["loss_worst_decile"] == 19
    assert losses["loss_best_decile"] == 1


def test_pictures_and_regressions() -> None:
    """A picture's share of right pixels among those with a class; a regression's mean squared error."""
    from fedcomp.evaluation.per_client import scores

    y = torch.tensor([[[0, 1], [255, 1]]], dtype=torch.uint8)
    outputs = torch.tensor([[[[1.0, 1], [1, 0]], [[0.0, 0], [0, 1]]]])  # predicts 0 0 / 0 1
    assert scores("segmentation", outputs, y).tolist() == pytest.approx([2 / 3])
    assert scores("regression", torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 1.0]])).tolist() == [2.5]


def _lines(root: Path, fedcomp, *overrides: str) -> list[dict]:
    assert fedcomp(*SKEWED, "rounds=2", f"output_root={root}", *overrides) == 0
    (path,) = root.rglob("metrics.jsonl")
    return [{name: value for name, value in line.items() if name != "seconds"} for line in read_lines(path)]


@pytest.mark.parametrize("data", ["test", "train"])
def test_the_record_is_else_the_same(fedcomp, tmp_path: Path, data: str) -> None:
    plain = _lines(tmp_path / "plain", fedcomp)
    more = _lines(tmp_path / "more", fedcomp, "evaluation=per_client", f"evaluation.data={data}")
    assert all(line.keys() >= NAMES for line in more)
    assert [{name: value for name, value in line.items() if name not in NAMES} for line in more] == plain


def test_repetitions(fedcomp, tmp_path: Path) -> None:
    """Each repetition has clients of its own; the first is the run without repetitions."""
    from fedcomp.records.metrics_file import read_repetitions

    (*_, alone) = _lines(tmp_path / "one", fedcomp, "evaluation=per_client")
    (*_, mean) = _lines(tmp_path / "many", fedcomp, "evaluation=per_client", "repeats=2")
    (folder,) = (path.parent for path in (tmp_path / "many").rglob("repetitions.jsonl"))
    for name in NAMES:
        each = read_repetitions(folder)[2][name]
        assert each[0] == pytest.approx(alone[name], abs=1e-6)
        assert each[0] != each[1]
        assert mean[name] == pytest.approx(np.mean(each), abs=1e-12)


def owned(num_tested: int) -> Dataset:
    """Five owners of four training samples each, of whom the first few have test samples."""
    return _owned([*range(5)] * 4, [*range(num_tested)] * 4)


def test_it_is_said_if_not_all_are_judged(caplog: pytest.LogCaptureFixture) -> None:
    line = "evaluation=per_client judges 2 of 5 clients: the others have no test samples, of their owner or classes"
    for num_tested, data, said in ((2, "test", [line]), (5, "test", []), (2, "train", [])):
        caplog.clear()
        config = compose(["partition=natural", "num_clients=null", "evaluation=per_client", f"evaluation.data={data}"])
        config.dataset = OmegaConf.create({"_target_": f"{__name__}.owned", "num_tested": num_tested})
        build_simulation(config, CPU)
        assert [text for text in caplog.messages if "judges" in text] == said


def test_an_evaluation_of_another_kind_is_one_line() -> None:
    config = compose(["num_clients=2"])
    config.evaluation = OmegaConf.create({"_target_": "collections.Counter"})
    with one_line_error("^collections.Counter made a Counter, which is no PerClient: let its class inherit from"):
        build_simulation(config, CPU)


@looped(
    "overrides, line",
    [
        (("evaluation.data=all",), "evaluation.data=all must be test or train"),
        (("algorithm=kmeans", "model=centres", "dataset=vectors"), "is for networks, not for model=centres"),
        (
            ("dataset=diabetes", "model=linear"),
            "cannot tell whose the test samples of dataset=.* are: .*take evaluation.data=train",
        ),
    ],
)
def test_refused_before_the_first_round(overrides: tuple[str, ...], line: str) -> None:
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    with pytest.raises(ValueError, match=line):
        build_simulation(compose(["evaluation=per_client", *overrides]), CPU)
