"""Lines of the log that are shown on the console too."""

import logging
from pathlib import Path

import pytest

from fedcomp.training.setup import _log_file


def test_notes_of_the_log_are_shown_while_a_run_lasts(tmp_path: Path) -> None:
    shown: list[str] = []
    log = logging.getLogger("fedcomp")
    with _log_file(tmp_path, shown.append):
        log.info("for the file")
        log.info("for %s", "both", extra={"note": True})
    log.info("for nobody", extra={"note": True})
    assert shown == ["for both"]
    assert [line.split(" INFO ")[1] for line in (tmp_path / "run.log").read_text().splitlines()] == [
        "for the file",
        "for both",
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_no_traceback_of_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.log").symlink_to("/dev/full")
    with _log_file(tmp_path, lambda _: None):
        logging.getLogger("fedcomp").info("no room for this")
    assert capsys.readouterr().err == ""
