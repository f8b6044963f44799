"""Experiments whose one command is a grid: of Rand-k-Spatial and -Temporal, and of the five papers' neighbours."""

from pathlib import Path

import numpy as np
import pytest

from fedcomp.records.metrics_file import read_lines
from fedcomp.records.status import read_status

METHOD = "experiment/rand_k/method@_global_"


@pytest.mark.thorough
def test_one_command_is_the_whole_grid(fedcomp, tmp_path: Path) -> None:
    """Whatever the command line gives, too, is no longer swept."""
    given = (f"{METHOD}=randk", "compressor=topk", "compressor.fraction=0.1", "compressor.positions=index", "rounds=3")
    assert fedcomp("experiment=rand_k/mse", *given) == 0
    folders = [path.parent for path in (tmp_path / "rand_k_mse").rglob("status.json")]
    assert len(folders) == 11
    ratios = []
    for folder in folders:
        status = read_status(folder)
        assert status.state == "finished"
        assert not list(folder.glob("*.png"))
        first, last = read_lines(folder / "metrics.jsonl")
        assert (first["round"], last["round"]) == (0, 3)
        assert last["bits/uplink"] == 3 * 10 * 10 * (32 + 7)
        assert last["mse"] >= 0
        ratios.append(round(last["vectors/correlation"]))
    assert sorted(ratios) == list(range(-1, 10))


NEIGHBOURS = Path(__file__).resolve().parents[2] / "conf" / "experiment" / "neighbours"
QUANTISER = "experiment/neighbours/quantiser@_global_"


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(path.stem for path in (NEIGHBOURS / "quantiser").glob("*.yaml")))
def test_every_quantiser_runs(name: str, fedcomp, tmp_path: Path) -> None:
    np.save(tmp_path / "updates_2.npy", np.eye(2, 300))
    given = (f"{QUANTISER}={name}", "compressor.bits=2", "dataset.kind=sparse,file", "num_clients=2", "rounds=2")
    few = ("dataset.dim=300", f"dataset.path={tmp_path}/updates_${{num_clients}}.npy", "wire=packed")
    assert fedcomp("experiment=neighbours/quantisers", *given, *few) == 0
    lines = [read_lines(path)[-1] for path in tmp_path.rglob("metrics.jsonl")]
    assert len(lines) == 2
    for line in lines:
        assert 2 < line["bpp/uplink"] < 3
        assert 0 <= line["mse"] < 0.5
