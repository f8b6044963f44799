"""A run that is built: its session, and what its user is told before and after it."""

from fedcomp.distributed.context import ProcessContext
from fedcomp.model.contract import TaskModel, tensors_of
from fedcomp.records.metrics_file import Line
from fedcomp.runtime.signals import restore_sigint
from fedcomp.simulation.async_metrics import MetricsReader, reader_for
from fedcomp.simulation.monte_carlo.study import MonteCarloStudy
from fedcomp.simulation.round_result import RoundRunner
from fedcomp.simulation.simulation import Simulation
from fedcomp.training.build import BuiltRun
from fedcomp.training.errors_of_gpu import in_one_line
from fedcomp.training.half_the_clients import run_in_memory
from fedcomp.training.hardly_learnt import chance, hardly_learnt, nothing_sent
from fedcomp.training.session import Session


def run(built: BuiltRun) -> list[Line]:
    """Start or resume the rounds. Result and errors of `train`."""
    config, processes, simulation = built.place.config, built.processes, built.simulation
    writer, recorder = built.writer, built.recorder
    restore_sigint()  # which the session hears, and saves
    alone = config.repeats == 1 and processes.size == 1
    reader = reader_for(simulation.device) if alone else MetricsReader()
    session = Session(
        built.rounds,
        writer,
        eval_every=config.eval_every,
        checkpoint_every=config.checkpoint_every,
        processes=processes,
        reader=reader,
        recorder=recorder,
        max_bits=config.max_bits,
        suspect=_own_codecs(simulation),
    )
    notes = simulation.algorithm.notes(tensors_of(simulation.model))
    for text in (*notes, *(() if recorder is None else recorder.notes)):
        writer.note(text)
    shown = built.setup.running(simulation, _split(built.rounds, processes, simulation), built.plan)
    with shown, in_one_line(simulation, config.client.batch_size):
        lines = run_in_memory(built, session)
        if lines and not isinstance(simulation.model, TaskModel):  # only the main process has lines
            slow = hardly_learnt(lines, chance(simulation.dataset), simulation.algorithm.when_slow)
            own = slow, nothing_sent(lines[-1])
            for text in (*filter(None, own), *simulation.algorithm.remarks(lines[-1])):
                writer.note(text)
        return lines


def _own_codecs(simulation: Simulation) -> str | None:
    """What a line about values that are not finite says of codecs of the user's own; None: all are fedcomp's."""
    kinds = dict.fromkeys(type(one.codec) for one in simulation.algorithm.compressors.values())
    own = [kind.__name__ for kind in kinds if not kind.__module__.startswith("fedcomp.")]
    if not own:
        return None
    return f"or correct {' and '.join(own)}, if a codec of your own makes them (fedcomp-check tries it by itself)"


def _split(rounds: RoundRunner, processes: ProcessContext, simulation: Simulation) -> str | None:
    """How the work is split, in one line for the user; None: it is not."""
    if isinstance(rounds, MonteCarloStudy) and rounds.group.size > 1:
        return f"{rounds.group.size} processes share {len(rounds.repetitions)} repetitions"
    return processes.describe_split(simulation)
