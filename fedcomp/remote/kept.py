"""What a server has told its clients in the last rounds, kept for clients that come back.

A client saves its state when the server saves its own. One that was away begins with the state that it saved last, and
makes the rounds since then with the messages that it was sent, or would have been. Rounds since the server's last save
are in memory; those before it are in a file, as far as a client that is away needs them, so that they outlive the
server's process.
"""

import base64
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcomp.core.parse import parse_json
from fedcomp.participation.absent import read_absent
from fedcomp.records.atomic_write import explained, sync, write_atomically
from fedcomp.remote.frames import Gone

ABSENT, KEPT = "absent.json", "kept.jsonl"


@dataclass(frozen=True)
class KeptRound:
    """A round as clients are told of it.

    Attributes:
        index: 0 for the first. absent: the clients that it left out. messages: to each client, in their order.
    """

    index: int
    absent: tuple[int, ...]
    messages: Mapping[int, list[bytes]]


@dataclass
class Kept:
    """The rounds that clients may have to make again.

    Attributes:
        folder: of the run; None: nothing outlives this process. absent: {round: clients that it left out}.
        saved: the rounds after which the server has saved last, in this process.
    """

    folder: Path | None = None
    absent: dict[int, tuple[int, ...]] = field(default_factory=dict)
    saved: int | None = None
    _rounds: list[KeptRound] = field(default_factory=list)
    _index: int = 0

    def begin(self, index: int, absent: Sequence[int], clients: Iterable[int]) -> None:
        """A round begins, perhaps again. The first one follows the checkpoint that the run goes on from."""
        if self.saved is None:
            self.saved = index
            self._resume(index)
        self._index = index
        self._rounds = [one for one in self._rounds if one.index < index]
        self._rounds.append(KeptRound(index, tuple(absent), {client: [] for client in clients}))
        self.absent.pop(index, None)
        if absent:
            self.absent[index] = tuple(absent)

    def add(self, client: int, message: bytes) -> None:
        """A message to a client, whether it is there or not."""
        if self._rounds:
            self._rounds[-1].messages[client].append(message)

    def since(self, client: int, has: Iterable[int], index: int) -> list[KeptRound]:
        """The rounds before `index` that a client must make, given the rounds after which it has its state.

        Raises Gone: not all of them are kept.
        """
        kept = {one.index: one for one in (*self._written(), *self._rounds) if client in one.messages}
        starts = [start for start in has if start <= index and all(at in kept for at in range(start, index))]
        if not starts:
            raise Gone(
                f"client {client} has its state after rounds {sorted(has)}, and the run goes on after round {index}: "
                "bring its folder back, or start the run anew (overwrite=true at the server)"
            )
        return [kept[at] for at in range(max(starts), index)]

    def save(self, away: Collection[int]) -> None:
        """The server saves after the last round, and so have all clients but those who are away."""
        self.saved = self._index + 1
        if self.folder is not None:
            path = self.folder / KEPT
            if away:
                with explained(path):
                    with path.open("a") as file:
                        file.writelines(_line(one, away) for one in self._rounds)
                    sync(path)
            else:
                path.unlink(missing_ok=True)
            if self.absent:
                write_atomically(self.folder / ABSENT, json.dumps(self.absent).encode())
            else:  # of rounds that were made again with all
                (self.folder / ABSENT).unlink(missing_ok=True)
            self._rounds = []
        elif not away:
            self._rounds = []

    def end(self) -> None:
        """The run has ended: nobody comes back any more."""
        if self.folder is not None:
            (self.folder / KEPT).unlink(missing_ok=True)

    def _resume(self, index: int) -> None:
        if self.folder is None:
            return
        if (path := self.folder / ABSENT).exists():
            self.absent = {number: clients for number, clients in read_absent(path).items() if number < index}
        if (path := self.folder / KEPT).exists():
            lines = [_line(one, one.messages) for one in self._written() if one.index < index]
            write_atomically(path, "".join(lines).encode())

    def _written(self) -> Iterator[KeptRound]:
        path = None if self.folder is None else self.folder / KEPT
        if path is None or not path.exists():
            return
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return  # the server was killed while it wrote; it goes on from before
                try:
                    yield _round(parse_json(line))
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    raise ValueError(
                        f"{path}, line {number} is no round: put the file back, or remove it, and the run goes on "
                        "without the clients that need it"
                    ) from error


def _round(one: Any) -> KeptRound:
    messages = {int(client): list(map(base64.b64decode, sent)) for client, sent in one["messages"].items()}
    return KeptRound(int(one["round"]), tuple(map(int, one["absent"])), messages)


def _line(one: KeptRound, clients: Iterable[int]) -> str:
    messages = {client: [base64.b64encode(sent).decode() for sent in one.messages[client]] for client in clients}
    return json.dumps({"round": one.index, "absent": one.absent, "messages": messages}) + "\n"
