"""A run whose GPU has no memory left in its first round tries it with half as many clients at once."""

import gc
import math
from dataclasses import replace
from pathlib import Path

import torch

from fedcomp.config.factory import build_runner
from fedcomp.records.metrics_file import Line
from fedcomp.records.run_folder import CHECKPOINT
from fedcomp.simulation.autotune.plan import FILE, Plan
from fedcomp.simulation.fused_loop import loop_runner_on
from fedcomp.training.build import BuiltRun
from fedcomp.training.session import Session


def run_in_memory(built: BuiltRun, session: Session) -> list[Line]:
    """What the session returns, with as many clients at once as memory holds."""
    while True:
        try:
            return session.run()
        except torch.OutOfMemoryError:
            smaller = _halved(built, session)
            if smaller is None:
                raise
        session = smaller
        gc.collect()  # the tensors that the error's traceback held
        torch.cuda.empty_cache()


def _halved(built: BuiltRun, session: Session) -> Session | None:
    """The session from its beginning with half as many clients at once, which the run's plan keeps.

    None: there is one client at once, the user gave their number, or the record has begun: it would not go on so.
    """
    simulation, config, folder = built.simulation, built.place.config, built.place.path
    begun = any(folder.glob(f"{Path(CHECKPOINT).stem}*")) or any(line["round"] for line in session.writer.lines())
    given = config.chunk_size is not None or built.processes.size > 1 or built.recorder is not None
    path = folder / FILE
    if begun or given or not path.exists():
        return None
    before = min(Plan.read(path).chunk_size, math.ceil(simulation.expected_cohort))
    if before == 1:
        return None
    plan = replace(Plan.read(path), chunk_size=before // 2)
    plan.write(path)
    session.writer.note(f"out of memory with {before} clients at once: trying it with {plan.chunk_size}")
    runner = loop_runner_on(simulation.device, config.cuda_graphs)
    return replace(session, simulation=build_runner(replace(plan.applied_to(simulation), loop_runner=runner), config))
