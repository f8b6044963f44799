"""The one training entry point: a composed config becomes a run in its folder.

Every process of a run executes `train`, so that all of them meet at the same collectives in the same order.
"""

import contextlib

from omegaconf import DictConfig

from fedcomp.config import schema
from fedcomp.distributed.context import ProcessContext
from fedcomp.records.metrics_file import Line
from fedcomp.runtime.command import reason
from fedcomp.runtime.importing import without_collection
from fedcomp.training.place import RunPlace


def train(config: DictConfig, processes: ProcessContext | None = None) -> list[Line]:
    """Run what `config` describes, resume it, or return its record at once if it is finished, without torch.

    Args:
        processes: the processes of the run; None: this one alone. All but the main process return no lines.
    Raises:
        ValueError: something in the config cannot be; one line says what, what is allowed and what to do.
        Interrupted: a signal stopped the run; its state is saved.
    """
    try:
        return _train(config, processes or ProcessContext())
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ValueError(reason(error)) from error


def _train(config: DictConfig, processes: ProcessContext) -> list[Line]:
    schema.check(config)
    place = RunPlace(config)
    if (config.wire is schema.Wire.tcp) != processes.over_tcp:
        raise ValueError("wire=tcp is a run of several programs: start fedcomp-serve, and fedcomp-join for each client")
    with place.held() if processes.is_main_process else contextlib.nullcontext() as finished:
        if processes.broadcast_object(finished is not None):
            return finished or []
        with without_collection():
            from fedcomp.training.build import build, prepare
            from fedcomp.training.more_rounds import take_over
            from fedcomp.training.run import run
            from fedcomp.training.session_forms import forms_of_run

        if processes.is_main_process:
            take_over(place)
        device = prepare(place, processes)
        with forms_of_run(config.safe, device, place.path, processes):
            return run(build(place, processes, device))
