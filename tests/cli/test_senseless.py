"""Values that no run can mean are refused in one line, before the first round."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedcomp as api

QUICK = ("rounds=1", "num_clients=2", "quiet=true", "pictures=false")

CASES = [
    ("algorithm=decomfl algorithm.mu=1e-30", "algorithm.mu=1e-30 must be a number in [1e-8, 1e3]"),
    ("network=lte network.jitter=1e6", "network.jitter=1000000.0 must be a number in [0, 5]"),
    ("network=shared network.capacity_bps=[1e6,2e6]", "has 2 capacities, but network.cells=1"),
    ("network=shared network.capacity_bps=1e6 network.cells=3", "network.cells=3 are more than the 2 clients"),
    ("dataset=csv dataset.path=t.csv dataset.target=y dataset.features=[a,a]", "dataset.features has 'a' 2 times"),
    ("dataset=csv dataset.path=only.csv dataset.target=y", "has no column beside 'y' to predict it from"),
    ("algorithm=mean_estimation dataset=vectors dataset.kind=file dataset.path=complex.npy", "are complex numbers"),
    ("dataset=shapes dataset.crop_padding=100", "crop_padding is 100, but must be below the images' 64 pixels"),
    ("dataset=shapes dataset.size=100000", "pictures of 100000 x 100000 pixels take"),
    ("device=cpu:3", "device=cpu:3 must be auto, cpu, cuda or cuda:<number>"),
    ("compressor=../client/sgd", "compressor is chosen by the name of a YAML"),
    ("compressor@downlink=/etc/passwd", "compressor is chosen by the name of a YAML"),
    ("~compressor", "a run needs its compressor: choose another one with compressor=<name>"),
    ("model=module model.path=quits.Net", "calls sys.exit(3)"),
    ("compressor._target_=quits.Codec", "quits.Codec or a module that it imports calls sys.exit(3)"),
    ("-m sweeper=optuna sweeper.storage=foo://bar client.lr=interval(0.1,1)", "sweeper.storage=foo://bar cannot be"),
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "t.csv").write_text("a,y\n1,2\n2,3\n3,4\n4,5\n")
    (tmp_path / "only.csv").write_text("y\n1\n2\n3\n")
    (tmp_path / "quits.py").write_text("import sys\nsys.exit(3)\n")
    np.save(tmp_path / "complex.npy", np.ones((2, 3), complex))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("words", "said"), CASES, ids=[words for words, _ in CASES])
def test_refused(fedcomp, capsys, place: Path, words: str, said: str) -> None:
    assert fedcomp(*QUICK, *words.split()) in (1, 2)
    line = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("fedcomp: error: "))
    assert said in line


@pytest.mark.parametrize(
    ("given", "said"), [(3, "3 is no config"), (["launcher=joblib"], "launcher=joblib is for the")]
)
def test_from_python(given: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        api.run(given)
