"""Progress: lines where there is no terminal, a bar where there is one or a notebook, nothing when quiet, and cheap."""

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import TextIO

import pytest

from fedcomp.display import progress as module
from fedcomp.display.progress import Progress
from fedcomp.display.screens import Lines, NotebookBar, in_notebook, screen_for
from tests.looped import looped

RECORD = {"round": 0, "test/accuracy": 0.1, "bits/total": 0}


class Clock:
    """A clock that moves only when a test sets `now`."""

    now = 100.0
    num_reads = 0

    def __call__(self) -> float:
        self.num_reads += 1
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "perf_counter", clock)
    return clock


def run(verbosity: str, clock: Clock, first: int = 0, rounds: int = 20, seconds: float = 0.01) -> list[str]:
    """What a run of `rounds` rounds with an evaluation every second one prints."""
    stream = io.StringIO()
    with Progress(verbosity, stream) as progress:
        progress.start(first, rounds)
        progress.evaluated({**RECORD, "round": first})
        for round in range(first + 1, rounds + 1):
            clock.now += seconds
            progress.advance(round)
            if round % 2 == 0:
                progress.evaluated({"round": round, "test/accuracy": 0.5, "bits/total": 1_240_000})
        progress.note("done")
    return stream.getvalue().splitlines()


def test_lines_for_a_fast_run_are_the_first_and_the_last(clock: Clock) -> None:
    first, last = "round  0/20  accuracy 10.00 %  0 bit", "round 20/20  accuracy 50.00 %  1.24 Mbit"
    assert run("normal", clock) == [first, last, "done"]


def test_verbose_prints_each_evaluation_and_quiet_nothing(clock: Clock) -> None:
    assert len(run("verbose", clock)) == 12
    assert run("quiet", clock) == []


def test_time_left_follows_this_sessions_speed(clock: Clock) -> None:
    lines = run("normal", clock, first=10, rounds=20, seconds=4.0)
    assert lines[1:3] == ["round 12/20  32.0 s left", "round 12/20  accuracy 50.00 %  1.24 Mbit  32.0 s left"]


def test_an_evaluation_that_reads_as_the_one_before_is_shown(clock: Clock) -> None:
    assert run("normal", clock, seconds=1.0)[-2] == "round 20/20  accuracy 50.00 %  1.24 Mbit"


@looped("after", [6.0, 0.1])
def test_a_round_is_shown_once_when_a_save_was_long(clock: Clock, after: float) -> None:
    """With its evaluation, or, where that came too soon after another, when a line is due."""
    stream = io.StringIO()
    with Progress("normal", stream) as progress:
        progress.start(0, 20)
        for round in (10, 11):
            clock.now += after
            progress.evaluated({**RECORD, "round": round})
        assert len(stream.getvalue().splitlines()) == (2 if after > 1 else 1)
        clock.now += 6.0
        progress.advance(11)
        assert [line[:11] for line in stream.getvalue().splitlines()] == ["round 10/20", "round 11/20"]


