"""Keys of a config that nothing reads: misspelt ones that came in by Hydra's `+`, or from a config of a user's own.

A run's own keys are those of the schema, a part's are the parameters of what its `_target_` names. A key that another
value refers to as `${key}` is read.
"""

from __future__ import annotations

import difflib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Sequence
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

HYDRAS = ("_target_", "_partial_", "_recursive_", "_convert_", "_args_")
"""Keys of a part that Hydra reads."""


def check_run_keys(config: DictConfig, known: Sequence[str]) -> None:
    """Refuse a key of the whole config, beside `known`, that nothing reads.

    Raises:
        ValueError: naming the key, and what there is.
    """
    for key in map(str, config):
        if key in known or _is_referred_to(key, config):
            continue
        raise ValueError(f"{_unknown(key, known)}; values that other keys refer to go under vars: +vars.{key}=...")


def check_part_keys(name: str, part: Any, also: Iterable[str] = ()) -> None:
    """Refuse a key of a part, or of a part within it, that what is built from it does not take.

    Args:
        name: the part's own full name. also: keys that are read beside its parameters.
    Raises:
        ValueError: naming the key, and what there is.
    """
    if isinstance(part, DictConfig) and "_target_" in part:
        parameters = _parameters(str(part["_target_"]))
        known = None if parameters is None else [*parameters, *also]
        given = [str(key) for key in part if key not in HYDRAS]
        for key in given:
            if known is not None and key not in known:
                raise ValueError(_unknown(f"{name}.{key}", [other for other in given if other in known] or known))
    for key, inner in _inner(part):
        check_part_keys(f"{name}.{key}", inner)


def _inner(node: Any) -> list[tuple[Any, Any]]:
    """(key or place, value) of what a mapping or a list holds, with references left as they are; [] of all else."""
    if not isinstance(node, DictConfig | ListConfig) or node._is_none() or node._is_missing():
        return []
    if isinstance(node, ListConfig):
        return [(place, node._get_node(place)) for place in range(len(node))]
    return [(key, node._get_node(key)) for key in node]


def _parameters(target: str) -> list[str] | None:
    """Names of the parameters of what a `_target_` names; None: any, or that is not to be found out."""
    try:
        parameters = inspect.signature(pkgutil.resolve_name(target)).parameters.values()
    except Exception:  # whatever a module of a user's own raises: who builds the part says what is wrong with it
        return None
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return None
    return [one.name for one in parameters]


def _unknown(name: str, options: Sequence[str]) -> str:
    close = difflib.get_close_matches(name.split(".")[-1], options, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return f"there is no option '{name}'{hint}" + (f" (there are: {', '.join(sorted(options))})" if options else "")


def _is_referred_to(key: str, config: DictConfig) -> bool:
    return re.search(rf"\$\{{[^}}]*\b{re.escape(key)}\b", OmegaConf.to_yaml(config)) is not None
