"""Whether a check finds a faulty part, and passes fedcomp's own."""

import functools
import re
from collections.abc import Callable
from typing import Any

import pytest
from omegaconf import OmegaConf

from fedcomp.check.failed import Failed
from fedcomp.config.instantiate import build
from fedcomp.core.choices import choices


def assert_found(check: Callable[[Any], None], case: Any, words: str) -> None:
    """The check fails, with an example of this pattern in one line."""
    with pytest.raises(Failed) as failed:
        check(case)
    assert re.search(f"^{words}", str(failed.value)), failed.value
    assert "\n" not in str(failed.value)


def passes(case: Any, *suites: Any) -> None:
    """All checks of these modules; a failure names the check."""
    for check in (check for suite in suites for check in suite.CHECKS):
        try:
            check(case)
        except Failed as failed:
            raise Failed(f"{check.__name__}: {failed}") from failed


def makes(group: str, *left_out: str) -> dict[str, Callable[[], Any]]:
    """{name: what makes it} of fedcomp's own choices."""
    nodes = {name: OmegaConf.create(node) for name, node in choices(group).items() if name not in left_out}
    return {name: functools.partial(build, node) for name, node in nodes.items()}
