"""Whether a part of the user's own misspells something optional, which would otherwise be ignored without a word.

A part need not inherit from anything: it has an ability if it has the methods of that ability's protocol, and an
attribute that it leaves out has a default. So a codec whose method is called `weigthed_sum` would run, only slower.
Where a part is built, names of its own that are nearly those of an ability are refused.
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
    EstimatorOptions,
    HasClosedFormError,
    PredictsError,
    Recursive,
    Sampling,
    SumsMessages,
)

Ability = dict[str, bool]
"""{name: whether it is a method} of what only counts together."""

OPTIONS = AlgorithmOptions, SolverOptions, EstimatorOptions
"""Protocols of which each attribute counts by itself."""
ALGORITHM: tuple[type, ...] = (AlgorithmOptions,)
CLIENT: tuple[type, ...] = (SolverOptions,)
CODEC: tuple[type, ...] = (ChecksDim, ChecksErrorFeedback, SumsMessages, HasClosedFormError, Sampling)
ESTIMATOR: tuple[type, ...] = (EstimatorOptions, Recursive, PredictsError)
NEAR = 0.8
"""How alike two names are at least (`difflib`, from 0 to 1) if one is taken for a misspelling of the other."""


def check_spelling(part: Any, abilities: Sequence[type]) -> None:
    """Raise ValueError if a class outside this package has a name that is nearly one of an ability that it lacks.

    Args:
        part: the part as it was built.
        abilities: protocols of what such a part may have.
    """
    known = [one for protocol in abilities for one in _members(protocol)]
    right = {name for ability in known for name in ability}
    own = _own_names(part, right)
    for ability in known:
        found = {
            name: name if name in own else _near(name, is_method, own, right) for name, is_method in ability.items()
        }
        for name, written in found.items():
            if written not in (None, name) and None not in found.values():
                raise ValueError(
                    f"{type(part).__name__}.{written} looks like {name}, which is optional and would be missing: call "
                    f"it {name}, or, if it is something else, give it a name less alike, such as _{written}"
                )


def _members(protocol: type) -> list[Ability]:
    """The abilities that a protocol stands for: itself, or each attribute of one of `OPTIONS`."""
    names = {name: inspect.isfunction(value) for name, value in vars(protocol).items() if name[0] != "_"}
    names |= dict.fromkeys(inspect.get_annotations(protocol), False)
    return [{name: is_method} for name, is_method in names.items()] if protocol in OPTIONS else [names]


def _own_names(part: Any, right: set[str]) -> Ability:
    """{name: whether it is a method} of what the user's classes have and, but for `right` names, those beneath lack."""
    ours: set[str] = set()
    own: Ability = {}
    for kind in type(part).__mro__:
        names = {name: inspect.isfunction(inspect.getattr_static(kind, name)) for name in vars(kind)}
        names |= {name: False for name in inspect.get_annotations(kind) if name not in names}
        if kind.__module__.split(".")[0] == "fedcomp":
            ours |= names.keys()
        elif kind is not object:
            own |= {name: is_method for name, is_method in names.items() if name[0] != "_"}
    return {name: is_method for name, is_method in own.items() if name not in ours or name in right}


def _near(name: str, is_method: bool, own: Ability, right: set[str]) -> str | None:
    """The name in `own` that is nearly `name`, if there is one of the same kind."""
    for written, kind in own.items():
        one, other = (word.replace("_", "").lower() for word in (name, written))
        if kind == is_method and written not in right and SequenceMatcher(None, one, other).ratio() >= NEAR:
            return written
    return None
