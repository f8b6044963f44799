"""What is refused: a ValueError with its words, in one line; and a test of a table of such cases."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.looped import looped


def one_line_error(words: str) -> pytest.RaisesExc[ValueError]:
    """A context that must end in a ValueError with this pattern, in one line."""
    return pytest.raises(ValueError, match=words, check=_in_one_line)


def _in_one_line(error: ValueError) -> bool:
    return "\n" not in str(error)


def refused(
    cases: Iterable[tuple[Callable[[], object] | dict[str, Any], str]], make: Callable[..., object] | None = None
) -> Callable[..., None]:
    """A test that a module assigns to a name such as `test_wrong_input`.

    Args:
        cases: what makes the error, or the options with which `make` makes it; and a pattern that the line has.
    """

    @looped("given, words", cases)
    def test(given: Any, words: str) -> None:
        with one_line_error(words):
            given() if callable(given) else make(**given)  # type: ignore[misc]

    return test
