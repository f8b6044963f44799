"""The picture of whom the server waited for."""

from pathlib import Path

import numpy as np

from fedcomp.display.slowest_plot import MOST, plot_slowest


def test_few_clients_and_many(tmp_path: Path) -> None:
    for number, counts in enumerate((np.array([3, 0, 5]), np.arange(MOST + 20))):
        path = tmp_path / f"{number}.png"
        plot_slowest(counts, path, "a run")
        assert path.read_bytes().startswith(b"\x89PNG")
