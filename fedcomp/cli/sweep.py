"""`fedcomp-sweep FILE`: checks a sweep of W&B against fedcomp's options, and hands it to `wandb sweep`."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fedcomp.config.compose import compose
from fedcomp.runtime.command import command, exit_status
from fedcomp.tracking.sweep_file import read_sweep

EPILOG = """\
examples:
  fedcomp-sweep conf/wandb/topk_grid.yaml --check    only check the file
  fedcomp-sweep conf/wandb/topk_grid.yaml            and start the sweep at W&B, which prints `wandb agent ...`
  wandb agent ENTITY/PROJECT/SWEEP                   runs it: on as many machines as you like

exit status: that of `wandb sweep`, 0 checked, 2 a wrong file (one line on standard error)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Check the file; start the sweep unless `--check`. Returns the exit status."""
    parser = command(
        "fedcomp-sweep", "Check the YAML of a W&B sweep over fedcomp's options, and start the sweep.", EPILOG
    )
    parser.add_argument("file", type=Path, help="the sweep's YAML")
    parser.add_argument("--check", action="store_true", help="only check")
    given, others = parser.parse_known_args(argv)
    return exit_status(lambda: _sweep(given.file, given.check, others))


def _sweep(file: Path, check: bool, others: Sequence[str]) -> int:
    sweep = read_sweep(file)
    compose([*sweep.fixed, *sweep.first])  # an unknown option is told before a wrong command
    sweep.check_command()
    if check:
        print(f"{sweep.name}: its first run is fedcomp {' '.join([*sweep.fixed, *sweep.first])}")
        return 0
    return subprocess.run([sys.executable, "-m", "wandb", "sweep", *others, str(file)]).returncode
