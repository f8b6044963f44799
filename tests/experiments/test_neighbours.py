"""The experiments that compare with the five papers' neighbours: every method of a grid composes, and runs."""

from pathlib import Path

import numpy as np
import pytest

from fedcomp.records.metrics_file import read_lines

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
