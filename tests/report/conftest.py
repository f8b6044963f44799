"""Synthetic run folders."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

MakeRun = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Writes a run's folder: config, status, and one line for each accuracy (at rounds 0, 10, 20, ...)."""

    def make(
        method: str,
        seed: int,
        accuracies: list[float],
        state: str = "finished",
        error: str | None = None,
        config: dict[str, Any] | None = None,
        extra: dict[str, float] | None = None,
    ) -> Path:
        folder = tmp_path / "outputs" / "demo" / method / f"seed={seed}"
        folder.mkdir(parents=True)
        whole = {
            "seed": seed,
            "name": "demo",
            "rounds": 20,
            "compressor": {"_target_": f"fedcomp.compressor.{method}.Codec"},
            **(config or {}),
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
        (folder / "status.json").write_text(
            json.dumps({"state": state, "round": 10 * max(0, len(accuracies) - 1), "error": error})
        )
        with (folder / "metrics.jsonl").open("w") as file:
            for index, accuracy in enumerate(accuracies):
                line = {
                    "round": 10 * index,
                    "test/accuracy": accuracy,
                    "test/loss": 1 - accuracy,
                    "bits/uplink": 1000 * index,
                    "bits/total": 33_000 * index,
                    "bpp/uplink": 1.0,
                    "bpp/downlink": 32.0,
                    "bpp/broadcast": 3.2,
                    "seconds": 4.0 * index,
                    **(extra or {}),
                }
                file.write(json.dumps(line) + "\n")
        return folder

    return make
