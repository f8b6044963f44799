"""The clock of a network beside real seconds: a run between processes behind token buckets takes what it computes."""

from pathlib import Path

import pytest

from fedcomp.records.metrics_file import read_lines
from scripts.clock_validation import COMMON, ROUNDS, measured

QUICK = [
    *COMMON,
    "network.down_bps=2e6",
    "network.up_bps=5e5",
    "network.rtt_s=0.05",
    "network.seconds_per_gradient=3e-5",
]


@pytest.mark.thorough
def test_real_seconds_are_those_of_the_clock(fedcomp, tmp_path: Path) -> None:
    """Never fewer, and on a busy machine not many more."""
    assert fedcomp(*QUICK, f"output_root={tmp_path}") == 0
    (record,) = tmp_path.rglob("metrics.jsonl")
    computed = float(read_lines(record)[-1]["time/total"])
    assert 1 < computed < 4
    real = measured(QUICK, tmp_path)
    assert computed - 0.01 < real < computed + 0.5 * ROUNDS
