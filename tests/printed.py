"""What a module of the tests prints in a process of its own."""

import os
import subprocess
import sys


def printed_by(module: str, **environment: str) -> list[str]:
    """The words of `python -m module` with these variables, which must end without an error."""
    command, variables = [sys.executable, "-m", module], os.environ | environment
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
