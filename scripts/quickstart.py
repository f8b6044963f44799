#!/usr/bin/env python
"""`make run`: several methods on the 8x8 digits with three seeds, then a table and a picture.

Each printed line is a `fedcomp` command; finished runs are skipped.
"""

import argparse
import sys
import time
from pathlib import Path

from fedcomp.config.compose import compose
from fedcomp.reporting.build import report
from fedcomp.reporting.content import Options
from fedcomp.runtime.command import exit_status
from fedcomp.runtime.signals import Interrupted

METHODS = {
    "FedAvg, 32 bits": "compressor=dense",
    "FedAvg, 16 bits both ways": "compressor=dense compressor.precision=float16 downlink.precision=float16",
    "top 3 %": "compressor=topk compressor.fraction=0.03",
    "top 3 %, error feedback": "compressor=topk compressor.fraction=0.03 compressor.feedback=error",
    "sign up": "compressor=sign",
    "sign up and down, error feedback": (
        "compressor=sign compressor@downlink=sign compressor.feedback=error downlink.feedback=error"
    ),
}
SEEDS = (0, 1, 2)


def main() -> int:
    """Run the grid and print the report. Returns the exit status."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    return exit_status(_run)


def _run() -> int:
    from fedcomp.training.train import train

    began = time.perf_counter()
    for label, overrides in METHODS.items():
        print(f"fedcomp experiment=quickstart {overrides} seed=0,1,2 -m", flush=True)
        for seed in SEEDS:
            options = ["experiment=quickstart", "quiet=true", f"label='{label}'", f"seed={seed}"]
            try:
                train(compose([*options, *overrides.split()]))
            except Interrupted as interruption:
                print(f"{interruption}; the same command resumes it", file=sys.stderr)
                return 128 + interruption.signal
    folder = Path("outputs") / "quickstart"
    status = report(Options([folder], order=tuple(METHODS)))
    print(f"\nThe picture: {folder / 'report' / 'curves.png'}   ({time.perf_counter() - began:.0f} s)")
    return status


if __name__ == "__main__":
    sys.exit(main())