def test_the_first_round_which_compiles_is_no_pace(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress("normal", stream) as progress:
        progress.start(5, 9)
        for round, seconds in ((6, 600.0), (7, 6.0), (8, 8.0)):
            clock.now += seconds
            progress.advance(round)
    assert stream.getvalue().splitlines() == ["round 6/9", "round 7/9  12.0 s left", "round 8/9  7.00 s left"]


def test_rounds_without_evaluations_print_at_most_every_five_seconds(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress("normal", stream) as progress:
        progress.start(0, 1000)
        for round in range(1, 1001):
            clock.now += 0.011
            progress.advance(round)
    assert len(stream.getvalue().splitlines()) == 2


def test_an_unshown_evaluation_is_shown_at_the_end(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress("normal", stream)
    progress.start(0, 100)
    progress.evaluated(RECORD)
    clock.now += 0.1
    for round in (1, 2, 3, 4):
        clock.now += 0.1
        progress.advance(round)
    progress.evaluated({"round": 4, "test/loss": 1.5, "bits/total": 8})
    progress.stop()
    progress.stop()
    assert stream.getvalue().splitlines()[1:] == ["round   4/100  test loss 1.50  8 bit"]


def test_a_round_reads_the_clock_once_and_draws_only_when_a_redraw_is_due(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress("normal", stream)
    progress.start(0, 1000)
    before = clock.num_reads
    for round in range(1000):
        progress.advance(round)
    assert clock.num_reads == before + 1000
    assert stream.getvalue() == ""
    clock.now += Lines.seconds
    progress.advance(1000)
    assert stream.getvalue().startswith("round 1000/1000")


def interrupted_run(terminal: TextIO) -> None:
    with Progress("verbose", terminal) as progress:
        progress.start(0, 10)
        progress.evaluated({"round": 5, "test/accuracy": 0.5, "bits/total": 1_240_000})
        progress.note("a [note]")
        raise KeyboardInterrupt


def read_all(reading: int) -> str:
    """What a closed terminal showed; the system hands it out in pieces and then says EIO."""
    pieces = []
    with contextlib.suppress(OSError):
        while piece := os.read(reading, 4096):
            pieces.append(piece)
    os.close(reading)
    return b"".join(pieces).decode()


def test_bar_on_a_terminal_gives_the_cursor_back_on_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    reading, writing = pty.openpty()
    with os.fdopen(writing, "w") as terminal, pytest.raises(KeyboardInterrupt):
        interrupted_run(terminal)
    shown = read_all(reading)
    assert "5/10" in shown
    assert "1.24 Mbit" in shown
    assert "a [note]" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


@looped(
    "columns, line",
    [
        (70, "╸      round 523/1000  accuracy 97.31 %  1.24 Mbit  1 m 01 s left"),
        (40, "round 523/1000  accuracy 97.31 %  1.24 …"),
    ],
)
def test_a_narrow_terminal_cuts_the_bar_and_then_the_end_of_the_line(monkeypatch, columns: int, line: str) -> None:
    for name, value in (("TERM", "xterm-256color"), ("COLUMNS", str(columns)), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    reading, writing = pty.openpty()
    with os.fdopen(writing, "w") as terminal:
        bar = screen_for(terminal)
        bar.start(1000)
        bar.draw(523, 1000, "accuracy 97.31 %  1.24 Mbit", "1 m 01 s left")
        bar.stop()
    shown = re.sub(r"\x1b\[[\d?]*\w", "", read_all(reading))
    assert f"{line}\r" in shown


def test_stop_before_start_shows_nothing() -> None:
    stream = io.StringIO()
    Progress("normal", stream).stop()
    assert stream.getvalue() == ""


@pytest.mark.parametrize("verbosity", ["normal", "verbose"])
@pytest.mark.parametrize("terminal", [False, True])
def test_a_screen_that_cannot_be_written_to_is_given_up(verbosity: str, terminal: bool, clock: Clock) -> None:
    """`| tee log` dies of the same Ctrl-C; a full disk."""

    class Full(io.StringIO):
        num_writes = 0

        def write(self, text: str) -> int:
            self.num_writes += 1
            raise OSError(28, "No space left on device")

        def isatty(self) -> bool:
            return terminal

    full = Full()
    with Progress(verbosity, full) as progress:
        progress.note("a note")
        progress.start(0, 20)
        for round in range(1, 21):
            clock.now += 10
            progress.advance(round)
            progress.evaluated({**RECORD, "round": round})
        progress.note("another")
    assert full.num_writes == 1


def test_a_process_whose_screen_is_full_ends_well() -> None:
    """The rest in the stream's buffer would otherwise make it status 120."""
    code = (
        "from fedcomp.display.console import say; from fedcomp.display.progress import Progress\n"
        "for _ in range(2): Progress().note('words'); say('words')"
    )
    with open("/dev/full", "w") as full:
        assert subprocess.run([sys.executable, "-c", code], stderr=full).returncode == 0


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The HTML of each output; a redrawn one replaces what it showed."""
    outputs: list[str] = []

    class Handle:
        def __init__(self, place: int) -> None:
            self.place = place

        def update(self, content: str) -> None:
            outputs[self.place] = content

    def display(content: str, display_id: bool) -> Handle:
        outputs.append(content)
        return Handle(len(outputs) - 1)

    ipython, module = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    module.HTML, module.display = str, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return outputs


def test_one_output_is_redrawn(shown: list[str]) -> None:
    assert in_notebook()
    bar = screen_for(sys.stderr)
    assert isinstance(bar, NotebookBar)
    bar.start(10)
    bar.draw(4, 10, "accuracy < 90 %", "1 m 01 s left")
    (text,) = shown
    assert 'value="4" max="10"' in text
    assert "round 4/10" in text
    assert "accuracy &lt; 90 %  1 m 01 s left" in text


def test_a_file_gets_lines_also_in_a_notebook(shown: list[str], tmp_path) -> None:
    with (tmp_path / "log").open("w") as stream:
        assert isinstance(screen_for(stream), Lines)


def test_a_plain_process_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not in_notebook()
    assert isinstance(screen_for(sys.stderr), Lines)
