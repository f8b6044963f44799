"""What the console commands share: how they read their arguments, and the exit status of their work."""

import argparse
import sys
from collections.abc import Callable

from fedcomp.runtime.signals import SIGINT_STATUS, restore_sigint

WRONG_ARGUMENT = 2


def command(name: str, description: str | None, epilog: str) -> argparse.ArgumentParser:
    """The parser of a console command; description and epilog keep their lines."""
    return argparse.ArgumentParser(
        name, None, description, epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def reason(error: ValueError | OSError) -> str:
    """Why, and of which file if the system says so."""
    if isinstance(error, ValueError):
        return str(error)
    return f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)


def exit_status(work: Callable[[], int | None]) -> int:
    """What `work` returns, 0 for None; after one line on standard error 2 for wrong input or output, 130 for Ctrl-C.

    Raises BrokenPipeError: nobody reads standard output any more.
    """
    restore_sigint()
    try:
        return work() or 0
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        print(f"error: {reason(error)}", file=sys.stderr)
        return WRONG_ARGUMENT
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return SIGINT_STATUS
