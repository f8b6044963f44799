"""A run that has learnt next to nothing says so at its end, with the option that its method would change."""

import pytest
import torch

from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.training.hardly_learnt import chance, hardly_learnt
from tests.looped import looped

SHORT = ("rounds=2", "num_clients=4", "eval_every=2")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("algorithm=decomfl",), "more rounds, a larger algorithm.lr or more algorithm.perturbations"),
        (("algorithm=fedsparsify", "algorithm.sparsity=0.999"), "a lower algorithm.sparsity, or more rounds"),
        (("client.lr=1e-6",), "more rounds, or another learning rate"),  # a method without a declaration
        (("dataset=diabetes", "model=linear", "client.lr=1e-6"), "more rounds, or another learning rate"),
    ],
)
def test_a_run_says_that_it_has_hardly_learnt(fedcomp, capsys, words, says: str) -> None:
    assert fedcomp(*SHORT, *words) == 0
    *_, last, folder = capsys.readouterr().err.splitlines()
    assert folder.startswith("record and pictures in")
    start = "test loss" if "dataset=diabetes" in words else "test accuracy"
    assert last.startswith(start)
    assert last.endswith(says)


def test_a_run_that_learns_says_nothing(fedcomp, capsys) -> None:
    assert fedcomp("rounds=3", "client.epochs=5", "num_clients=4") == 0
    assert not any(words in capsys.readouterr().err for words in ("chance", "hardly"))


@looped(
    "first, last, says",
    [
        ((0.10, 2.3), (0.18, 1.0), "test accuracy 18.00 % is near chance (10.00 %): why"),
        ((0.10, 2.3), (0.30, 2.2), "test loss 2.20 is hardly below its first value, 2.30: why"),
        ((0.10, 2.3), (0.30, 2.0), None),
        ((0.95, 0.1), (0.96, 0.1), None),  # it began with a trained model
        ((0.95, 0.1), (0.12, 2.3), "test accuracy 12.00 % is near chance (10.00 %): why"),
    ],
)
def test_what_is_near_chance_and_what_has_hardly_fallen(first, last, says) -> None:
    lines = [{"test/accuracy": accuracy, "test/loss": loss} for accuracy, loss in (first, last)]
    assert hardly_learnt(lines, 0.1, "why") == says
    assert hardly_learnt(lines[:1], 0.1, "why") is None


def test_chance_is_the_share_of_the_largest_class() -> None:
    def of(task, y: list, outputs: int = 3) -> float | None:
        samples = Samples(torch.zeros(len(y), 1), torch.tensor(y))
        return chance(Dataset("some", samples, samples, task, outputs))

    assert of("classification", [0, 2, 2, 2]) == 0.75
    assert of("segmentation", [[0, 1, 255, 255], [1, 1, 255, 255]]) == 0.75
    assert of("next_token", [[0, 1], [2, 1]]) == 0.5
    assert of("regression", [[0.5], [0.25]]) is None
