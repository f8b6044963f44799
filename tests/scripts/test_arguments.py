"""Measuring scripts answer a job or a device that is not there in one line, before anything is measured."""

import sys

import pytest

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
)
from tests.looped import looped

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


@looped("script", NAMED)
def test_an_unknown_job_is_named(capsys: pytest.CaptureFixture[str], script) -> None:
    cpu = ("--device", "cpu") if script in MEASURED_ON else ()
    assert "J99" in _refused(capsys, script, "J99", *cpu)


@looped("script", MEASURED_ON)
def test_a_gpu_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str], script) -> None:
    jobs = ("J1",) if script is gpu_equality else ()
    shown = _refused(capsys, script, *jobs, "--device", "cuda")
    assert "argument --device: device=cuda" in shown
    assert "use device=cpu or auto" in shown
