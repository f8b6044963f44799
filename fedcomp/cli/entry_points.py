"""The console scripts. They handle Ctrl-C, and a reader such as `head` that leaves, before they import anything
that takes time."""

import importlib
import sys
from collections.abc import Callable

from fedcomp.display.console import end_with_reader, prepare_streams
from fedcomp.runtime.importing import without_collection
from fedcomp.runtime.signals import exit_on_sigint


@end_with_reader()
def fedcomp() -> None:
    """`fedcomp`, the same as `python -m fedcomp`."""
    prepare_streams()
    exit_on_sigint("fedcomp: interrupted before the first round")
    with without_collection():
        from fedcomp.cli.main import main

    main()


def _script(module: str) -> Callable[[], None]:
    """A console script whose exit status is what `main` of this module returns."""

    @end_with_reader()
    def run() -> None:
        prepare_streams()
        exit_on_sigint("interrupted")
        sys.exit(importlib.import_module(module).main())

    return run


check = _script("fedcomp.cli.check")
clean = _script("fedcomp.status.clean")
diff = _script("fedcomp.status.diff")
evaluate = _script("fedcomp.api.evaluate")
export = _script("fedcomp.api.export")
join = _script("fedcomp.cli.join")
replay = _script("fedcomp.replay.__main__")
report = _script("fedcomp.reporting.__main__")
serve = _script("fedcomp.cli.serve")
status = _script("fedcomp.status.__main__")
sweep = _script("fedcomp.cli.sweep")
