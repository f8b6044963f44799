"""Scripts answer a job, a device or a file that is not there in one line, before anything is measured."""

import sys
from pathlib import Path

import numpy as np
import pytest

from fedcomp.runtime.signals import Interrupted
from scripts import (
    bench,
    bench_adapters,
    bench_algorithms,
    bench_codecs,
    bench_convolutions,
    bench_forms,
    bench_lstm,
    bench_mrc,
    gpu_equality,
    gpu_report,
    gpu_resume,
    limits,
    quickstart,
    record_updates,
    reference,
)
from scripts.reproduce import __main__ as reproduce
from tests.looped import looped
from tests.raising import raising

NAMED = (bench, bench_adapters, bench_algorithms, bench_codecs, bench_convolutions, bench_forms, gpu_equality)
MEASURED_ON = (
    *(bench, bench_codecs, bench_convolutions, bench_forms, bench_lstm, bench_mrc),
    *(gpu_equality, gpu_report, gpu_resume),
)


def _refused(capsys: pytest.CaptureFixture[str], script, *arguments: str) -> str:
    """The last line that a script ends with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [script.__name__, *arguments])
        with pytest.raises(SystemExit) as end:
            script.main()
    assert end.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


@looped(
    "script, arguments, says",
    [
        (record_updates, "--out u client.lrr=3", "error: there is no option 'client.lrr'"),
        (record_updates, "--out u rounds=0", "error: rounds=0 must be a whole number, 1 or more"),
        (limits, "none.npy", "error: No such file or directory: none.npy"),
        (limits, "other.npy", "error: other.npy is (2, 3), but must be updates of LeNet-5, [M, 61706]"),
        (reference, "compare none.json", "error: No such file or directory: none.json"),
        (reference, "record no/where.json", "error: there is no folder no, in which where.json shall lie"),
        (reference, "record r.json --only zzz", "error: --only zzz: no case has that in its name, such as algorithm="),
    ],
)
def test_what_cannot_be_done_is_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script,
    arguments: str,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("other.npy", np.ones((2, 3), "float32"))
    monkeypatch.setattr(sys, "argv", [script.__name__, *arguments.split()])
    try:
        status = script.main()
    except SystemExit as end:
        status = end.code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(says)
    assert (status, [one.name for one in tmp_path.iterdir()]) == (2, ["other.npy"])


@looped(
    "raised, status, says",
    [
        (
            Interrupted(2, "interrupted after round 3 of 60, state saved"),
            130,
            "interrupted after round 3 of 60, state sav",
        ),
        (ValueError("outputs/x is being written by process 7"), 2, "error: outputs/x is being written by process 7"),
    ],
)
def test_make_run_ends_with_one_line(monkeypatch, capsys, raised: Exception, status: int, says: str) -> None:
    monkeypatch.setattr("fedcomp.training.train.train", raising(raised))
    monkeypatch.setattr(sys, "argv", ["quickstart"])
    assert quickstart.main() == status
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(says)


def test_a_case_that_is_gone_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    lines = [{"round": 1, "bits/total": 8}]
    monkeypatch.setattr(reference, "run", lambda name, words: {"metrics": lines, "tensors": []})
    cases = {"a": (), "b": ()}
    monkeypatch.setattr(reference, "cases", lambda: dict(cases))
    monkeypatch.setattr(sys, "argv", ["reference", "record", str(tmp_path / "r.json")])
    assert reference.main() == 0
    del cases["a"]
    sys.argv[1] = "compare"
    assert reference.main() == 1
    assert capsys.readouterr().out.splitlines()[1:] == ["a: is gone", "1 cases compared, 1 differ"]


@looped("script", NAMED)
def test_an_unknown_job_is_named(capsys: pytest.CaptureFixture[str], script) -> None:
    cpu = ("--device", "cpu") if script in MEASURED_ON else ()
    assert "J99" in _refused(capsys, script, "J99", *cpu)


@looped(
    "script, arguments, says",
    [
        (gpu_report, "--device cpu --only zzz", "argument --only: no part begins with zzz: machine, tests, equality"),
        (reproduce, "rand_k --budget abc", "argument --budget: invalid hours value: 'abc'"),
        (reproduce, "rand_k --budget 0", "argument --budget: 0 must be above 0 hours"),
        (reproduce, "rand_k --at-once 1.5", "argument --at-once: 1.5 must be a whole number, 1 or more"),
        (reproduce, "rand_k --at-once 0", "argument --at-once: 0 must be a whole number, 1 or more"),
        (reproduce, "fedprox", "argument paper: invalid choice: 'fedprox'"),
        (reproduce, "rand_k --scale large", "argument --scale: invalid choice: 'large'"),
        (reproduce, f"rand_k --outputs {__file__}/a", f"argument --outputs: {__file__} is no folder"),
        (bench, "J1 --repeats 0", "argument --repeats: 0 must be a whole number, 1 or more"),
        (quickstart, "seed=4", "unrecognized arguments: seed=4"),
    ],
)
def test_what_nothing_has_is_refused(capsys: pytest.CaptureFixture[str], script, arguments: str, says: str) -> None:
    assert says in _refused(capsys, script, *arguments.split())


@looped("script", MEASURED_ON)
def test_a_gpu_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str], script) -> None:
    jobs = ("J1",) if script is gpu_equality else ()
    shown = _refused(capsys, script, *jobs, "--device", "cuda")
    assert "argument --device: device=cuda" in shown
    assert "use device=cpu or auto" in shown
