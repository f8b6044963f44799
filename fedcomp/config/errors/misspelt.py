"""Refuses a user's part that misspells the name of an optional method or attribute.

Parts inherit from no base class: a part has an optional ability if it has the methods of that ability's protocol, and a
missing attribute has a default. A codec with a method `weigthed_sum` would therefore run, but more slowly.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from fedcomp.algorithm.contract import AlgorithmOptions
from fedcomp.client.contract import SolverOptions
from fedcomp.compressor.contract import (
    ChecksDim,
    ChecksErrorFeedback,
    DependentSenders,
    EstimatorOptions,
    HasClosedFormError,
    HasOmega,
    PredictsError,
    Recursive,
    Sampling,
    SumsMessages,
)

Ability = dict[str, bool]
"""{name: whether it is a method}. An ability is only present if all its names are."""

OPTIONS = AlgorithmOptions, SolverOptions, EstimatorOptions
"""Protocols whose attributes are optional one by one: each is an ability of its own."""
ALGORITHM: tuple[type, ...] = (AlgorithmOptions,)
CLIENT: tuple[type, ...] = (SolverOptions,)
CODEC: tuple[type, ...] = (
    ChecksDim,
    ChecksErrorFeedback,
    SumsMessages,
    HasClosedFormError,
    HasOmega,
    DependentSenders,
    Sampling,
)
ESTIMATOR: tuple[type, ...] = (EstimatorOptions, Recursive, PredictsError)
MIN_SIMILARITY = 0.8
"""Two names of at least this similarity (`difflib`, from 0 to 1) count as one name and its misspelling."""


def check_spelling(part: Any, abilities: Sequence[type]) -> None:
    """Raise ValueError if a class outside this package misspells a name of an ability that it lacks.

    Args:
        part: an instance. abilities: protocols that such a part may implement.
    """
    known = [one for protocol in abilities for one in _abilities(protocol)]
    correct = {name for ability in known for name in ability}
    own = _own_names(part, correct)
    for ability in known:
        spelled = {
            name: name if name in own else _misspelling(name, is_method, own, correct)
            for name, is_method in ability.items()
        }
        for name, written in spelled.items():
            if written not in (None, name) and None not in spelled.values():
                raise ValueError(
                    f"{type(part).__name__}.{written} looks like {name}, which is optional and would be missing: call "
                    f"it {name}, or, if it is something else, give it a name less alike, such as _{written}"
                )


def _abilities(protocol: type) -> list[Ability]:
    """The protocol as one ability, or one ability per attribute if it is in `OPTIONS`."""
    names = {name: inspect.isfunction(value) for name, value in vars(protocol).items() if name[0] != "_"}
    names |= dict.fromkeys(inspect.get_annotations(protocol), False)
    return [{name: is_method} for name, is_method in names.items()] if protocol in OPTIONS else [names]


def _own_names(part: Any, correct: set[str]) -> Ability:
    """{name: whether it is a method} of the names that the user's classes define.

    Names that a base class of fedcomp defines are left out, unless they are `correct`.
    """
    inherited: set[str] = set()
    own: Ability = {}
    for kind in type(part).__mro__:
        names = {name: inspect.isfunction(inspect.getattr_static(kind, name)) for name in vars(kind)}
        names |= {name: False for name in inspect.get_annotations(kind) if name not in names}
        if kind.__module__.split(".")[0] == "fedcomp":
            inherited |= names.keys()
        elif kind is not object:
            own |= {name: is_method for name, is_method in names.items() if name[0] != "_"}
    return {name: is_method for name, is_method in own.items() if name not in inherited or name in correct}


def _misspelling(name: str, is_method: bool, own: Ability, correct: set[str]) -> str | None:
    """The name in `own` that is similar to `name` and is a method if `name` is; None if there is none."""
    for written, written_is_method in own.items():
        if written_is_method != is_method or written in correct:
            continue
        one, other = (word.replace("_", "").lower() for word in (name, written))
        if SequenceMatcher(None, one, other).ratio() >= MIN_SIMILARITY:
            return written
    return None
