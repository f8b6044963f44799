"""The command line: Hydra composes the config, errors become one line, and the run starts.

Torch is imported only once there is something to train, so that `--help` and tab completion answer quickly.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from fedcomp import __version__, schema
from fedcomp.config_errors import one_line
from fedcomp.defaults import CONF


class RunFailed(Exception):
    """A run of a grid failed; its line is already on the screen, and the rest of the grid goes on."""


@hydra.main(config_path=str(CONF), config_name="train", version_base="1.3")
def _entry(config: DictConfig) -> None:
    from fedcomp.session import Interrupted
    from fedcomp.train import train

    hydra_config = HydraConfig.get()
    grid = hydra_config.mode == RunMode.MULTIRUN
    if grid and not config.quiet:
        _say(f"run {hydra_config.job.num} of the grid: {hydra_config.job.override_dirname or 'defaults'}")
    try:
        train(config)
    except Interrupted as interruption:
        _say(f"{interruption}; the same command goes on")
        raise SystemExit(128 + interruption.signal) from interruption
    except (ValueError, MemoryError) as error:
        _say(f"error: {error}")
        if not grid:
            raise SystemExit(1) from error
        raise RunFailed from error


def main() -> None:
    """Run `fedcomp` with the arguments of the process."""
    if sys.argv[1:] == ["--version"]:
        print(f"fedcomp {__version__}")
        return
    schema.register()
    _import_beside_configs(sys.argv[1:])
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors reach us as they are, instead of as Hydra prints them
    try:
        _entry()
    except RunFailed:
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        _say("interrupted before the first round")
        raise SystemExit(130) from None
    except (HydraException, OmegaConfBaseException) as error:
        _say(f"error: {one_line(error, CONF)}")
        raise SystemExit(2) from None
    except OSError as error:
        _say(f"error: {error.strerror}: {error.filename}")
        raise SystemExit(2) from None


def _import_beside_configs(arguments: list[str]) -> None:
    """Let configs in `--config-dir DIR` name Python files that lie in DIR."""
    for flag, value in zip(arguments, [*arguments[1:], ""]):
        name, _, inline = flag.partition("=")
        if name in ("--config-dir", "-cd"):
            sys.path.insert(0, str(Path(inline or value).expanduser().resolve()))


def _say(text: str) -> None:
    print(f"fedcomp: {text}", file=sys.stderr, flush=True)
