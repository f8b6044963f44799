"""`fedcomp-serve experiment=... --listen HOST:PORT --key FILE`: a run whose clients are other processes."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from fedcomp.core.validate import check_interval
from fedcomp.display.console import say
from fedcomp.runtime.command import command, exit_status

EPILOG = """\
examples:
  fedcomp-serve experiment=quickstart num_clients=3 --listen 127.0.0.1:7000 --key secret.key
  fedcomp-join experiment=quickstart num_clients=3 --client 0 --server 127.0.0.1:7000 --key secret.key    (also 1 and 2)

Both commands take the same options as fedcomp. The server waits for all clients, makes the run in its folder, and tells
the clients when it ends. Where the method allows it, the run goes on without a client that is gone or late; the same
command brings it back. Stopped or killed, the server goes on with the same commands too. The key is shared by all: it
keeps others out, and does not encrypt; between machines use a tunnel.
exit status: 0 finished, 1 stopped or failed (one line says why), 2 a wrong argument
"""


def command_of_an_end(name: str, description: str) -> argparse.ArgumentParser:
    """A parser with what both ends take."""
    parser = command(name, description, EPILOG)
    parser.add_argument("overrides", nargs="*", metavar="OPTION=VALUE", help="as of fedcomp; the same at both ends")
    parser.add_argument(
        "--key", type=Path, required=True, metavar="FILE", help="the shared key; fedcomp-serve makes the file"
    )
    parser.add_argument("--config-dir", type=Path, metavar="DIR", help="a folder of your own configs and Python files")
    parser.add_argument(
        "--patience",
        type=float,
        default=600,
        metavar="S",
        help="seconds after which the other end counts as gone (600)",
    )
    return parser


def check_patience(seconds: float) -> None:
    """Raise ValueError if `--patience` is no time that a socket can wait."""
    check_interval("--patience", seconds, "[0.001, 1e9]", "a number of seconds")


def main(argv: Sequence[str] | None = None) -> int:
    """Serve a run. Returns the exit status."""
    parser = command_of_an_end("fedcomp-serve", "Make a run whose clients are other processes.")
    parser.add_argument("--listen", default="127.0.0.1:7000", metavar="HOST:PORT", help="default: this machine alone")
    parser.add_argument("--need-all", action="store_true", help="stop where a client is lost, whatever the method")
    given = parser.parse_intermixed_args(argv)
    return exit_status(lambda: _serve(given))


def _serve(given: argparse.Namespace) -> int:
    from fedcomp.config.compose import compose  # the rest takes seconds
    from fedcomp.remote.frames import Address, read_key
    from fedcomp.remote.processes import check, serve
    from fedcomp.remote.server_end import ServerEnd
    from fedcomp.runtime.signals import Interrupted

    check_patience(given.patience)
    config = compose([*given.overrides, "wire=tcp"], given.config_dir)
    check(config)
    end = ServerEnd(Address.of(given.listen), read_key(given.key, make=True), given.patience, say)
    try:
        serve(config, end, say, given.need_all, given.patience)
    except Interrupted as interruption:
        say(f"{interruption}; the same commands resume it")
        return 128 + interruption.signal
    except ValueError as error:
        say(f"error: {error}")
        return 1
    return 0
