"""The peak memory of a run, beside the estimate of the check before it.

    python scripts/bench_memory.py num_clients=10000 dataset=mnist model=lenet5 compressor=topk ...

runs `fedcomp` with these arguments in this process and prints one line of JSON, in GiB: `state`, `needed` (the
estimate, without the process's memory before the run), `before` and `peak` (resident set), and `ratio` (needed + before
to peak).
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import fedcomp.config.factory
from fedcomp.cli.main import main
from fedcomp.memory.check import GIB, needed
from fedcomp.simulation.simulation import Simulation

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident(field: str) -> float:
    """VmRSS or VmHWM in GiB."""
    (line,) = [line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024 / GIB


def measure() -> dict[str, float]:
    """Run the command line."""
    found: dict[str, float] = {}
    check = fedcomp.config.factory.check_memory

    def noted(simulation: Simulation, *options: Any) -> Any:
        need = needed(simulation, *options)
        found.update(state=need.state / GIB, needed=need.total / GIB, before=resident("VmRSS"))
        RESET.write_text("5")  # resets the peak
        return check(simulation, *options)

    fedcomp.config.factory.check_memory = noted
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
    found["peak"] = resident("VmHWM")
    found["ratio"] = (found["needed"] + found["before"]) / found["peak"]
    return {name: round(value, 3) for name, value in found.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="OPTION=VALUE", help="options of the run")
    sys.argv[1:] = ["quiet=true", "pictures=false", *parser.parse_args().words]
    print(json.dumps(measure()))
