"""`fedcomp.check`'s suite of algorithms for pytest: a test of a case makes its rounds once, for all checks."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fedcomp.algorithm.contract import Algorithm
from fedcomp.check import algorithm, world
from fedcomp.check.algorithm import AlgorithmCase, Bits
from tests.conformance.parts import passes

__all__ = ["AlgorithmCase", "normed", "suite"]


def normed(name: str, algorithm: Algorithm, bits: Bits | None = None, **options: Any) -> AlgorithmCase:
    """A case that trains the network with normalisation and statistics."""
    return AlgorithmCase(name, algorithm, bits, world.with_batch_norm, **options)


def suite(cases: Sequence[AlgorithmCase], beside: Sequence[AlgorithmCase] = ()) -> Callable[..., None]:
    """A test of every case by every check; a test module assigns it to `test_algorithm`.

    The fast tests run the cases that have a class (of an algorithm or of one of its parts) which none before has, nor
    one of another suite, `beside`; networks with statistics first. The thorough tests run the others.
    """
    seen = set().union(*map(classes, beside))
    marked = {}
    for case in sorted(cases, key=lambda case: case.module is world.mlp):
        marks = pytest.mark.thorough if classes(case) <= seen else ()
        marked[case.name] = pytest.param(case, id=case.name, marks=marks)
        seen |= classes(case)

    @pytest.mark.parametrize("case", [marked[case.name] for case in cases])
    def test(case: AlgorithmCase) -> None:
        passes(case, algorithm)

    return test


def classes(part: Any) -> set[type]:
    """fedcomp's classes in a part and in all that it holds."""
    if not type(part).__module__.startswith("fedcomp."):
        return set()
    return {type(part)}.union(*(classes(each) for held in vars(part).values() for each in _each(held)))


def _each(held: Any) -> Sequence[Any]:
    return held if isinstance(held, list | tuple) else (held,)
