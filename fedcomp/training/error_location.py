"""Reports an error in code in three lines, with the place in the user's file; `run.log` has the whole traceback.

An error of the input (a ValueError that says what was given and what is allowed) stays the one line that it is. All
else is an error in code: of the user's own compressor, algorithm, model or dataset, or of this package.
"""

import contextlib
import linecache
import re
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from omegaconf.errors import OmegaConfBaseException

from fedcomp.core.first_line import first_line
from fedcomp.runtime.signals import Interrupted

PACKAGE = Path(__file__).resolve().parents[1]
FEDCOMP = (PACKAGE, PACKAGE.parent / "hydra_plugins")
STANDARD = tuple({Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")})
INSTALLED = ("site-packages", "dist-packages")
RAISES = re.compile(r"(^|[:;])\s*raise ")
"""A line of code that raises an error, alone or behind an `if`."""


class CodeError(ValueError):
    """An error in code, in three lines."""


@dataclass(frozen=True)
class Place:
    """A line of a file, as a traceback names it."""

    file: str
    line: int
    function: str

    @property
    def code(self) -> str:
        """The line of code itself."""
        return linecache.getline(self.file, self.line).strip()

    @property
    def in_fedcomp(self) -> bool:
        """Whether it is a line of this package."""
        return any(Path(self.file).is_relative_to(folder) for folder in FEDCOMP)

    @property
    def in_user_code(self) -> bool:
        """Whether it is a line of the user's code: neither this package's nor an installed one's."""
        path = Path(self.file)
        installed = set(INSTALLED) & set(path.parts) or any(path.is_relative_to(folder) for folder in STANDARD)
        return not (self.file.startswith("<") or self.in_fedcomp or installed)

    def __str__(self) -> str:
        code = f": {self.code}" if self.code else ""
        return f'File "{self.file}", line {self.line}, in {self.function}{code}'


@contextlib.contextmanager
def located(log: Path | None = None) -> Iterator[None]:
    """Within the block, an error in code becomes a `CodeError`. `log`: the file with its whole traceback, if any."""
    try:
        yield
    except Exception as error:
        if not is_in_code(error):
            raise
        whole = "" if log is None else f"\n  the whole traceback is in {log}"
        raise CodeError(f"{_headline(error)}\n  {_place(error)}{whole}") from error


def is_in_code(error: BaseException) -> bool:
    """Whether an error is a mistake in code; False for wrong input, errors of the machine, and interruptions."""
    if not isinstance(error, Exception) or isinstance(error, (Interrupted, CodeError)):
        return False
    chain = _chain(error)
    if not any(place.in_user_code for one in chain for place in _places(one)):
        return not isinstance(error, (ValueError, MemoryError, OSError, OmegaConfBaseException))
    return not (_is_refusal(chain[-1]) or any(_is_refusal(one, by_user=True) for one in chain))


def summary(error: BaseException) -> str:
    """What `status.json` says of an error: its message's first line; of an error in code its place too."""
    if is_in_code(error):
        place = _place(error)
        return f"{_headline(error)} ({Path(place.file).name}, line {place.line})"
    return first_line(error)


def _headline(error: BaseException) -> str:
    """The message of a ValueError that fedcomp raised; else the error's type and message."""
    line, kind = first_line(error), type(error).__name__
    by_fedcomp = isinstance(error, ValueError) and _raised_at(error).in_fedcomp
    return line if by_fedcomp or line == kind else f"{kind}: {line}"


def _place(error: BaseException) -> Place:
    """The last place in the user's own code, where there is one; else where the first error was raised."""
    chain = _chain(error)
    own = [place for one in chain for place in _places(one) if place.in_user_code]
    return own[-1] if own else _raised_at(chain[-1])


def _is_refusal(error: BaseException, by_user: bool = False) -> bool:
    """Whether somebody raised the error on purpose to refuse something: this package, or a user's `raise`."""
    place = _raised_at(error)
    raised = place.in_user_code and RAISES.search(place.code) is not None
    return isinstance(error, (ValueError, MemoryError)) and (raised or (place.in_fedcomp and not by_user))


def _raised_at(error: BaseException) -> Place:
    """The last place in the user's code or in this package; else where a library raised the error."""
    places = _places(error)
    return next((place for place in reversed(places) if place.in_user_code or place.in_fedcomp), places[-1])


def _chain(error: BaseException) -> list[BaseException]:
    """The error and its causes, the first of them last."""
    chain = [error]
    while chain[-1].__cause__ is not None and chain[-1].__cause__ not in chain:
        chain.append(chain[-1].__cause__)
    return chain


def _places(error: BaseException) -> list[Place]:
    """Where the error came through, the last being where it was raised; of a SyntaxError the line that is none."""
    frames = traceback.walk_tb(error.__traceback__)
    places = [Place(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in frames]
    if isinstance(error, SyntaxError) and error.filename is not None:
        places.append(Place(error.filename, error.lineno or 1, "<module>"))
    return places or [Place("<unknown>", 0, "<unknown>")]
