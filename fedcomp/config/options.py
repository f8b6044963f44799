"""Checks of a part's options against the parameters of what its `_target_` names: unknown keys and wrong types.

The options of parts have no types in the schema: `off`, `no` and `abc` are strings there, and every string is true to
Python. The keys of the run itself are checked against the schema. A key that another value refers to as `${key}` is
known.
"""

import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin

from omegaconf import DictConfig, ListConfig, OmegaConf

from fedcomp.core.ranges import field_types, types_in
from fedcomp.core.validate import as_typed, did_you_mean, reads_as_number
from fedcomp.records.run_folder import VERSION

HYDRA_KEYS = ("_target_", "_partial_", "_recursive_", "_convert_", "_args_")
"""Keys of a part that Hydra reads."""
RENAMED = {
    "normalisation": "batchnorm_messages",
    "algorithm.normalisation": "algorithm.batchnorm_training",
    "algorithm.downlink": "algorithm.sends",
    "algorithm.repeats": "algorithm.passes",
    **{f"{group}.seed": f"{group}.seed_cost" for group in ("algorithm", "compressor", "downlink")},
}
"""{an option's name until this version: its name now}, for the error that refuses the old one."""
FROM_THE_RUN = {"client", "server", "uplink", "downlink", "input_shape", "num_outputs"}
"""Parameters of algorithms and models that a `_partial_` part gets of the run."""
LISTS = (Sequence, list, tuple)
ENTRIES: dict[Any, tuple[Any, str, str]] = {
    int: (int, " of whole numbers", "[32,16]"),
    float: ((int, float), " of numbers", "[0.5,1]"),
}
"""For the annotated type of a list's entries: types of its values, description, example."""


def check_run_keys(config: DictConfig, known: Sequence[str]) -> None:
    """Refuse a key of the run's config that is neither in `known` nor referred to by another value.

    Raises ValueError: naming the key and the known keys.
    """
    for key in map(str, config):
        if key in known or re.search(rf"\$\{{[^}}]*\b{re.escape(key)}\b", OmegaConf.to_yaml(config)):
            continue
        raise ValueError(f"{_unknown(key, known)}; values that other keys refer to go under vars: +vars.{key}=...")


def check_part_keys(name: str, part: Any, also: Iterable[str] = ()) -> None:
    """Refuse an option of a part, or of a part inside it, that is not a parameter of its `_target_`.

    Args:
        name: the part's full name. also: further known keys.
    Raises:
        ValueError: naming the option and the known options.
    """
    if isinstance(part, DictConfig) and "_target_" in part:
        parameters = parameters_of(str(part["_target_"]))
        any_key = parameters is None or any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        known = [*(parameters or {}), *also]
        given = [str(key) for key in part if key not in (*HYDRA_KEYS, VERSION)]
        for key in given:
            if not any_key and key not in known:
                options = [one for one in known if not (part.get("_partial_") and one in FROM_THE_RUN)]
                raise ValueError(_unknown(f"{name}.{key}", options) + _no_field(str(part["_target_"]), key))
    for key, child in _children(part):
        check_part_keys(f"{name}.{key}", child)


def check_types(node: Any) -> None:
    """Check each option of a part, and of parts inside it, against the annotation of its parameter.

    Raises:
        ValueError: a bool option is neither true nor false, a number is a string of digits, or a list is not a list or
            has entries of another type.
    """
    for name, value, wanted, or_null in _options(node):
        if wanted == {bool} and not isinstance(value, bool):
            raise ValueError(f"{name}={as_typed(value)} must be true or false{or_null}")
        if _number(wanted) and isinstance(value, str) and reads_as_number(bare := value.strip("'\" ")):
            raise ValueError(
                f"{name}={value!r} is a string, but must be {_number(wanted)}{or_null}: write {name}={bare}, without "
                "quotes"
            )
        lists = [one for one in wanted if (get_origin(one) or one) in LISTS]
        if lists and len(wanted) == 1:
            _check_list(name, value, next(iter(get_args(lists[0])), None), or_null)


def wrong_number(node: Any) -> str | None:
    """The error message for the first option that must be a number and is not one; None if there is none."""
    for name, value, wanted, or_null in _options(node):
        if _number(wanted) and not isinstance(value, (int, float)):
            return f"{name}={as_typed(value)} must be {_number(wanted)}{or_null}"
    return None


