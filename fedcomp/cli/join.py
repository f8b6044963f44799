"""`fedcomp-join experiment=... --client 3 --server HOST:PORT --key FILE`: one client of a run that another serves."""

import argparse
from collections.abc import Sequence

from fedcomp.cli.serve import check_patience, command_of_an_end
from fedcomp.display.console import say
from fedcomp.runtime.command import exit_status


def main(argv: Sequence[str] | None = None) -> int:
    """Join a run. Returns the exit status."""
    parser = command_of_an_end("fedcomp-join", "Be one client of a run that fedcomp-serve makes.")
    parser.add_argument("--client", type=int, required=True, metavar="N", help="which client, 0 or more")
    parser.add_argument("--server", required=True, metavar="HOST:PORT", help="where fedcomp-serve listens")
    given = parser.parse_intermixed_args(argv)
    return exit_status(lambda: _join(given))


def _join(given: argparse.Namespace) -> int:
    from fedcomp.config.compose import compose  # the rest takes seconds
    from fedcomp.remote.client_end import ClientEnd, Hello
    from fedcomp.remote.frames import START_SECONDS, Address, await_key
    from fedcomp.remote.processes import check, join

    check_patience(given.patience)
    config = compose([*given.overrides, "wire=tcp"], given.config_dir)
    check(config)
    _check_client(given.client, config.num_clients)
    address, key = Address.of(given.server), await_key(given.key, START_SECONDS, say)

    def connect(hello: Hello) -> ClientEnd:
        return ClientEnd(address, key, hello, given.patience)

    try:
        join(config, given.client, connect, say)
    except ValueError as error:
        say(f"client {given.client}: error: {error}")
        return 1
    return 0


def _check_client(client: int, num_clients: int | None) -> None:
    """Raise ValueError if there is no such client, as far as the options alone tell."""
    if client < 0 or (num_clients is not None and client >= num_clients):
        others = "and above" if num_clients is None else f"to {num_clients - 1}"
        raise ValueError(f"--client {client}: there is no such client, they are 0 {others}")
