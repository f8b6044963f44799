"""Hydra composes each choice of groups once for all tests of a process; a config is a copy with its own values applied.

Reading and merging the files of a choice is most of what composing costs. The rest is Hydra's: overrides are parsed,
applied and recorded as always. Grids, and commands with a folder of one's own, are composed as always.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.defaults_list import DefaultsList, Overrides
from omegaconf import DictConfig

from fedcomp.core.folders import CONF

UNCHANGED = {("pkg", "hydra.conf"), ("file", str(CONF)), ("structured", "")}
"""Sources of configs that no test changes."""

_read = ConfigRepository.load_config
_list = config_loader_impl.create_defaults_list
_merge = ConfigLoaderImpl._compose_config_from_defaults_list
_sweep = ConfigLoaderImpl.load_sweep_config
_files: dict[Any, bytes] = {}
_lists: dict[Any, DefaultsList] = {}
_merged: dict[Any, bytes] = {}


def _sources(repo: Any) -> tuple[tuple[str, str], ...] | None:
    """Where this repository's configs come from; None if not all of them are unchanged."""
    found = tuple((source.scheme(), source.path) for source in repo.get_sources())
    return found if UNCHANGED.issuperset(found) else None


def _quick_read(repo: ConfigRepository, config_path: str) -> Any:
    """One file."""
    key = _sources(repo), config_path
    if key[0] is None:
        return _read(repo, config_path)
    if key not in _files:
        _files[key] = pickle.dumps(_read(repo, config_path))
    return pickle.loads(_files[key])


def _quick_list(repo: Any, overrides_list: list[Any], **options: Any) -> DefaultsList:
    """The files of a choice of groups in their order, and the values that are applied after them."""
    given = Overrides(repo=repo, overrides_list=overrides_list)
    choices = given.override_choices, given.append_group_defaults, given.deletions, options
    key = _sources(repo), repr(choices)
    if key[0] is None or options["skip_missing"]:
        return _list(repo=repo, overrides_list=overrides_list, **options)
    if key not in _lists:
        _lists[key] = _list(repo=repo, overrides_list=overrides_list, **options)
    return replace(_lists[key], config_overrides=given.config_overrides)


def _quick_merge(loader: ConfigLoaderImpl, defaults: list[Any], repo: Any) -> DictConfig:
    """The contents of these files, merged."""
    key = _sources(repo), repr(defaults)
    if key[0] is None:
        return _merge(loader, defaults=defaults, repo=repo)
    if key not in _merged:
        _merged[key] = pickle.dumps(_merge(loader, defaults=defaults, repo=repo))
    return pickle.loads(_merged[key])


def _sweep_as_always(loader: ConfigLoaderImpl, *arguments: Any, **options: Any) -> DictConfig:
    """A run of a grid."""
    with pytest.MonkeyPatch.context() as patch:
        compose_as_always(patch)
        return _sweep(loader, *arguments, **options)


def compose_quickly(patch: pytest.MonkeyPatch) -> None:
    _compose_with(patch, _quick_read, _quick_list, _quick_merge, _sweep_as_always)


def compose_as_always(patch: pytest.MonkeyPatch) -> None:
    _compose_with(patch, _read, _list, _merge, _sweep)


def _compose_with(patch: pytest.MonkeyPatch, read: Any, make_list: Any, merge: Any, sweep: Any) -> None:
    patch.setattr(ConfigRepository, "load_config", read)
    patch.setattr(config_loader_impl, "create_defaults_list", make_list)
    patch.setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", merge)
    patch.setattr(ConfigLoaderImpl, "load_sweep_config", sweep)
