"""Tables that need no files: vectors for mean estimation, and diabetes as scikit-learn gives it."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedcomp.dataset.check import check
from fedcomp.dataset.tables import diabetes
from fedcomp.dataset.tables.vectors import load
from tests.looped import looped
from tests.refused import refused


def _ratio(x: torch.Tensor) -> float:
    """R2/R1 by its definition, pair by pair."""
    x = x.double()
    pairs = sum(float(x[i] @ x[j]) for i in range(len(x)) for j in range(i + 1, len(x)))
    return 2 * pairs / float(x.square().sum())


@looped("columns", [0, 10, 55, 100])
def test_the_papers_vectors_have_the_papers_correlation(columns: int) -> None:
    dataset = load(columns=columns)
    check(dataset)
    assert dataset.train.x.shape == (10, 100)
    assert torch.allclose(dataset.train.x.norm(dim=1), torch.ones(10))
    assert (dataset.train.x[:5] > 0).all()
    assert int((dataset.train.x[5:] > 0).sum()) == 5 * columns
    assert _ratio(dataset.train.x) == pytest.approx(columns / 10 - 1, abs=1e-6)


def test_correlation_instead_of_columns() -> None:
    assert torch.equal(load(correlation=3.5).train.x, load(columns=45).train.x)


def test_drawn_kinds() -> None:
    gaussian, equal = load("gaussian", 7, 2000).train.x, load("equal", 7, 2000).train.x
    assert (equal == equal[0]).all()
    assert _ratio(equal) == pytest.approx(6, abs=1e-5)
    assert gaussian.norm(dim=1).tolist() == pytest.approx([1.0] * 7, abs=5 * (2 * 2000) ** -0.5)
    assert abs(_ratio(gaussian)) < 5 * (7 * 6 * 2 / 2000) ** 0.5 / 7  # 5 standard errors of a mean of 42 products
    assert torch.equal(gaussian, load("gaussian", 7, 2000).train.x)
    assert not torch.equal(gaussian, load("gaussian", 7, 2000, seed=1).train.x)


def test_files(tmp_path: Path) -> None:
    table = np.random.default_rng(0).standard_normal((3, 4)).round(3)
    np.save(tmp_path / "v.npy", table)
    np.savetxt(tmp_path / "v.csv", table, delimiter=",")
    for name in ("v.npy", "v.csv"):
        vectors = load("file", 3, path=name, root=str(tmp_path)).train.x
        assert torch.allclose(vectors.double(), torch.from_numpy(table), atol=1e-6)


test_errors = refused(
    [
        ({"kind": "papers"}, "must be one of paper, gaussian, equal, lognormal, sparse, file"),
        ({"num": 7}, "must be even"),
        ({"dim": 0}, "dataset.dim=0 must be a whole number"),
        ({"correlation": 9.5}, "-1 to 9 in steps of 0.1"),
        ({"correlation": 0.05}, "dataset.correlation=0.05"),
        ({"columns": 101}, "from 0 to dataset.dim=100"),
        ({"kind": "file"}, "needs dataset.path"),
        ({"kind": "file", "path": "/nowhere.npy"}, "cannot read vectors from /nowhere.npy"),
    ],
    load,
)


def test_a_file_needs_one_vector_a_client(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.zeros((3, 4)))
    with pytest.raises(ValueError, match=r"\(3, 4\), but must be \[n, d\] with n = num_clients = 5"):
        load("file", 5, path=str(tmp_path / "v.npy"))


def test_heavy_tailed_and_sparse_vectors() -> None:
    lognormal, sparse = load("lognormal", 5, 4000).train.x, load("sparse", 5, 4000).train.x
    assert torch.allclose(torch.stack((lognormal, sparse)).norm(dim=2), torch.ones(2, 5))
    assert (lognormal > 0).all()
    assert float(lognormal.log().std()) == pytest.approx(1, rel=0.03)
    assert ((sparse != 0).sum(1) == 40).all()
    assert 0.3 < float((sparse > 0).sum() / 200) < 0.7
    assert torch.equal(load("sparse", 3, 4000).train.x, sparse[:3])
    assert int((load("sparse", 2, 30).train.x != 0).sum()) == 2


def test_values_are_scikit_learns():
    from sklearn.datasets import load_diabetes

    features, target = load_diabetes(return_X_y=True, scaled=False)
    dataset = diabetes.load(test_fraction=0, scaling="none", target_scaling="none")
    check(dataset)
    assert torch.equal(dataset.train.x, torch.from_numpy(features).float())
    assert torch.equal(dataset.train.y, torch.from_numpy(target).float()[:, None])


def test_z_scores_of_the_training_rows():
    dataset = diabetes.load()
    assert (len(dataset.train), len(dataset.test)) == (354, 88)
    inputs = dataset.normalise(dataset.train.x)
    torch.testing.assert_close(inputs.mean(0), torch.zeros(10), atol=1e-6, rtol=0)
    torch.testing.assert_close(inputs.std(0, correction=0), torch.ones(10), atol=1e-6, rtol=0)
    torch.testing.assert_close((dataset.train.y**2).mean(), torch.tensor(1.0))
