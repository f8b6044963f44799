"""A processor that claims what it cannot do: AMX is excluded before torch is loaded, or the run is refused."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedcomp.records.provenance import read_provenance
from fedcomp.runtime import bfloat16
from fedcomp.runtime.bfloat16 import LIMIT, NOT_TRIED, UNCLEAR, VARIABLE, WORKS, check_bfloat16

CLAIMS = "model name : Any\nflags : fpu amx_bf16 amx_tile\n\nmodel name : of another\n"
DIES = """
import os, signal
open("trials", "a").write(".")
if os.environ.get("ONEDNN_MAX_CPU_ISA") != "AVX512_CORE_FP16":
    os.kill(os.getpid(), signal.SIGILL)
"""
COMMAND = """
import os, sys, types
from fedcomp.runtime import bfloat16
bfloat16.CPUINFO, bfloat16.PROGRAM = bfloat16.Path("cpuinfo"), os.environ["PROGRAM"]
def build(*_):
    print("torch" in sys.modules, os.environ.get(bfloat16.VARIABLE))
    sys.exit()
sys.modules["fedcomp.config.instantiate"] = types.SimpleNamespace(build=build)
sys.modules["fedcomp.training.train"] = types.SimpleNamespace(train=None)
from fedcomp.cli.main import main
main()
"""
RUN = ("precision=bf16", "rounds=1", "num_clients=2", "device=cpu")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a machine where bfloat16 products kill a process, unless AMX is excluded."""
    (tmp_path / "cpuinfo").write_text(CLAIMS)
    monkeypatch.setattr(bfloat16, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(bfloat16, "PROGRAM", DIES)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _trials(machine: Path) -> int:
    return (machine / "trials").stat().st_size if (machine / "trials").exists() else 0


def test_the_command_line_excludes_amx_before_torch_is_loaded(machine: Path) -> None:
    environment = os.environ | {"PROGRAM": DIES, "PYTHONPATH": str(Path(bfloat16.__file__).parents[2])}
    command = [sys.executable, "-c", COMMAND, "precision=bf16", "device=cpu", f"output_root={machine}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == f"False {LIMIT}\n", done.stderr


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (RUN, ["run"]),
        (("-m", "precision=fp32,bf16", "device=cpu"), ["grid", "run"]),
        ((), []),
        (("-m", "precision=fp32", "device=cpu"), []),
        (("precision=bf16", "device=cuda"), []),
    ],
)
def test_whether_it_asks(fedcomp, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], asked: list[str]) -> None:
    """For a grid before its first run, which may load torch for another precision; and for the run that computes so."""
    seen: list[str] = []
    monkeypatch.setattr("fedcomp.cli.main.prepare_bfloat16", lambda: seen.append("run"))
    monkeypatch.setattr(bfloat16, "prepare_bfloat16", lambda: seen.append("grid"))
    monkeypatch.setitem(sys.modules, "fedcomp.training.train", SimpleNamespace(train=lambda *_: [{"round": 1}]))
    fedcomp(*words, "quiet=true")
    assert seen == asked


def test_with_torch_loaded_the_run_is_refused_in_one_line(fedcomp, machine: Path, capsys) -> None:
    assert fedcomp(*RUN) == 1
    line = "precision=bf16: bfloat16 products kill a process on this machine (SIGILL): set ONEDNN_MAX_CPU_ISA="
    remedy = "AVX512_CORE_FP16 in the environment before Python starts, or take precision=fp32"
    assert capsys.readouterr().err == f"fedcomp: error: {line}{remedy}\n"
    assert VARIABLE not in os.environ


def test_what_was_found_is_kept_and_belongs_to_the_provenance(fedcomp, machine: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv(VARIABLE, LIMIT)
    assert fedcomp(*RUN) == 0
    (folder,) = {path.parent for path in machine.rglob("provenance.json")}
    provenance = read_provenance(folder)
    found = f"tried with {VARIABLE}={LIMIT}"
    assert [one.bfloat16 for one in provenance.sessions] == [found]
    assert f"bfloat16 products: {found}" in capsys.readouterr().err
    assert f"bfloat16 products: {found}" in (folder / "run.log").read_text()
    assert _trials(machine) == 1
    for again in range(2):  # another setting is another question, asked once
        monkeypatch.delenv(VARIABLE, raising=False)
        with pytest.raises(ValueError, match="SIGILL"):
            check_bfloat16()
        assert _trials(machine) == 2, again
    monkeypatch.setattr(bfloat16.importlib.metadata, "version", lambda _: "another torch")
    with pytest.raises(ValueError, match="SIGILL"):
        check_bfloat16()
    assert _trials(machine) == 3


def test_a_cache_that_cannot_be_written_is_no_hindrance(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    monkeypatch.setenv(VARIABLE, LIMIT)
    for trials in (1, 2):
        assert check_bfloat16() == f"{WORKS} with {VARIABLE}={LIMIT}"
        assert _trials(machine) == trials


def test_a_trial_that_fails_says_nothing_about_the_processor(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bfloat16, "PROGRAM", "raise SystemExit(1)")
    assert check_bfloat16() == UNCLEAR
    monkeypatch.setattr(bfloat16, "PROGRAM", "")
    assert check_bfloat16() == WORKS


@pytest.mark.parametrize("cpuinfo", ["model name : Any\nflags : fpu avx2 avx512f\n", "Processor : an ARM\n", None])
def test_a_processor_without_such_instructions_is_not_doubted(machine: Path, cpuinfo: str | None) -> None:
    (machine / "cpuinfo").unlink() if cpuinfo is None else (machine / "cpuinfo").write_text(cpuinfo)
    assert check_bfloat16() == NOT_TRIED
    assert _trials(machine) == 0


def test_the_trial_is_a_program_that_works() -> None:
    """Here: `tests/__init__.py` has excluded what does not."""
    exec(bfloat16.PROGRAM, {})
