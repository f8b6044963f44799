"""The typed schema of a run's own keys, registered with Hydra, which refuses unknown keys and wrong types."""

import os
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedcomp.config.options import check_run_keys
from fedcomp.core.fingerprint import fingerprint
from fedcomp.core.first_line import first_line
from fedcomp.core.validate import as_typed, check_count, check_folder_name, check_interval, check_one_line, check_seed
from fedcomp.reporting.pictures.figure_entry import parse as parse_figure


class Wire(Enum):
    """How messages are sent: `counted` as tensors, `packed` as bytes (slower, with the same results).

    `tcp`: as bytes between processes, which `fedcomp-serve` and `fedcomp-join` start.
    """

    counted = "counted"
    packed = "packed"
    tcp = "tcp"


class BatchNormMessages(Enum):
    """How scale and shift of normalisation layers are sent: `dense`, beside the compressed weights, or `compressed`."""

    dense = "dense"
    compressed = "compressed"


class Dtype(Enum):
    """The dtype that clients compute in; messages and state are float32 in either case."""

    float32 = "float32"
    float64 = "float64"


class Precision(Enum):
    """The precision of convolutions and matrix products in training: see `model/precision.py`."""

    fp32 = "fp32"
    tf32 = "tf32"
    bf16 = "bf16"


@dataclass
class RunConfig:
    """A run's own keys, and its parts; `conf/train.yaml` explains each, and has the defaults."""

    defaults_version: int
    name: str
    label: str | None
    case: str | None
    rounds: int
    max_bits: float | None
    repeats: int
    seed: int
    num_clients: int | None
    eval_every: int
    device: str
    dtype: Dtype
    precision: Precision
    deterministic: bool
    cuda_graphs: bool
    safe: bool
    plan: str
    threads: int | None
    chunk_size: int | None
    wire: Wire
    batchnorm_messages: BatchNormMessages
    output_root: str
    overwrite: bool
    accept_changes: bool
    checkpoint_every: int | None
    record_traffic: bool
    codec_error: bool
    pictures: bool
    vars: dict[str, Any]
    figures: list[Any]
    quiet: bool
    verbose: bool

    algorithm: Any
    client: Any
    server: Any
    compressor: Any
    downlink: Any
    dataset: Any
    partition: Any
    participation: Any
    model: Any
    tracker: Any
    launcher: Any
    sweeper: Any
    objective: Any
    network: Any
    evaluation: Any


PARTS = tuple(key.name for key in fields(RunConfig) if key.type is Any)
"""Keys that hold a part of the run with its options, chosen by name from the groups beside `conf/train.yaml`."""


READ_BESIDE = dict.fromkeys(("compressor", "downlink"), ("feedback", "estimator", "predictor"))
"""{part: options that `instantiate.build_compressor` reads in addition to the codec's}."""


@cache
def register() -> None:
    """Register the schema, once a process, under the name that the defaults list of `conf/train.yaml` uses."""
    ConfigStore.instance().store(name="schema", node=RunConfig)
    OmegaConf.register_new_resolver("fedcomp_mode", _mode, replace=True)
    OmegaConf.register_new_resolver("fedcomp_folder", os.path.expanduser, replace=True)
    OmegaConf.register_new_resolver("fedcomp_now", _now, use_cache=True, replace=True)


def _now() -> str:
    """A grid's folder: Hydra's `now` has whole seconds, in which grids that a script starts would share one."""
    return datetime.now().strftime("%Y-%m-%d_%H-%M-%S_%f")


def _mode(launcher: str, sweeper: str) -> str | None:
    """The default of `hydra.mode`: with another launcher or a search, a single run is a grid of one, too."""
    is_default = launcher.endswith(".Local") and sweeper.endswith(".Grid")
    return None if is_default else "MULTIRUN"


def plain_config(config: DictConfig, device: object) -> dict[str, Any]:
    """The resolved config as plain values, with the name of the device that the run uses."""
    plain = OmegaConf.to_container(config, resolve=True, enum_to_str=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    found = {str(key): value for key, value in plain.items()} | {"device": str(device)}
    return found | {name: with_contents(part) for name, part in found.items() if isinstance(part, dict)}


def with_contents(part: dict[str, Any]) -> dict[str, Any]:
    """A part's options with the fingerprint of the file that it reads, if it has options `path` and `contents`."""
    if "path" not in part or "contents" not in part:
        return part
    return part | {"contents": fingerprint(part["path"])}


def _check_resolves(config: DictConfig) -> None:
    """Raise ValueError for a `${...}` that stands for nothing, or is meant as text: a recorded config has none."""
    try:
        plain = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise ValueError(
            f"{error.full_key}: {first_line(error)}; ${{...}} stands for the value of another option, as ${{rounds}}, "
            "or of a variable of the environment, as ${oc.env:HOME}"
        ) from error
    assert isinstance(plain, dict)
    if named := [f"{key!s}={value}" for key, value in plain.items() if "${" in str(value)]:
        raise ValueError(f"{named[0]} has ${{ in a text, which would be a reference where the run is read: drop it")


def check(config: RunConfig | DictConfig) -> None:
    """Raise ValueError for unknown keys of the run, and for invalid values."""
    if isinstance(config, DictConfig):
        check_run_keys(config, [key.name for key in fields(RunConfig)])
        _check_resolves(config)
    for name in PARTS:
        part = getattr(config, name)
        if not isinstance(part, DictConfig):
            choice = {"downlink": "compressor@downlink"}.get(name, name)
            word = part if isinstance(part, str) and part else "<name>"
            raise ValueError(f"{name}={as_typed(part)} is no part of a run: a part is chosen with {choice}={word}")
    for name in ("rounds", "repeats", "eval_every"):
        check_count(name, getattr(config, name))
    for name in ("num_clients", "threads", "chunk_size", "checkpoint_every"):
        check_count(name, getattr(config, name), or_null=True)
    check_interval("max_bits", config.max_bits, "(0, inf)", "a number of bits", or_null=True)
    check_seed("seed", config.seed)
    if config.quiet and config.verbose:
        raise ValueError("quiet=true and verbose=true exclude each other: give one")
    if config.label is not None and config.label and not config.label.strip():
        raise ValueError(
            f"label={config.label!r} is blank, but must name a method: leave it out for a name of its options"
        )
    for name in ("label", "case", "output_root"):
        if getattr(config, name) is not None:
            check_one_line(name, getattr(config, name))
    check_folder_name("name", config.name)
    if not config.output_root.strip():
        raise ValueError("output_root is empty, but must be a folder: give output_root=. for the current one")
    for entry in config.figures:
        parse_figure(OmegaConf.to_container(entry, resolve=True) if OmegaConf.is_config(entry) else entry)
