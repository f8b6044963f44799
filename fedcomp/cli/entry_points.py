"""The console scripts. They handle Ctrl-C, and a reader such as `head` that leaves, before they import anything
that takes time."""

from __future__ import annotations

import sys

from fedcomp.display.console import end_with_reader
from fedcomp.runtime.signals import exit_on_sigint


@end_with_reader()
def fedcomp() -> None:
    """`fedcomp`, the same as `python -m fedcomp`."""
    exit_on_sigint("fedcomp: interrupted before the first round")
    from fedcomp.cli.main import main

    main()


@end_with_reader()
def report() -> None:
    """`fedcomp-report`."""
    exit_on_sigint("interrupted")
    from fedcomp.reporting.__main__ import main

    sys.exit(main())


@end_with_reader()
def replay() -> None:
    """`fedcomp-replay`."""
    exit_on_sigint("interrupted")
    from fedcomp.replay.__main__ import main

    sys.exit(main())


@end_with_reader()
def status() -> None:
    """`fedcomp-status`."""
    exit_on_sigint("interrupted")
    from fedcomp.status.__main__ import main

    sys.exit(main())


@end_with_reader()
def export() -> None:
    """`fedcomp-export`."""
    exit_on_sigint("interrupted")
    from fedcomp.api.export import main

    sys.exit(main())


@end_with_reader()
def evaluate() -> None:
    """`fedcomp-evaluate`."""
    exit_on_sigint("interrupted")
    from fedcomp.api.evaluate import main

    sys.exit(main())


@end_with_reader()
def clean() -> None:
    """`fedcomp-clean`."""
    exit_on_sigint("interrupted")
    from fedcomp.status.clean import main

    sys.exit(main())


@end_with_reader()
def diff() -> None:
    """`fedcomp-diff`."""
    exit_on_sigint("interrupted")
    from fedcomp.status.diff import main

    sys.exit(main())


@end_with_reader()
def sweep() -> None:
    """`fedcomp-sweep`."""
    exit_on_sigint("interrupted")
    from fedcomp.cli.sweep import main

    sys.exit(main())
