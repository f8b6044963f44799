"""Streams for tests without a GPU: operations run at once, and a clock says which of them a GPU would have ordered.

Work on two streams is ordered only by what they wait for. Each operation is held to that: what it reads was written,
and what it writes was read, by operations that it waits for. So is freed memory, which a GPU's caching allocator gives
at once to the next operation of the stream that it was allocated on.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Clock = dict[str, int]
"""How many operations of each stream are known to have happened."""


class Race(AssertionError):
    """Two operations on one piece of memory, in no order."""


@dataclass
class Stream:
    """Stands in for `torch.cuda.Stream`."""

    streams: "Streams"
    name: str
    clock: Clock = field(default_factory=dict)

    def wait_stream(self, other: "Stream") -> None:
        self.streams.log.append(f"{self.name} waits for {other.name}")
        _learn(self.clock, other.clock)

    def wait_event(self, event: "Event") -> None:
        _learn(self.clock, event.clock)


@dataclass
class Event:
    """Stands in for `torch.cuda.Event`."""

    streams: "Streams"
    clock: Clock = field(default_factory=dict)

    def record(self, stream: Stream) -> None:
        self.clock = dict(stream.clock)

    def synchronize(self) -> None:
        self.streams.log.append("host waits")
        _learn(self.streams.host, self.clock)


@dataclass
class Memory:
    """A piece of memory, kept so that no other has its address.

    Attributes:
        owner: the stream whose operation allocated it; None: it came from elsewhere, and is not given again.
        touched, written: the last operation of each stream on it, and the last that wrote it.
    """

    storage: torch.UntypedStorage
    owner: str | None
    touched: Clock = field(default_factory=dict)
    written: Clock = field(default_factory=dict)

    @property
    def free(self) -> bool:
        """Whether nobody else refers to it."""
        return torch._C._storage_Use_Count(self.storage._cdata) == 1


class Streams(TorchDispatchMode):
    """The streams of a device; a context in which operations are checked.

    Attributes:
        log: waits, in order. host: what the host has waited for. ran: operations of each stream.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []
        self.host: Clock = {}
        self.ran: Clock = {}
        self._current = [Stream(self, "main")]
        self._memory: dict[int, Memory] = {}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let `torch.cuda` be these streams."""
        made = iter(range(100))
        monkeypatch.setattr(torch.cuda, "Stream", lambda device=None: Stream(self, f"side {next(made)}"))
        monkeypatch.setattr(torch.cuda, "Event", lambda: Event(self))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: self._current[-1])
        monkeypatch.setattr(torch.cuda, "stream", self._on)

    @contextlib.contextmanager
    def _on(self, stream: Stream) -> Iterator[None]:
        depth = len(self._current)
        self._current.append(stream)
        try:
            yield
        finally:
            del self._current[depth:]

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        stream, kwargs = self._current[-1], kwargs or {}
        _learn(stream.clock, self.host)  # what the host waited for is over for whatever it launches now
        self._give_again(stream)
        number = stream.clock.get(stream.name, 0) + 1
        stream.clock[stream.name] = self.ran[stream.name] = number
        arguments = function._schema.arguments
        given = dict(zip([argument.name for argument in arguments], args)) | kwargs
        changed = {one.name for one in arguments if one.alias_info is not None and one.alias_info.is_write}
        written = {_place(leaf) for name in changed & given.keys() for leaf in _tensors(given[name])}
        read = {_place(leaf): leaf for leaf in _tensors(given) if _place(leaf)}
        for place, leaf in read.items():
            memory = self._memory.setdefault(place, Memory(leaf.untyped_storage(), None))
            self._check(str(function), stream, memory.touched if place in written else memory.written)
            memory.touched[stream.name] = number
            if place in written:
                memory.written = {stream.name: number}
        out = function(*args, **kwargs)
        for leaf in _tensors(out):
            if _place(leaf) and _place(leaf) not in read:
                made = {stream.name: number}
                self._memory[_place(leaf)] = Memory(leaf.untyped_storage(), stream.name, made, dict(made))
        return out

    def _give_again(self, stream: Stream) -> None:
        """Whatever of this stream's own memory was freed by now, its next operation may be given."""
        for place, memory in list(self._memory.items()):
            if memory.free and memory.owner in (stream.name, None):
                if memory.owner is not None:
                    self._check("what is given freed memory", stream, memory.touched)
                del self._memory[place]

    def _check(self, what: str, stream: Stream, before: Clock) -> None:
        for name, number in before.items():
            if stream.clock.get(name, 0) < number:
                raise Race(f"{what} on {stream.name} does not wait for operation {number} of {name}")


def _learn(clock: Clock, other: Clock) -> None:
    for name, number in other.items():
        clock[name] = max(clock.get(name, 0), number)


def _tensors(tree) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
