"""Cases of one test that are cheap enough to be looped: an item of pytest's own costs more than most of them."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def looped(names: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, in one test: all cases run, and a failure names those that failed.

    For tests without fixtures that a case could leave changed for the next. Each case may skip.
    """
    split = [name.strip() for name in names.split(",")]
    cases = [dict(zip(split, value if len(split) > 1 else [value], strict=True)) for value in values]
    assert cases, f"no cases of {names}"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def every(**given: Any) -> None:
            failures, skips = [], []
            for case in cases:
                try:
                    test(**given, **case)
                except pytest.skip.Exception as skip:
                    skips.append(skip)
                except (Exception, pytest.fail.Exception) as failure:
                    failures.append((failure, case))
            if failures:
                for _, case in failures:
                    failures[0][0].add_note(f"failed with {', '.join(f'{k}={v!r:.200}' for k, v in case.items())}")
                raise failures[0][0]
            if len(skips) == len(cases):
                raise skips[0]

        wanted = inspect.signature(test)
        rest = [parameter for name, parameter in wanted.parameters.items() if name not in split]
        assert len(rest) + len(split) == len(wanted.parameters), f"{test.__name__} takes no {names}"
        every.__signature__ = wanted.replace(parameters=rest)  # type: ignore[attr-defined]
        return every

    return decorate
