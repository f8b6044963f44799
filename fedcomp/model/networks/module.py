"""A network of the user's own by its dotted name: `model=module model.path=mine.Net`."""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn


def own(
    input_shape: Sequence[int],
    num_outputs: int,
    task: str,
    target_shape: Sequence[int] = (),
    vocab_size: int | None = None,
    path: str | None = None,
    options: Mapping[str, Any] | None = None,
    padding_token: int | None = None,
) -> nn.Module:
    """What the class or function `path` makes of `options` and of those other arguments that its signature names.

    Args:
        path: MODULE.NAME; the module lies in the current folder, in one that `--config-dir` names, or is installed.
    Raises:
        ValueError: no path, nothing of that name, or arguments that it does not take.
    """
    make, options = _found(path), dict(options or {})
    data = {"input_shape": tuple(input_shape), "num_outputs": num_outputs, "task": task}
    data |= {"target_shape": tuple(target_shape), "vocab_size": vocab_size, "padding_token": padding_token}
    accepted = inspect.signature(make).parameters
    given = {name: value for name, value in data.items() if name in accepted} | options
    any_name = any(one.kind is one.VAR_KEYWORD for one in accepted.values())
    unknown = [f"model.options.{name}" for name in options if name not in accepted and not any_name]
    if unknown:
        own_names = ", ".join(name for name in accepted if name not in data) or "none"
        raise ValueError(f"{path} has no argument for {', '.join(unknown)} (its own arguments: {own_names})")
    missing = [name for name, one in accepted.items() if _must_be_given(one) and name not in given]
    if missing:
        remedy = " ".join(f"model.options.{name}=..." for name in missing)
        raise ValueError(f"{path} needs {', '.join(missing)}: give {remedy}")
    return make(**given)


def _must_be_given(parameter: inspect.Parameter) -> bool:
    variable = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    return parameter.default is parameter.empty and not variable


def _found(path: str | None) -> Callable[..., nn.Module]:
    if not isinstance(path, str) or "." not in path:
        raise ValueError(
            f"model.path is {path!r}, but must name a class or function, such as mine.Net for Net in mine.py"
        )
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # something that the user's module imports
        raise ValueError(
            f"model.path={path}: there is no module {error.name}: put {error.name}.py into the current folder, or give "
            "its folder as --config-dir"
        ) from None
    make: Any = getattr(module, name, None)
    takes_arguments = inspect.isclass(make) or inspect.isfunction(make)
    if not takes_arguments:
        raise ValueError(f"model.path={path}: module {module_name} has no class or function {name}")
    return make
