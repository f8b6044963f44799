#!/usr/bin/env python
"""By how much each accelerated form wins on this device: rounds of a job without it beside rounds with all of them.

A form that wins nothing on any device can go, with its files (docs/architecture.md). Forms are found by running a round
of the job: those that it uses and that agree with the plain ones are left out in turn, all for a last row.
"""

import argparse
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedcomp.core.accelerated import AGREES, Verdicts, judged_by
from scripts.arguments import device_here, one_of, positive
from scripts.bench_jobs import JOBS, Job, fedcomp_side
from scripts.figures import keep


def forms_of(job: Job, device: torch.device, precision: str) -> dict[str, str]:
    """{form: what it is not used for} of the job, empty for those that agree."""
    with judged_by(Verdicts()) as verdicts:
        run = fedcomp_side(job, device, precision)
        for _ in range(3):  # a segment is captured when it is used again
            run()
    refused = {name: why for name, why in verdicts.found.items() if why != AGREES}
    used = [name.partition(": ")[0] for name, why in verdicts.found.items() if why == AGREES]
    return dict.fromkeys(used, "") | refused


def milliseconds(job: Job, device: torch.device, precision: str, repeats: int, verdicts: Verdicts) -> float:
    """Of a round, the median, after one to warm up in which forms prove themselves."""
    found = []
    with judged_by(verdicts):
        run = fedcomp_side(job, device, precision)
        for turn in range(repeats + 3):
            began = time.perf_counter()
            run()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if turn >= 3:
                found.append(1e3 * (time.perf_counter() - began) / job.rounds)
    return statistics.median(found)


def main(arguments: list[str] | None = None) -> None:
    """Print and keep a row for each form of each job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", type=one_of(JOBS), default=["J1", "J2", "J4", "GR"])
    parser.add_argument("--device", type=device_here, default="cuda")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--repeats", type=positive, default=3)
    parser.add_argument("--rounds", type=positive)
    parser.add_argument("--figures", type=Path)
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    for name in options.jobs:
        job = JOBS[name].on(device)
        job = job if options.rounds is None else replace(job, rounds=options.rounds)
        given = job, device, options.precision
        forms = forms_of(*given)
        whole = milliseconds(*given, options.repeats, Verdicts())
        rows = {form: Verdicts(found={form: "left out"}) for form, why in forms.items() if not why}
        for form, verdicts in (rows | {"all of them": Verdicts(safe=True)}).items():
            wins = milliseconds(*given, options.repeats, verdicts) / whole
            print(f"{name:4} {form} wins by {wins:.2f} on this device, {whole:.3f} ms with it", flush=True)
            keep(options.figures, job=name, form=form, wins=wins, milliseconds=whole)
        for form, why in forms.items():
            if why:
                print(f"{name:4} {form} refused: {why}", flush=True)
                keep(options.figures, job=name, form=form, refused=why)


if __name__ == "__main__":
    main()
