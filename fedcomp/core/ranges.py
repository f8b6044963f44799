"""What a part's options may be, declared where they stand: as the types of a dataclass's fields, or of arguments.

scale: Literal["mean", "fixed"] = "mean"
fraction: Annotated[float | None, Within("(0, 1]", "the share of entries that is sent")] = 0.1
alpha: Literal["mean"] | Annotated[float, Within("(0, inf)")] = "mean"
bits: Annotated[Literal[8, 16], "the width of a threshold"] = 8
mu: float = 0.5
rows: Annotated[int, Whole()] = 5
"""

import functools
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, ClassVar, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from fedcomp.core.validate import check_choice, check_count, check_interval

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Within:
    """A number in `ends`, such as "(0, 1]": a bracket includes its end. `meaning`: the option's, for the error."""

    ends: str
    meaning: str = ""


@dataclass(frozen=True)
class Whole:
    """A whole number, `least` or more, `most` or less. `meaning`: the option's, for the error."""

    least: float = 1
    meaning: str = ""
    most: float = math.inf


class CheckedOptions:
    """A dataclass whose options must be what their types declare: words, a number, one `Within` ends, or a `Whole` one.

    A class with a `__post_init__` of its own calls `super().__post_init__()` in it. What is declared as None too, as in
    `float | None`, may be null.
    """

    prefix: ClassVar[str] = ""
    """What errors put before an option's name, such as "algorithm."; "" where the factory does it."""

    def __post_init__(self) -> None:
        part: type = type(self)
        for name, allowed in _declared(part):
            allowed.check(self.prefix + name, vars(self)[name])


def checked(prefix: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A function whose arguments must be what it declares, as the options of `CheckedOptions`."""

    def wrap(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> T:
            given = signature.bind(*args, **options)
            given.apply_defaults()
            for name, allowed in _declared(function):
                allowed.check(prefix + name, given.arguments[name])
            return function(*args, **options)

        return call

    return wrap


@dataclass(frozen=True)
class _Allowed:
    words: tuple[object, ...]
    number: Within | Whole | None
    or_null: bool
    meaning: str

    def check(self, name: str, value: object) -> None:
        """Raise ValueError for any other value."""
        number = self.number
        if isinstance(number, Within):
            check_interval(name, value, number.ends, number.meaning, words=self.words, or_null=self.or_null)
        elif isinstance(number, Whole):
            check_count(name, value, number.least, number.meaning, most=number.most, or_null=self.or_null)
        else:
            check_choice(name, value, self.words, self.meaning, or_null=self.or_null)


@functools.cache
def _declared(part: Callable[..., object]) -> tuple[tuple[str, _Allowed], ...]:
    """(name, what is allowed) of each field of a class, or argument of a function, that declares it."""
    found = []
    hints = field_types(part, True) if isinstance(part, type) else types_in(part.__annotations__, part.__module__, True)
    for name, hint in hints.items():
        arms = _arms(hint)
        words = tuple(word for arm in arms if get_origin(arm) is Literal for word in get_args(arm))
        said = [one for arm in arms if get_origin(arm) is Annotated for one in arm.__metadata__]
        number = next((one for one in said if isinstance(one, Within | Whole)), None)
        if not words and number is None:
            number = _any_number(set(arms) - {type(None)})
        if words or number:
            meaning = next((one for one in said if isinstance(one, str)), "")
            found.append((name, _Allowed(words, number, type(None) in arms, meaning)))
    return tuple(found)


def _any_number(kinds: set[Any]) -> Within | Whole | None:
    """What `int` and `float` say, of an option that is of no other type."""
    if not kinds or not kinds <= {int, float}:
        return None
    return Within("[-inf, inf]") if float in kinds else Whole(-math.inf)


def _arms(hint: Any) -> tuple[Any, ...]:
    """The types of a union, also of one within `Annotated`, which is one of them then."""
    if get_origin(hint) is Annotated:
        return hint, *_arms(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return tuple(one for arm in get_args(hint) for one in _arms(arm))
    return (hint,)


def field_types(part: Any, declarations: bool = False) -> dict[str, Any]:
    """{field: type} of a dataclass, `declarations` in `Annotated` with them, each as its own module reads it."""
    found: dict[str, Any] = {}
    for kind in reversed(part.__mro__):
        found |= types_in(inspect.get_annotations(kind), kind.__module__, declarations)
    return found


def types_in(annotations: Mapping[str, Any], module: str, declarations: bool = False) -> dict[str, Any]:
    """Annotations as a module reads them; without those with a name that type checkers alone know.

    Raises TypeError: with `declarations`, such an annotation says what an option may be, and nobody could check it.
    """
    names, found = vars(sys.modules.get(module, SimpleNamespace())), {}
    for name, annotation in annotations.items():
        holder = SimpleNamespace(__annotations__={name: annotation})
        try:
            found[name] = get_type_hints(holder, names, include_extras=declarations)[name]
        except (NameError, TypeError) as error:
            if declarations and any(word in str(annotation) for word in ("Within(", "Whole(", "Literal[")):
                raise TypeError(
                    f"the type of {name} in {module}, {annotation}, cannot be read ({error}): import what it names at "
                    "the top of the file, not for type checkers alone"
                ) from error
    return found
