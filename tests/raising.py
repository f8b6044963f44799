"""Stand-ins for functions that must fail, or must not be called."""

from collections.abc import Callable
from typing import NoReturn


def raising(error: BaseException) -> Callable[..., NoReturn]:
    """A function that raises this, whatever it is given."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail
