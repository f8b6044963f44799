"""Runs checks and says what passed: a table, and of each failure the smallest example and what it means."""

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedcomp.check.failed import Failed
from fedcomp.core.first_line import first_line


@dataclass(frozen=True)
class CheckResult:
    """What one check found.

    Attributes:
        part: what was checked. check: in words. meaning: what a part that passes has. example: in which this one has
            not; None: it passes.
    """

    part: str
    check: str
    meaning: str
    example: str | None


def results(part: str, case: Any, checks: Iterable[Callable[[Any], None]]) -> Iterator[CheckResult]:
    """Run the checks on a case, one after another."""
    for check in checks:
        words = check.__name__.removeprefix("check_").replace("_", " ")
        meaning = " ".join((check.__doc__ or "").split())
        try:
            check(case)
        except Failed as failed:
            yield CheckResult(part, words, meaning, str(failed))
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}, line {where.lineno}"
            yield CheckResult(part, words, meaning, f"{type(error).__name__} in {place}: {first_line(error)}")
        else:
            yield CheckResult(part, words, meaning, None)


def show(found: Sequence[CheckResult], console: Console) -> None:
    """Print the table, and the failures below it."""
    table = Table("part", "check", "", "a part that passes", box=None, pad_edge=False, header_style="bold")
    for one in found:
        mark = "[green]passed[/green]" if one.example is None else "[red]FAILED[/red]"
        table.add_row(one.part, one.check, mark, one.meaning)
    console.print(table)
    failures = [one for one in found if one.example is not None]
    for one in failures:
        console.print(f"\n[red]FAILED[/red] {one.part}, {one.check}: ", end="")
        console.print(one.example, markup=False)
        console.print(f"  it should be: {one.meaning}", markup=False)
    console.print(f"\n{len(found) - len(failures)} of {len(found)} checks passed")
