"""`fedcomp.check`'s suite of algorithms for pytest: a test of a case makes its rounds once, for all checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from fedcomp.check.algorithm import CHECKS, AlgorithmCase
from fedcomp.check.failed import Failed

__all__ = ["AlgorithmCase", "suite"]


def suite(cases: Sequence[AlgorithmCase]) -> Callable[..., None]:
    """A test of every case by every check; a test module assigns it to `test_algorithm`."""

    @pytest.mark.parametrize("case", cases, ids=lambda case: case.name)
    def test(case: AlgorithmCase) -> None:
        for check in CHECKS:
            try:
                check(case)
            except Failed as failed:
                raise Failed(f"{check.__name__}: {failed}") from failed

    return test
