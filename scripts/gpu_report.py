"""The first half hour on a GPU: tests, equality, waits, times and exact resume, as one page and one file of JSON.

    python -m scripts.gpu_report [--out gpu-report] [--only WORD ...] [--minutes 30]
    python -m scripts.gpu_report --device cpu --small      the same on a CPU, in small form

Each part is a process of its own with a time limit. After a part that fails or runs out of time the next one follows,
and `report.md` and `report.json` are written anew after each, so whatever was found is kept if the machine goes away.
The output of each part is in `<part>.log`. Needs nothing but Python itself; what a part needs is that part's concern:
without pytest, for instance, the tests fail and the other parts run.
"""

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.arguments import device_here  # noqa: E402
from scripts.figures import read  # noqa: E402

SMALL_LIMIT = 300.0
"""Seconds of a part in its small form, which on a quiet machine takes 20."""
TAIL = 60
"""Lines of a part's output that the page shows."""
MACHINE = (
    "import subprocess, torch; from importlib import metadata\n"
    "print('torch', torch.__version__, 'CUDA', torch.version.cuda, 'GPUs', torch.cuda.device_count())\n"
    "if torch.cuda.is_available(): subprocess.run(['nvidia-smi'], check=False)\n"
    "for name in ('numpy', 'triton', 'numba', 'hydra-core', 'pytest'):\n"
    "    try: print(name, metadata.version(name))\n"
    "    except metadata.PackageNotFoundError: print(name, 'is not installed')\n"
)
GPU_TESTS = (
    "tests/simulation/cuda_graphs",
    "tests/model/batched/test_streams.py",
    "tests/simulation/test_side_stream.py",
    "tests/random/test_draws_gpu.py",
    "tests/test_gpu.py",
)


@dataclass(frozen=True)
class Part:
    """One process.

    Attributes:
        name: of its log. command: after `python`. limit: seconds. figures: whether it keeps lines of JSON.
    """

    name: str
    command: tuple[str, ...]
    limit: float
    figures: bool = True


@dataclass(frozen=True)
class Result:
    """What came of a part.

    Attributes:
        status: passed, failed or out of time, or not run: no time was left. seconds: it took.
        figures: the lines that it kept. tail: the end of its output.
    """

    part: str
    command: str
    status: str
    seconds: float = 0.0
    limit: float = 0.0
    figures: list[dict[str, Any]] = field(default_factory=list)
    tail: str = ""


def parts(device: str, small: bool) -> list[Part]:
    """What is run, in order: first what shows whether the rest can be trusted."""
    if small:
        resume = ("-m", "scripts.gpu_resume", "--device", device, "--rounds", "60")
        return [
            Part("machine", ("-c", MACHINE), SMALL_LIMIT, figures=False),
            Part("tests", _tests(0, "tests/test_hidden_gpu.py"), SMALL_LIMIT, figures=False),
            Part("equality", _equality(device, "fp32", "--rounds", "1", "J1"), SMALL_LIMIT),
            Part("rounds", _bench(device, "fp32", 1, "--rounds", "1", "J1"), SMALL_LIMIT),
            Part("forms", _script("bench_forms", device, "--repeats", "1", "--rounds", "1", "J1"), SMALL_LIMIT),
            Part("convolutions", _script("bench_convolutions", device, "J2"), SMALL_LIMIT),
            Part("lstms", _script("bench_lstm", device, "--clients", "2", "--batch", "2"), SMALL_LIMIT),
            Part("mrc", _script("bench_mrc", device, "--repeats", "1", "--dim", "2000"), SMALL_LIMIT),
            Part("codecs", _script("bench_codecs", device, "--quick", "sign"), SMALL_LIMIT),
            Part("resume", resume, SMALL_LIMIT, figures=False),
        ]
    lenet = ("dataset=mnist", "model=lenet5", "client.batch_size=64", "client.steps=10")
    return [
        Part("machine", ("-c", MACHINE), 60, figures=False),
        Part("tests", _tests(6, *GPU_TESTS), 480, figures=False),
        Part("equality", _equality(device, "fp32", "J1", "J2", "J4", "PFL", "GR", "PR"), 270),
        Part("equality-tf32", _equality(device, "tf32", "J3", "J4"), 150),
        Part("rounds", _bench(device, "fp32", 5, "J1", "J2", "J4", "PFL"), 240),
        Part("rounds-tf32", _bench(device, "tf32", 3, "J3", "J4", "GR", "PR"), 180),
        Part("rounds-bf16", _bench(device, "bf16", 3, "J3", "J4"), 120),
        Part("forms", _script("bench_forms", device, "J1", "J2", "J4", "GR"), 240),
        Part("convolutions", _script("bench_convolutions", device), 90),
        Part("lstms", _script("bench_lstm", device), 60),
        Part("mrc", _script("bench_mrc", device, "--repeats", "3"), 90),
        Part("codecs", _script("bench_codecs", device, "--repeats", "3"), 240),
        Part("resume", ("-m", "scripts.gpu_resume", "--device", device, "--rounds", "200"), 120, figures=False),
        Part("resume-lenet", ("-m", "scripts.gpu_resume", "--device", device, *lenet), 180, figures=False),
    ]


