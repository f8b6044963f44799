"""The default tracker: the run's own record is all that there is."""

from pathlib import Path

import pytest

from fedcomp.tracking.contract import Jsonl, RunInfo

RECORD = {"round": 0, "test/accuracy": 0.1, "bits/total": 0}


def test_it_writes_and_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tracker = Jsonl()
    tracker.start(RunInfo(tmp_path, "toy", "hash", 0, {}))
    tracker.log(RECORD)
    tracker.finish("finished", RECORD)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")