def _number(wanted: set[Any]) -> str:
    """What an option must be of which only numbers are allowed; "" if others are."""
    if not wanted or not wanted <= {int, float}:
        return ""
    return "a number" if float in wanted else "a whole number"


def _check_list(name: str, value: Any, entry_type: Any, or_null: str) -> None:
    types, description, example = ENTRIES.get(entry_type, (object, "", "[a,b]"))
    entries = list(value) if isinstance(value, (ListConfig, list, tuple)) else None
    if entries is None and isinstance(value, types):
        example = f"[{value}]"
    if entries is None or any(isinstance(one, bool) or not isinstance(one, types) for one in entries):
        raise ValueError(f"{name}={as_typed(value)} must be a list{description}{or_null}, such as {name}={example}")


def _options(node: Any) -> Iterator[tuple[str, Any, set[Any], str]]:
    """(full name, value, annotated types, ", or null" if that is one) of options, except nulls that are allowed."""
    if not isinstance(node, DictConfig) or "_target_" not in node:
        return
    types = _types(str(node["_target_"]))
    for key, value in node.items():
        yield from _options(value)
        wanted = types.get(str(key), set())
        if wanted and not (value is None and type(None) in wanted):
            or_null = ", or null" if type(None) in wanted else ""
            yield str(node._get_full_key(key)), value, wanted - {type(None)}, or_null


def not_given(node: DictConfig) -> str | None:
    """The error message for parameters without a default that a part's YAML does not give; None if there are none."""
    target, partial = str(node["_target_"]), bool(node.get("_partial_"))
    required = [
        name
        for name, one in (parameters_of(target) or {}).items()
        if one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL) and name not in node
    ]
    wanted = [name for name in required if not (partial and name in FROM_THE_RUN)]
    if not wanted:
        return None
    if not partial and FROM_THE_RUN & set(wanted):
        remedy = "write `_partial_: true` there, and what belongs to the run is given by it"
    else:
        remedy = f"write {', '.join(f'`{name}: ...`' for name in wanted)} there"
    return f"{target} needs {', '.join(wanted)}, which its YAML does not give: {remedy}"


def parameters_of(target: str) -> Mapping[str, inspect.Parameter] | None:
    """The parameters of what a `_target_` names; None: it cannot be imported or inspected."""
    try:
        return inspect.signature(pkgutil.resolve_name(target)).parameters
    except (Exception, SystemExit):  # a user's module may raise anything: building the part reports it
        return None


def _types(target: str) -> dict[str, set[Any]]:
    """{parameter: its annotated types} of what a `_target_` names; without an annotation a switch's default says it."""
    parameters = parameters_of(target)
    if not parameters:
        return {}
    part = pkgutil.resolve_name(target)
    annotations = {
        name: bool if one.annotation is one.empty and isinstance(one.default, bool) else one.annotation
        for name, one in parameters.items()
    }
    hints = types_in(annotations, part.__module__) | (field_types(part) if is_dataclass(part) else {})
    return {
        name: set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint} for name, hint in hints.items()
    }


def _children(node: Any) -> list[tuple[Any, Any]]:
    """(key or index, value) of a mapping or a list, without resolving interpolations; [] for anything else."""
    if not isinstance(node, DictConfig | ListConfig) or node._is_none() or node._is_missing():
        return []
    if isinstance(node, ListConfig):
        return [(index, node._get_node(index)) for index in range(len(node))]
    return [(key, node._get_node(key)) for key in node]


def renamed(name: str) -> str | None:
    """The error message for an option that has another name now; None if there is no such option."""
    return f"there is no option '{name}': it is called {RENAMED[name]} now" if name in RENAMED else None


def _no_field(target: str, name: str) -> str:
    """What is added to the error that there is no such option, if the class has it, but not as a field."""
    part = pkgutil.resolve_name(target)
    if not isinstance(part, type) or name not in vars(part).keys() | inspect.get_annotations(part).keys():
        return ""
    return (
        f"; an option of {target} is a field with a type, as in `{name}: float = ...`, and @dataclass(frozen=True) "
        "stands above the class"
    )


def _unknown(name: str, options: Sequence[str]) -> str:
    if name in RENAMED and RENAMED[name].split(".")[-1] in options:
        return str(renamed(name))
    hint = did_you_mean(name.split(".")[-1], options)
    return f"there is no option '{name}'{hint}" + (f" (there are: {', '.join(sorted(options))})" if options else "")
