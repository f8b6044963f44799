"""Builds a part of a run from its node in a composed config; errors are one line."""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict

from fedcomp.config import schema
from fedcomp.config.errors.unresolved_target import unresolved
from fedcomp.config.options import check_part_keys, check_types, not_given, wrong_number
from fedcomp.core import choices
from fedcomp.core.first_line import first_line
from fedcomp.core.folders import CONF
from fedcomp.core.ranges import CheckedOptions
from fedcomp.core.validate import OptionError, as_typed, options_of
from fedcomp.provenance.code import OWN_MODULE
from fedcomp.records.run_folder import VERSION

if TYPE_CHECKING:
    from fedcomp.compressor import Compressor


def check_keys(config: DictConfig) -> None:
    """Raise ValueError for an unknown option of any part, including parts that this run does not build."""
    for name in schema.PARTS:
        try:
            check_part_keys(name, config[name], schema.READ_BESIDE.get(name, ()))
        except ValueError as error:
            raise ValueError(f"{error}{_merged_into(name, config[name], str(error))}") from error


def _merged_into(name: str, node: DictConfig, error: str) -> str:
    """What is added to `error`, that there is no such option, where the group's default choice has it.

    A node `{_target_: mine.Half}` that is given in the place of a choice has all options of the default one.
    """
    chosen = next((one for group, one in choices.default_choices().items() if group.rpartition("@")[2] == name), None)
    target, folder = str(node.get("_target_")), choices.FOLDERS.get(name, name)
    if chosen is None or target.startswith("fedcomp."):
        return ""
    default = choices.options(CONF / folder / f"{chosen}.yaml").keys()
    if not default <= set(map(str, node)) or not any(f"'{name}.{key}'" in error for key in default):
        return ""
    own = target.split(".")[0]
    return (
        f"; it is one of {name}={chosen}, with whose options `defaults: [{chosen}, _self_]` in a YAML and {name}="
        f"{{_target_: {target}, ...}} in a command begin: write a YAML without these defaults, {folder}/{own}.yaml, "
        f"and choose {name}={own}"
    )


def build(node: Any) -> Any:
    """Instantiate a config node.

    Raises ValueError: an option has the wrong type, or the part refuses it; the part's own message, without Hydra's.
    """
    if isinstance(node, DictConfig) and "." not in str(node.get("_target_", ".")):
        raise ValueError(
            f"{node._get_full_key('_target_')}={node['_target_']} names no class of a file: write FILE.CLASS"
        )
    check_types(node)
    options = node.copy() if isinstance(node, DictConfig) and VERSION in node else node
    if options is not node:
        with open_dict(options):
            del options[VERSION]
    try:
        return instantiate(options, _convert_="all")
    except (InstantiationException, SystemExit) as error:
        raise build_error(error, node) from error


def build_model_factory(node: DictConfig) -> Any:
    """What makes the model, of the sizes that the data have. Raises ValueError: as `build`, or it makes it at once."""
    if not node.get("_partial_"):
        raise ValueError(
            f"the YAML of model {node.get('_target_')} needs the line `_partial_: true`: the run makes the network, "
            "once it knows the data's sizes and for each seed"
        )
    return build(node)


def build_compressor(node: DictConfig, group: str = "compressor") -> Compressor:
    """Build a `Compressor` of the codec's options and of those beside them: `feedback`, `estimator`, `predictor`.

    Each of these three is a name, or a node with a `_target_`. They lie beside the codec's options, not around them:
    the hashes of finished runs and overrides such as `compressor.fraction=0.2` depend on it, and `check_part_keys`
    reads the signature of the group's `_target_`, which is the codec's.
    """
    from fedcomp.compressor import Codec, Compressor  # here, since torch takes seconds to import
    from fedcomp.compressor.contract import Estimator, Feedback
    from fedcomp.compressor.predictors import Predictor

    kinds = {"feedback": Feedback, "estimator": Estimator, "predictor": Predictor}
    others = {name: node[name] for name in schema.READ_BESIDE[group] if name in node}
    options = {name: value for name, value in node.items() if name not in others}
    with options_of(group):
        parts = {
            name: build_part(part, kinds[name]) if isinstance(part, DictConfig) else as_typed(part)
            for name, part in others.items()
        }
        named = OmegaConf.create({group: options})[group]  # within its group, so that types are named in full
        codec = build(named)
        check_kind(named, codec, Codec)
        return replace(Compressor.of(codec, **parts), group=group)


def build_part(node: DictConfig, kind: type) -> Any:
    """As `build`, of a part that must inherit from `kind`. Raises ValueError: as `build` and `check_kind`."""
    part = build(node)
    check_kind(node, part, kind)
    return part


def check_kind(node: DictConfig, part: Any, kind: type) -> None:
    """Raise ValueError unless the part that `node` describes inherits from `kind`, whose defaults the engine reads.

    One with options that are checked must be a frozen dataclass.
    """
    if "_target_" not in node:
        raise ValueError(
            f"the YAML of {str(node._get_full_key('')).rstrip('.') or kind.__name__} has no _target_, which names the "
            "class: write `_target_: FILE.CLASS` there"
        )
    if not isinstance(part, kind) and node.get("_partial_"):
        raise ValueError(f"the YAML of {node['_target_']} must not have `_partial_: true`: all that it needs is there")
    if not isinstance(part, kind):
        raise ValueError(
            f"{node.get('_target_')} made a {type(part).__name__}, which is no {kind.__name__}: let its class inherit "
            f"from {kind.__name__} (from {kind.__module__} import {kind.__name__})"
        )
    if isinstance(part, CheckedOptions) and not (is_dataclass(part) and type(part).__dataclass_params__.frozen):
        raise ValueError(
            f"{node.get('_target_')} is no frozen dataclass: write @dataclass(frozen=True) above the class; its "
            "options are fields, and nothing is kept on self"
        )


def build_error(error: BaseException, node: DictConfig) -> ValueError:
    """One line: the innermost ValueError's message, or an option that is not a number, or Python's own reason."""
    inner: BaseException = error
    while inner.__cause__ is not None:
        inner = inner.__cause__
    if isinstance(inner, ValueError):
        return (OptionError if isinstance(inner, OptionError) else ValueError)(str(inner))
    if isinstance(inner, SystemExit):
        return ValueError(f"{node.get('_target_')} or a module that it imports calls sys.exit({inner.code!r})")
    line = (wrong_number(node) or not_given(node)) if isinstance(inner, TypeError) else None
    if isinstance(inner, (ImportError, AttributeError)):
        line = unresolved(node)
    reason = first_line(inner)
    what = node.get("path") if node.get("_target_") == OWN_MODULE else node.get("_target_")
    return ValueError(line or f"cannot build {what}: {type(inner).__name__}: {reason}")
