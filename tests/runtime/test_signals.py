"""How commands end: by a signal between rounds or during imports, without a reader, without room for a file."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedcomp.launcher.process import Children
from fedcomp.records.grid import JOBS, note_jobs
from fedcomp.runtime.command import exit_status
from fedcomp.runtime.signals import SIGNALS, GracefulStop
from tests.interrupted import at_line
from tests.left import status_of
from tests.looped import looped

TINY = ("dataset=diabetes", "model=linear", "num_clients=4", "rounds=4", "pictures=false")
BEGIN = """
import os, signal, sys
from fedcomp.cli import entry_points
from fedcomp.runtime.signals import exit_on_sigint, restore_sigint
"""
SWALLOWED = "try: os.kill(os.getpid(), signal.SIGINT)\nexcept BaseException: pass\n"


@pytest.fixture
def ignored() -> Iterator[None]:
    """As `nohup` starts a process."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@looped("number", SIGNALS)
def test_every_signal_is_recorded_and_its_handler_restored(number: signal.Signals) -> None:
    before = {one: signal.getsignal(one) for one in SIGNALS}
    with GracefulStop() as stop:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            pytest.fail("the first one stops between rounds")
        assert stop.number == number
    with Children() as children:
        signal.raise_signal(number)
        assert children.signal_received == number
    assert {one: signal.getsignal(one) for one in SIGNALS} == before


@pytest.mark.usefixtures("ignored")
def test_what_nohup_ignores_stays_ignored() -> None:
    with GracefulStop() as stop, Children() as children:
        signal.raise_signal(signal.SIGHUP)
        assert stop.number is None
        assert children.signal_received is None
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


@pytest.mark.parametrize("grid", [False, True], ids=["run", "grid"])
def test_a_closed_terminal_saves_the_run(fedcomp, tmp_path: Path, capsys, grid: bool) -> None:
    with at_line(2, lambda: signal.raise_signal(signal.SIGHUP)):
        assert fedcomp(*TINY, *(["-m", "seed=0,1"] if grid else [])) == 128 + signal.SIGHUP
    status = status_of(tmp_path)
    assert (status.state, status.round) == ("interrupted", 2)
    assert fedcomp(*TINY) == 0
    assert "resuming after round 2" in capsys.readouterr().err


@looped("fails", [False, True])
def test_a_grid_ends_with_a_run_that_finishes_or_fails_after_a_signal(fedcomp, tmp_path: Path, fails: bool) -> None:
    def happens() -> None:
        signal.raise_signal(signal.SIGTERM)
        if fails:
            raise OSError("the disk is gone")

    with at_line(4, happens):
        assert fedcomp(*TINY, f"name=fails_{fails}", "-m", "seed=0,1") == 128 + signal.SIGTERM
    assert status_of(tmp_path / f"fails_{fails}").state == ("failed" if fails else "finished")
    assert fedcomp(*TINY, "name=wrong", "dataset=csv", "dataset.path=none.csv", "-m", "seed=0,1") == 1  # no signal came


def _run(code: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", BEGIN + code], stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stderr


def test_the_first_ctrl_c_cannot_be_swallowed() -> None:
    assert _run("exit_on_sigint('bye')\n" + SWALLOWED) == (130, "bye\n")
    assert _run("exit_on_sigint('bye'); restore_sigint()\n" + SWALLOWED) == (0, "")


SCRIPTS = ("fedcomp", "report", "replay", "status", "export", "evaluate", "clean", "diff", "sweep")


def test_ctrl_c_ends_every_script_while_it_imports() -> None:
    """Each in a process forked from one that has imported the entry points."""
    source = f"""
class Finder:
    def find_spec(self, name, path, target=None):
        if name.startswith("fedcomp."): os.kill(os.getpid(), signal.SIGINT)
for script in {SCRIPTS}:
    if not (child := os.fork()):
        sys.meta_path.insert(0, Finder())
        getattr(entry_points, script)()
    print(script, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=sys.stderr)
"""
    code, shown = _run(source)
    assert code == 0, shown
    lines = shown.splitlines()
    assert lines[1::2] == [f"{script} 130" for script in SCRIPTS]
    assert all("interrupted" in line for line in lines[::2]), shown


def _unread(script: str, *words: str) -> tuple[int, str]:
    """Exit status and standard error of a console script whose standard output nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    code = f"import sys; from fedcomp.cli import entry_points; sys.argv[1:] = {list(words)}; entry_points.{script}()"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True, env=env)
    os.close(writer)
    return done.returncode, done.stderr


@looped("words", [["experiment="], ["--help", "compressor"]])
def test_a_reader_that_leaves_is_no_error(words: list[str]) -> None:
    assert _unread("fedcomp", *words) == (141, "")


def test_a_script_whose_reader_leaves(tmp_path: Path) -> None:
    assert _unread("clean", "--help") == (141, "")
    (tmp_path / "status.json").write_text('{"state": "finished", "round": 1}')
    assert _unread("status", str(tmp_path)) == (141, "")


def test_streams_that_are_closed_are_the_null_device() -> None:
    code = "import sys; from fedcomp.cli import entry_points; sys.argv[1:] = ['--version']; entry_points.fedcomp(); "
    numbers = "sys.exit([sys.stdin.fileno(), sys.stdout.fileno(), sys.stderr.fileno()] != [0, 1, 2])"
    done = subprocess.run(["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, code + numbers])
    assert done.returncode == 0


def test_what_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert exit_status(lambda: (tmp_path / "file" / "folder").mkdir()) == 2
    assert capsys.readouterr().err == f"error: Not a directory: {tmp_path / 'file' / 'folder'}\n"
    assert exit_status(lambda: None) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / JOBS).symlink_to("/dev/full")
    assert exit_status(lambda: note_jobs(tmp_path, {tmp_path / "run": "7_0"})) == 2
    assert capsys.readouterr().err.startswith(f"error: cannot write {tmp_path / JOBS}: No space left on device; ")
    assert exit_status(lambda: Path("/dev/full").write_text("words")) == 2  # where the system names no file
    assert capsys.readouterr().err == "error: No space left on device\n"
