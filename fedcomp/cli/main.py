"""`fedcomp`: Hydra composes the config and starts the run or the grid; errors become one line.

Torch is imported only for training, so that `--help` and tab completion are fast.
"""

import contextlib
import math
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace

import hydra
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_automatic_config_search_path
from hydra.conf import HydraConf
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fedcomp.cli.arguments import Arguments, parse
from fedcomp.cli.completion import complete
from fedcomp.cli.help import show_experiments, show_help
from fedcomp.config import schema
from fedcomp.config.compose import find_own_code
from fedcomp.config.errors.hydra_errors import error_message
from fedcomp.config.options import check_part_keys
from fedcomp.config.overrides import check_choices, leave_to_the_runs, quote
from fedcomp.core.folders import CONF
from fedcomp.core.version import __version__
from fedcomp.display.console import say
from fedcomp.distributed.context import ProcessContext, say_once, torchrun_env
from fedcomp.launcher.contract import RunFailed
from fedcomp.runtime.bfloat16 import prepare_bfloat16
from fedcomp.runtime.command import WRONG_ARGUMENT, reason
from fedcomp.runtime.device_name import device_without_torch
from fedcomp.runtime.signals import SIGINT_STATUS
from fedcomp.sweeper.contract import SweepFailed

CHOOSES_MODE = re.compile(r"[+~]*(experiment|launcher|sweeper|hydra)\b")
"""Overrides by which a command may be a grid without `-m`."""
NO_OPTION = re.compile(r"there is no option '(([\w]+)\.[\w.]+)'")
"""The error message for an option that a part does not have."""


def _run(config: DictConfig) -> float | tuple[float, ...]:
    """One run. Returns its objective, which a sweeper reads."""
    bfloat16 = config.precision.name == "bf16" or config.model.get("dtype") == "bfloat16"
    if bfloat16 and device_without_torch(config.device) == "cpu":
        prepare_bfloat16()
    from fedcomp.config.instantiate import build
    from fedcomp.objective.objectives import ObjectiveFailed, value_of
    from fedcomp.runtime.signals import Interrupted
    from fedcomp.training.train import train

    hydra_config = HydraConfig.get()
    grid = hydra_config.mode == RunMode.MULTIRUN
    if grid and not config.quiet:
        say(f"run {hydra_config.job.num} of the grid: {hydra_config.job.override_dirname or 'defaults'}")
    with _processes() as processes:
        try:
            check_part_keys("objective", config.objective)
            objective = build(config.objective)
            return value_of(objective, train(config, processes))
        except ObjectiveFailed as error:  # the run is finished; a grid's launcher says it of all its runs
            if not grid:
                processes.say(f"the run is finished, but {error}")
            return math.nan
        except Interrupted as interruption:
            processes.say(f"{interruption}; the same command resumes it")
            raise SystemExit(128 + interruption.signal) from interruption
        except (ValueError, MemoryError) as error:
            text = f"{error}{_whose_option(str(error), hydra_config)}"
            processes.say(f"error: {text}")
            if not grid:
                raise SystemExit(1) from error
            raise RunFailed(text) from error


def _whose_option(error: str, hydra_config: HydraConf) -> str:
    """What is added to an error of an unknown option that an experiment sets and the command does not; else ""."""
    found, experiment = NO_OPTION.match(error), hydra_config.runtime.choices.get("experiment")
    if found is None or not experiment:
        return ""
    option, part = found.groups()
    if any(re.match(rf"[+]*{re.escape(option)}=", word) for word in hydra_config.overrides.task):
        return ""
    return (
        f": experiment={experiment} sets it, for its own choice of {part}; keep that choice, or give the experiment's "
        "other options instead of the experiment"
    )


def _processes() -> contextlib.AbstractContextManager[ProcessContext]:
    """The processes of this run; of several, the process group is closed at the end of the block."""
    place = torchrun_env()
    if place is None:
        return contextlib.nullcontext(ProcessContext())
    from fedcomp.distributed.torch_processes import init_processes

    return init_processes(place)


_run_or_grid = hydra.main(config_path=str(CONF), config_name="train", version_base="1.3")(_run)


def _single_run(overrides: Sequence[str]) -> None:
    """As `_run_or_grid`, which composes the config twice, the first time to learn that this is no grid."""
    path = create_automatic_config_search_path(None, __name__, str(CONF))
    try:
        Hydra.create_main_hydra2("fedcomp", path).run("train", _run, list(overrides))
    finally:
        GlobalHydra.instance().clear()


def main() -> None:
    """Run `fedcomp` with the process's arguments."""
    try:
        given = parse(sys.argv[1:])
        _execute(replace(given, overrides=tuple(map(quote, given.overrides))))
    except (RunFailed, SweepFailed):
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        say_once("interrupted before the first round")
        raise SystemExit(SIGINT_STATUS) from None
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        say_once(f"error: {reason(error)}")
        raise SystemExit(WRONG_ARGUMENT) from None


def _execute(given: Arguments) -> None:
    """What the arguments ask for: a run, a grid, help, a list, or tab completion."""
    sys.argv[1:] = given.argv
    if given.has("--version"):
        print(f"fedcomp {__version__}")
        return
    arguments = given.overrides
    own = find_own_code(given.config_folder, "--config-dir")
    if "experiment=" in arguments or "experiment=list" in arguments:
        show_experiments([CONF, *own])
        return
    if given.has("--shell-completion") and complete(arguments):
        return
    check_choices(arguments)
    schema.register()
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra raises errors instead of printing them
    try:
        if given.has("--help"):
            show_help(arguments, own)
        elif given.has("--multirun"):
            sys.argv[1:] = replace(given, overrides=tuple(leave_to_the_runs(arguments))).argv
            _run_or_grid()
        elif given.flags or any(map(CHOOSES_MODE.match, arguments)):
            _run_or_grid()
        else:
            _single_run(arguments)
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        raise ValueError(error_message(error, arguments, own)) from error
