"""What is refused: a test of a table of cases, each of which must raise a ValueError with its words, in one line."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.looped import looped


def refused(
    cases: Iterable[tuple[Callable[[], object] | dict[str, Any], str]], make: Callable[..., object] | None = None
) -> Callable[..., None]:
    """A test that a module assigns to a name such as `test_wrong_input`.

    Args:
        cases: what makes the error, or the options with which `make` makes it; and a pattern that the line has.
    """

    @looped("given, words", cases)
    def test(given: Any, words: str) -> None:
        with pytest.raises(ValueError, match=words) as error:
            given() if callable(given) else make(**given)  # type: ignore[misc]
        assert "\n" not in str(error.value)

    return test
