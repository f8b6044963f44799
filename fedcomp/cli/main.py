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
from pathlib import Path

import hydra
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_automatic_config_search_path
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fedcomp.cli.arguments import Arguments, parse
from fedcomp.cli.completion import INSTALL, UNINSTALL, completions, parse_line
from fedcomp.cli.help import help_text
from fedcomp.config import schema
from fedcomp.config.comments import choices
from fedcomp.config.compose import check_own_names, compose_with_hydra
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
            processes.say(f"error: {error}")
            if not grid:
                raise SystemExit(1) from error
            raise RunFailed(str(error)) from error


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


def _show_help(given: Arguments) -> None:
    """Print the help for these arguments, of the config that a run of them would have."""
    groups = [word for word in given.overrides if "=" not in word and not word.startswith("~")]
    words, grid_values = _first_values([word for word in given.overrides if word not in groups])
    print(help_text(compose_with_hydra(words, given.config_folders), groups, words))
    if grid_values:
        print(f"\nOf several values the first is shown: {' '.join(grid_values)}")


def _first_values(words: list[str]) -> tuple[list[str], list[str]]:
    """The overrides with the first of several values each, and those that had several; search ranges are left out."""
    single, first_of_several = [], []
    for word, override in zip(words, OverridesParser.create().parse_overrides(words)):
        if not override.is_sweep_override():
            single.append(word)
        elif not override.is_interval_sweep():
            first_of_several.append(f"{override.get_key_element()}={next(iter(override.sweep_string_iterator()))}")
    return [*single, *first_of_several], first_of_several


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
    arguments, own = given.overrides, given.config_folders
    for folder in own:
        if not folder.is_dir():
            raise ValueError(f"there is no folder {folder}, which --config-dir names")
        if not any(next(folder.rglob(end), None) for end in ("*.yaml", "*.py")):
            raise ValueError(f"{folder}, which --config-dir names, holds no config: put GROUP/NAME.yaml there")
        check_own_names(folder)
    if "experiment=" in arguments or "experiment=list" in arguments:
        found = choices("experiment", [CONF, *own])
        width = max(map(len, found))
        print("\n".join(f"{name:<{width}}  {comment}".rstrip() for name, comment in found.items()))
        return
    if given.has("--shell-completion") and _complete(arguments):
        return
    check_choices(arguments)
    schema.register()
    sys.path[:0] = [str(folder) for folder in own]  # configs in DIR may name Python files in DIR
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # such as mine.py of model.path=mine.Net
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra raises errors instead of printing them
    try:
        if given.has("--help"):
            _show_help(given)
        elif given.has("--multirun"):
            sys.argv[1:] = replace(given, overrides=tuple(leave_to_the_runs(arguments))).argv
            _run_or_grid()
        elif given.flags or any(map(CHOOSES_MODE.match, arguments)):
            _run_or_grid()
        else:
            _single_run(arguments)
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        raise ValueError(error_message(error, CONF, arguments, own)) from error


def _complete(words: Sequence[str]) -> bool:
    """Print the script that installs completion, or the completions of a line; False if Hydra must do it."""
    if not sys.argv[0].endswith(".py"):  # Hydra installs it for `python scripts/train.py`
        for act, scripts in (("install", INSTALL), ("uninstall", UNINSTALL)):
            for shell, script in scripts.items():
                if f"{act}={shell}" in words:
                    print(script)
                    return True
    if not any(word.startswith("query=") for word in words):
        return False
    line = parse_line(os.environ.get("COMP_LINE", ""))
    candidates = completions(line)
    if candidates is None:  # which gives the same answer to every shell
        sys.argv = ["query=bash" if word.startswith("query=") else word for word in sys.argv]
        os.environ["COMP_LINE"] = line.for_hydra
        sys.argv[1:1] = [f"--config-dir={folder}" for folder in line.folders]
        return False
    print("\n".join(candidates))
    return True
