"""Run folders written without a run: config, status and record."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

MakeRun = Callable[..., Path]


def write_run(
    folder: Path,
    config: dict[str, Any],
    state: str,
    done: int,
    lines: Iterable[dict[str, Any]] = (),
    error: str | None = None,
) -> Path:
    """A run's folder, its record given by `lines`; `done`: its round."""
    folder.mkdir(parents=True)
    plain = json.loads(json.dumps(config))  # in which no part is another one, as in a run's own
    (folder / "config.yaml").write_text(yaml.safe_dump(plain, sort_keys=False))
    (folder / "status.json").write_text(json.dumps({"state": state, "round": done, "error": error}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / ".lock").touch()
    return folder


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Writes a run's folder: config, status, and one line for each accuracy (at rounds 0, 10, 20, ...).

    `lines` replaces all quality of the lines, one mapping a line; `extra` adds the same keys to every line.
    """

    def make(
        method: str,
        seed: int,
        accuracies: list[float],
        state: str = "finished",
        error: str | None = None,
        config: dict[str, Any] | None = None,
        extra: dict[str, float] | None = None,
        lines: list[dict[str, float]] | None = None,
        folder: str | None = None,
    ) -> Path:
        place = tmp_path / "outputs" / "demo" / (folder or method) / f"seed={seed}"
        compressor = {"_target_": f"fedcomp.compressor.{method}.Codec"}
        whole = {"seed": seed, "name": "demo", "rounds": 20, "compressor": compressor, **(config or {})}
        quality = lines or [{"test/accuracy": value, "test/loss": 1 - value} for value in accuracies]
        bpp = {"bpp/uplink": 1.0, "bpp/downlink": 32.0, "bpp/broadcast": 3.2, "bpp/total": 33.0}
        record = []
        for index, own in enumerate(quality):
            bits = {"bits/uplink": 1000 * index, "bits/downlink": 32_000 * index, "bits/total": 33_000 * index}
            record.append({"round": 10 * index, **bits, **bpp, "seconds": 4.0 * index, **(extra or {}), **own})
        return write_run(place, whole, state, 10 * max(0, len(quality) - 1), record, error)

    return make


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are written without PNG and PDF, which take longer than all else."""
    monkeypatch.setattr("fedcomp.reporting.build.draw_all", lambda *_: None)