def _tests(processes: int, *files: str) -> tuple[str, ...]:
    return ("-m", "pytest", "-q", "-n", str(processes), "-p", "no:cacheprovider", "--durations=10", *files)


def _equality(device: str, precision: str, *rest: str) -> tuple[str, ...]:
    return ("-m", "scripts.gpu_equality", "--device", device, "--precision", precision, *rest)


def _bench(device: str, precision: str, repeats: int, *rest: str) -> tuple[str, ...]:
    return _script("bench", device, "--precision", precision, "--repeats", str(repeats), *rest)


def _script(name: str, device: str, *rest: str) -> tuple[str, ...]:
    return (f"scripts/{name}.py", "--device", device, *rest)


def run(part: Part, out: Path, limit: float) -> Result:
    """Run one part for at most `limit` seconds; whatever it started ends with it."""
    kept, log = out / f"{part.name}.jsonl", out / f"{part.name}.log"
    kept.unlink(missing_ok=True)
    command = [sys.executable, *part.command, *(["--figures", str(kept)] if part.figures else [])]
    search = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": search, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = "passed" if process.wait(limit) == 0 else f"failed with status {process.returncode}"
        except subprocess.TimeoutExpired:
            status = "out of time"
        finally:
            _end(process)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-TAIL:])
    return Result(part.name, _shown(part), status, time.monotonic() - began, limit, read(kept), tail)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End all processes of the part's session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _shown(part: Part) -> str:
    return "python " + " ".join("..." if "\n" in word else word for word in part.command)


def page(results: list[Result], title: str) -> str:
    """The page: a table of all parts, then the figures and the end of each part's output."""
    lines = [f"# {title}", "", "| part | status | seconds | limit |", "| --- | --- | ---: | ---: |"]
    lines += [f"| {one.part} | {one.status} | {one.seconds:.0f} | {one.limit:.0f} |" for one in results]
    for one in results:
        lines += ["", f"## {one.part}: {one.status}", "", f"`{one.command}`", ""]
        lines += [f"- {_words(figures)}" for figures in one.figures]
        lines += ["", "```", one.tail.replace("```", "'''"), "```"] if one.tail else []
    return "\n".join(lines) + "\n"


def _words(figures: dict[str, Any]) -> str:
    texts = ((name, f"{value:.4g}" if isinstance(value, float) else value) for name, value in figures.items())
    return ", ".join(f"{name} {text}" for name, text in texts)


def write(results: list[Result], out: Path) -> None:
    """Write both files anew, each in one step."""
    title = f"fedcomp on {platform.node()}, {time.strftime('%Y-%m-%d %H:%M %Z')}"
    content = {"title": title, "python": sys.version, "parts": [asdict(one) for one in results]}
    for name, text in (("report.json", json.dumps(content, indent=1)), ("report.md", page(results, title))):
        temporary = out / f".{name}"
        temporary.write_text(text)
        temporary.replace(out / name)


def report(chosen: list[Part], out: Path, seconds: float) -> list[Result]:
    """Run the parts one after another in at most so many seconds; what came of each."""
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    results: list[Result] = []
    for part in chosen:
        left = end - time.monotonic()
        if left > 0:
            results.append(run(part, out, min(part.limit, left)))
        else:
            results.append(Result(part.name, _shown(part), "not run: no time was left"))
        print(f"{part.name:16s} {results[-1].status}, {results[-1].seconds:.0f} s", flush=True)
        write(results, out)
    return results


def main(arguments: list[str] | None = None) -> int:
    """Run all parts; 1 unless all passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=device_here, default="cuda", help="cpu or cuda")
    parser.add_argument("--out", type=Path, default=Path("gpu-report"), help="folder of the report and the logs")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="parts whose names begin with one of these")
    parser.add_argument("--minutes", type=float, default=30.0, help="for all parts together")
    parser.add_argument("--small", action="store_true", help="every part with the least work that shows that it runs")
    options = parser.parse_args(arguments)
    chosen = parts(options.device, options.small)
    if options.only:
        names = [part.name for part in chosen]
        chosen = [part for part in chosen if part.name.startswith(tuple(options.only))]
        if not chosen:
            parser.error(f"argument --only: no part begins with {' or '.join(options.only)}: {', '.join(names)}")
    out = options.out.resolve()
    results = report(chosen, out, 60 * options.minutes)
    print(out / "report.md")
    return int(any(one.status != "passed" for one in results))


if __name__ == "__main__":
    sys.exit(main())
