"""The experiments of Rand-k-Spatial and -Temporal: one command is a grid."""

from pathlib import Path

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
        assert status is not None
        assert status.state == "finished"
        assert not list(folder.glob("*.png"))
        first, last = read_lines(folder / "metrics.jsonl")
        assert (first["round"], last["round"]) == (0, 3)
        assert last["bits/uplink"] == 3 * 10 * 10 * (32 + 7)
        assert last["mse"] >= 0
        ratios.append(round(last["vectors/correlation"]))
    assert sorted(ratios) == list(range(-1, 10))
