"""Hydra composes each choice of groups once for all tests of a process; a config is a copy with its own values applied.

Reading, merging and ordering the files of a choice is most of what composing costs: a file is read once, what all
choices begin with (Hydra's own config) is merged once, and a choice is ordered and merged once. The rest is Hydra's:
overrides are parsed, each once, and applied and recorded as always.
"""

import copy
import itertools
import pickle
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra._internal import config_loader_impl, defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.defaults_list import DefaultsList, Overrides
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from fedcomp.core.folders import CONF

UNCHANGED = {("pkg", "hydra.conf"), ("file", str(CONF)), ("structured", "")}
"""Sources of configs that no test changes."""

_read = ConfigRepository.load_config
_choices = defaults_list._create_interpolation_map
_list = config_loader_impl.create_defaults_list
_embed = ConfigLoaderImpl._load_single_config
_merge = ConfigLoaderImpl._compose_config_from_defaults_list
_parse = OverridesParser.parse_rule
_copy = DictConfig.__deepcopy__
_kept: dict[Hashable, bytes] = {}
_lists: dict[Hashable, DefaultsList] = {}
_files: dict[Hashable, Any] = {}


def _sources(repo: Any) -> tuple[Hashable, ...]:
    """Where this repository's configs come from; of a folder of one's own, which files it has as they are now."""
    return tuple(_source(source.scheme(), source.path) for source in repo.get_sources())


def _source(scheme: str, path: str) -> tuple[Hashable, ...]:
    if (scheme, path) in UNCHANGED or scheme != "file":
        return scheme, path
    found = ((str(file), file.stat()) for file in sorted(Path(path).rglob("*.yaml")))
    return scheme, path, *((name, stat.st_mtime_ns, stat.st_size, stat.st_ino) for name, stat in found)


def _once(make: Any, *key: Hashable) -> Any:
    """What `make` returns, made once for a key; each caller has a copy."""
    if key not in _kept:
        _kept[key] = pickle.dumps(make())
    return pickle.loads(_kept[key])


def _quick_read(repo: ConfigRepository, config_path: str) -> Any:
    """One file."""
    source = repo._find_object_source(config_path, ObjectType.CONFIG)
    if source is None:
        return _read(repo, config_path)
    key = _source(source.scheme(), source.path), source.provider, config_path
    if key not in _files:
        _files[key] = _read(repo, config_path)
    return copy.copy(_files[key])  # another content is put into it, but nothing into its content


def _quick_parse(parser: OverridesParser, text: str, rule: str) -> Any:
    """An override or a value; what is none is parsed anew."""
    return _once(lambda: _parse(parser, text, rule), "parsed", text, rule)


def _quick_choices(overrides: Any, defaults_list: list[Any], self_added: bool) -> Any:
    """What names in a defaults list may stand for: only for lists with such names."""
    if any(each.is_interpolation() for each in defaults_list if not each.is_self()):
        return _choices(overrides, defaults_list, self_added)
    return None


def _quick_list(repo: Any, overrides_list: list[Any], **options: Any) -> DefaultsList:
    """The files of a choice of groups in their order, and the values that are applied after them."""
    given = Overrides(repo=repo, overrides_list=overrides_list)
    choices = given.override_choices, given.append_group_defaults, given.deletions, options
    key = _sources(repo), repr(choices)
    if options["skip_missing"]:
        return _list(repo=repo, overrides_list=overrides_list, **options)
    if key not in _lists:
        _lists[key] = _list(repo=repo, overrides_list=overrides_list, **options)
    return replace(_lists[key], config_overrides=given.config_overrides)


def _quick_embed(loader: ConfigLoaderImpl, default: Any, repo: Any) -> Any:
    """One file, at its place in a config; or Hydra's own files, merged."""
    sources = _sources(repo)
    if isinstance(default, list):
        return SimpleNamespace(config=_once(lambda: _merge(loader, default, repo), "merged", sources, repr(default)))
    return _once(lambda: _embed(loader, default, repo), "embedded", sources, repr(default))


def _quick_merge(loader: ConfigLoaderImpl, defaults: list[Any], repo: Any) -> DictConfig:
    """The contents of these files, merged."""
    hydras = list(itertools.takewhile(lambda each: each.config_path.startswith("hydra/"), defaults))
    parts = [hydras, *defaults[len(hydras) :]]
    return _once(lambda: _merge(loader, parts, repo), "merged", _sources(repo), repr(parts))


def _quick_copy(config: DictConfig, memo: dict[int, Any]) -> DictConfig:
    """A copy that has the same parent."""
    parent = config._get_parent()
    config._set_parent(None)
    try:
        copied: DictConfig = pickle.loads(pickle.dumps(config))
    except (pickle.PicklingError, AttributeError, TypeError):  # it holds objects
        copied = _copy(config, memo)
    finally:
        config._set_parent(parent)
    copied._set_parent(parent)
    return copied


def compose_quickly(patch: pytest.MonkeyPatch) -> None:
    _compose_with(patch, _quick_read, _quick_choices, _quick_embed, _quick_list, _quick_merge, _quick_copy)
    patch.setattr(OverridesParser, "parse_rule", _quick_parse)


def compose_as_always(patch: pytest.MonkeyPatch) -> None:
    _compose_with(patch, _read, _choices, _embed, _list, _merge, _copy)
    patch.setattr(OverridesParser, "parse_rule", _parse)


def _compose_with(
    patch: pytest.MonkeyPatch, read: Any, choices: Any, embed: Any, make_list: Any, merge: Any, copied: Any
) -> None:
    patch.setattr(ConfigRepository, "load_config", read)
    patch.setattr(ConfigRepository, "__deepcopy__", lambda self, memo: copy.copy(self), raising=False)
    patch.setattr(defaults_list, "_create_interpolation_map", choices)
    patch.setattr(ConfigLoaderImpl, "_load_single_config", embed)
    patch.setattr(config_loader_impl, "create_defaults_list", make_list)
    patch.setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", merge)
    patch.setattr(DictConfig, "__deepcopy__", copied)
