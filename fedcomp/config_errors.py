"""Hydra's and OmegaConf's errors in one line, with what would have been allowed."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

UNKNOWN_KEY = re.compile(r"Could not override '([^']+)'")
UNKNOWN_CHOICE = re.compile(
    r"Could not find '([^']+)'\s+Available options in '([^']+)':\s+(.*?)\s*(?:Config search|$)", re.S
)
UNKNOWN_GROUP = re.compile(r"Could not override '([^']+)'\.\s+(?:No match|Did you mean)", re.S)


def one_line(error: Exception, conf: Path) -> str:
    """What was wrong, what is allowed and, where one is close, what was probably meant."""
    text = str(error)
    choice = UNKNOWN_CHOICE.search(text)
    if choice:
        wanted, group, options = choice.group(1), choice.group(2), choice.group(3).split()
        return f"{group}={wanted.removeprefix(group + '/')} is unknown{_near(wanted.split('/')[-1], options)}"
    key = UNKNOWN_KEY.search(text)
    cause = error.__cause__
    if key and (
        "is not in struct" in f"{text} {cause}" or "not in '" in f"{text} {cause}" or UNKNOWN_GROUP.search(text)
    ):
        name = key.group(1).split("@")[-1]
        return f"there is no option '{name}'{_near(name.split('.')[-1], _siblings(name, conf))}"
    parts = [text] if cause is None or str(cause) in text else [text, str(cause)]
    lines = [line.strip() for part in parts for line in part.split("\n")]
    kept = [line for line in lines if line and not line.startswith(("full_key", "object_type", "Set the environment"))]
    return "; ".join(kept[:3])


def _near(name: str, options: list[str]) -> str:
    close = difflib.get_close_matches(name, options, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return f"{hint} (there are: {', '.join(options)})" if options else hint


def _siblings(name: str, conf: Path) -> list[str]:
    """Keys beside `name` in the default config."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf), version_base="1.3"):
        node = OmegaConf.select(compose("train"), name.rpartition(".")[0]) if "." in name else compose("train")
    return sorted(str(key) for key in node if not str(key).startswith("_")) if isinstance(node, DictConfig) else []
