#!/usr/bin/env python
"""Milliseconds of each convolution of a job's network, forwards and backwards, in each form, and how far from float64.

Errors are norms relative to the float64 result's: of the output, of the input's gradient where it is needed, and of the
weights' gradients. On a GPU a form is timed within a CUDA graph, as rounds replay it.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedcomp.model.build import build
from fedcomp.model.precision import PRECISIONS, set_tf32
from fedcomp.model.tunable import TunableModel, TunableOperation, Workload
from fedcomp.random.keys import Key
from fedcomp.runtime.process_settings import set_determinism
from fedcomp.simulation.autotune.timing_cache import seconds_of
from fedcomp.simulation.cuda_graphs.capture import CudaGraphs
from scripts.arguments import device_here, one_of
from scripts.bench_jobs import JOBS
from scripts.figures import keep


def errors(operation: TunableOperation, form: str, exact: tuple[torch.Tensor, ...]) -> list[float]:
    """Of the output and of each gradient, relative to the norm of the exact one."""
    found = operation.run(form)
    return [float((one.double() - other).norm() / other.norm()) for one, other in zip(found, exact, strict=True)]


def measure(operation: TunableOperation, device: torch.device) -> dict[str, tuple[float, list[float]]]:
    """{form: milliseconds and errors} of the forms that this device has."""
    assert operation.exact is not None
    exact, found = operation.exact(), {}
    for form in operation.candidates:
        work = partial(operation.run, form)
        try:
            far = errors(operation, form, exact)
            graph = CudaGraphs(device, form).capture(work, ()) if device.type == "cuda" else work
            found[form] = 1e3 * seconds_of(graph, device), far
        except RuntimeError as error:
            print(f"{form}: {error}", file=sys.stderr)
    return found


def main(arguments: list[str] | None = None) -> None:
    """Print and keep a row for each form of each convolution."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", type=one_of(JOBS), default=["J2", "J4", "J3", "PFL"])
    parser.add_argument("--device", type=device_here, default="cuda")
    parser.add_argument("--precision", default="fp32", choices=PRECISIONS)
    parser.add_argument("--figures", type=Path, help="file to append figures to, as lines of JSON")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    set_tf32(options.precision, device)
    set_determinism(True, device)
    for name in options.jobs:
        job = JOBS[name]
        model = build(job.factory, Key(("bench",)), job.shape, 10, "classification", precision=options.precision)
        assert isinstance(model, TunableModel)
        for layer, operation in enumerate(
            model.tunable_operations(Workload(job.clients, job.batch, job.shape, device))
        ):
            print(f"{name} convolution {layer}: weights {operation.about['weight']} on {operation.about['input']}")
            for form, (milliseconds, far) in measure(operation, device).items():
                print(f"  {form:9} {milliseconds:8.3f} ms, errors {' '.join(f'{one:.1e}' for one in far)}", flush=True)
                keep(options.figures, job=name, layer=layer, form=form, milliseconds=milliseconds, errors=far)


if __name__ == "__main__":
    main()
