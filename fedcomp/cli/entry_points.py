"""The console scripts: Ctrl-C is heard before anything that takes time is imported."""

from __future__ import annotations

import sys

from fedcomp.runtime.exit_on_sigint import at_once


def fedcomp() -> None:
    """`fedcomp`, the same as `python -m fedcomp`."""
    at_once("fedcomp: interrupted before the first round")
    from fedcomp.cli.main import main

    main()


def report() -> None:
    """`fedcomp-report`."""
    at_once("interrupted")
    from fedcomp.report.__main__ import main

    sys.exit(main())


def status() -> None:
    """`fedcomp-status`."""
    at_once("interrupted")
    from fedcomp.status.__main__ import main

    sys.exit(main())
