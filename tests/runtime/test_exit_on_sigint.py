"""Ctrl-C before a session hears it: one line, and 130, also where an import would swallow the exception."""

import subprocess
import sys

import pytest

BEGIN = "import os, signal, sys; from fedcomp.cli import entry_points; from fedcomp.runtime import exit_on_sigint\n"
SWALLOWED = "try: os.kill(os.getpid(), signal.SIGINT)\nexcept BaseException: pass\n"


def _run(code: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", BEGIN + code], stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stderr


def test_the_first_ctrl_c_cannot_be_swallowed() -> None:
    assert _run("exit_on_sigint.exit_on_sigint('bye')\n" + SWALLOWED) == (130, "bye\n")
    assert _run("exit_on_sigint.exit_on_sigint('bye'); exit_on_sigint.restore_sigint()\n" + SWALLOWED) == (0, "")


@pytest.mark.parametrize("script", ["fedcomp", "report", "status"])
def test_every_script_hears_it_while_it_imports(script: str) -> None:
    module = "fedcomp.cli.main" if script == "fedcomp" else f"fedcomp.{script}.__main__"
    source = (
        "class Finder:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        f"sys.meta_path.insert(0, Finder()); entry_points.{script}()"
    )
    code, shown = _run(source)
    assert code == 130
    assert shown.count("\n") == 1
    assert "interrupted" in shown
