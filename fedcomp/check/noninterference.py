"""Noninterference: nothing crosses between clients and server but the messages that links carry.

A run with real bytes is recorded. Then its rounds are made again, from the recorded bytes alone:

    by the server     while all clients hold other samples; what came up is read from the record. Every message down
                      and the tested models must be the recorded ones: what the server holds follows from what came up.
    by a client       while all others hold other samples, and their weights are others; what went down to this client
                      is read from the record. Its messages up must be the recorded ones: what it sends follows from its
                      own samples and from what came down.

A round is pure, so making it again is what a client does that answers requests: together these replays are a run of
separate processes, message by message, in which each end has the bytes that it was sent and the layouts that follow
from what it knows. Both ends know the config, the seed, the model's first parameters, the cohorts and how many samples
each client has.

Replays run in the process of the run: what a module keeps of the run outside of states and messages is there too, so
that a value which is memoised once and read at the other end is not found here.

What only a message's sender draws (`ctx.sender_key`) is a secret of one end: with other draws of it the other end's
replay must be as before (`check_senders`).
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedcomp.check.failed import Failed
from fedcomp.core.cohort import Cohort, Receivers
from fedcomp.core.pytree import flatten
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.random.keys import Key
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger, Payload, WireError, WireLink
from fedcomp.wire.legs import BROADCAST, RELAY, UNICAST, UP, XOR_RELAY
from fedcomp.wire.packing import pack, unpack_as

WORDS = {UP: "up", UNICAST: "unicast", BROADCAST: "broadcast", RELAY: "relay", XOR_RELAY: "relay"}
"""What the kinds of messages are called here: a relay by XOR carries the same as a plain one."""
OTHER_WEIGHTS = (0.5, 1.75, 1.25, 0.75, 1.5)
"""Factors of the weights that a client sees of others."""


@dataclass(frozen=True)
class Frame:
    """One call of a link.

    Attributes:
        kind: of the call, one of WORDS. messages: the bytes of each row.
        clients: whose the rows are; of a broadcast, who receives.
    """

    kind: str
    messages: tuple[bytes, ...]
    clients: tuple[int, ...]


@dataclass
class RecordedRound:
    """A round of the record.

    Attributes:
        index: 0 for the first. cohort: of the round. frames: the calls in their order. metrics: the round's.
    """

    index: int
    cohort: Cohort
    frames: list[Frame] = field(default_factory=list)
    metrics: dict[str, Tensor] = field(default_factory=dict)


class RecordingLink(WireLink):
    """Carries messages as bytes and records them."""

    def __init__(self, record: RecordedRound, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.record = record

    def _carry(self, kind: int, payload: Payload, who: Receivers | None) -> Payload:
        messages = tuple(self._packed(payload))
        self.record.frames.append(Frame(WORDS[kind], messages, (who or self.record.cohort).clients))
        return self._unpacked(messages, payload)


class ReplayLink(RecordingLink):
    """Takes what came from the other end from the record, and compares what this end sends with the record.

    Args:
        client: whose end this is; None: the server's. memory: what the client keeps from round to round.
    """

    both_ends = False

    def __init__(self, record: RecordedRound, client: int | None, memory: dict[str, Tensor] | None = None) -> None:
        super().__init__(record, Ledger())
        self.client, self.next = client, 0
        self.memory = {} if memory is None else memory

    def _carry(self, kind: int, payload: Payload, who: Receivers | None) -> Payload:
        number, self.next = self.next, self.next + 1
        where = f"round {self.record.index + 1}, message {number + 1} ({WORDS[kind]})"
        clients, num = (who or self.record.cohort).clients, payload.num_rows
        frame = self.record.frames[number] if number < len(self.record.frames) else None
        if frame is None or (frame.kind, frame.clients, len(frame.messages)) != (WORDS[kind], clients, num):
            raise Failed(f"{where}: {self._end} sends other messages, or to others, than in the run")
        sends, receives = self._rows(frame, clients)
        try:
            for row in sends:
                self._compare(payload, row, frame.messages[row], where)
            if not receives:
                return payload
            taken = set(receives)
            messages = [frame.messages[row] if row in taken else pack(payload, row) for row in range(num)]
            return unpack_as(payload, messages)
        except WireError as error:
            raise Failed(f"{where}: {self._end} cannot read it from the bytes and what it knows: {error}") from error

    def _rows(self, frame: Frame, clients: tuple[int, ...]) -> tuple[Sequence[int], Sequence[int]]:
        """(the rows that this end sends, those that it receives)."""
        whole = range(len(frame.messages))
        if self.client is None:
            return ((), whole) if frame.kind == "up" else (whole, ())
        if self.client not in clients:
            return (), ()
        if frame.kind in ("broadcast", "relay"):
            return (), whole
        own = (clients.index(self.client),)
        return (own, ()) if frame.kind == "up" else ((), own)

    def _compare(self, payload: Payload, row: int, sent: bytes, where: str) -> None:
        own = pack(payload, row)
        if own == sent:
            return
        place = next((at for at, (one, other) in enumerate(zip(own, sent)) if one != other), min(len(own), len(sent)))
        unseen = "samples that no message brought up" if self.client is None else "what no message brought down"
        raise Failed(
            f"{where}: {self._end} sent {len(sent)} bytes; from what it knows it makes {len(own)}, which differ from "
            f"byte {place} on. They depend on {unseen}"
        )

    @property
    def _end(self) -> str:
        return "the server" if self.client is None else f"client {self.client}"


@dataclass(frozen=True)
class OtherSenders(Key):
    """A run's key by which the senders of the messages called `names` draw otherwise.

    Attributes:
        names: of these messages. asked: gets the names of all messages whose sender's key is asked for.
    """

    names: tuple[str, ...] = ()
    asked: set[str] = field(default_factory=set, compare=False)

    def fold_in(self, *parts: int | str) -> Key:
        if parts[1:] == ("sender",):  # ctx.sender_key
            self.asked.add(str(parts[0]))
            parts += ("another",) if parts[0] in self.names else ()
        return replace(self, path=self.path + parts)


def record(
    simulation: Simulation, ledger: Ledger, donate_state: bool = False
) -> tuple[list[RecordedRound], list[dict[str, Tensor]], Any]:
    """The rounds of a run whose messages are bytes, the tested models after each, and the last state.

    Args:
        ledger: counts the messages. donate_state: as in `Simulation.round`.
    """
    rounds, models, state = [], [], simulation.init()
    for index in range(simulation.rounds):
        one = RecordedRound(index, simulation.cohort(index))
        rounds.append(one)
        recorded = replace(simulation, link=functools.partial(RecordingLink, one))  # type: ignore[arg-type]
        state, result = recorded.round(index, state, ledger, donate_state)
        one.metrics.update(result.metrics)
        if index == simulation.first_round and simulation.told_weights != "none":
            del one.frames[:2]  # the numbers of samples, which belong to what both ends know
        models.append({name: tensor.clone() for name, tensor in _models(simulation, index, state).items()})
    return rounds, models, state


def check_server(
    simulation: Simulation,
    rounds: Iterable[RecordedRound],
    models: Sequence[dict[str, Tensor]],
    names: Iterable[str] = (),
) -> set[str]:
    """What the server sends, and the models that are tested, follow from the bytes that came up.

    Args:
        names: of messages whose senders draw otherwise than in the run.
    Returns:
        the names of all messages whose senders draw.
    """
    key = OtherSenders(simulation.key.path, tuple(names))
    other = replace(simulation, dataset=others_samples(simulation, None), key=key)
    state = other.init()
    for one in rounds:
        link = ReplayLink(one, None)
        state = _round(other, state, one, link)
        for name, tensor in _models(other, one.index, state).items():
            held = name.partition(".")[0] in simulation.algorithm.client_models
            if not held and not torch.equal(tensor, models[one.index][name]):
                raise Failed(f"round {one.index + 1}: the model {name} depends on samples that no message brought up")
    return key.asked


def check_client(
    simulation: Simulation, rounds: Iterable[RecordedRound], client: int, names: Iterable[str] = ()
) -> None:
    """What a client sends follows from its own samples and the bytes that came down; `names` as in `check_server`."""
    key = OtherSenders(simulation.key.path, tuple(names))
    other = replace(simulation, dataset=others_samples(simulation, client), key=key)
    state, memory = other.init(), dict[str, Tensor]()
    for one in rounds:
        cohort = _seen_by(client, one.cohort, simulation)
        link = ReplayLink(replace(one, cohort=cohort), client, memory)
        state = _round(other, state, link.record, link)


def check_senders(
    simulation: Simulation,
    rounds: Sequence[RecordedRound],
    models: Sequence[dict[str, Tensor]],
    clients: Sequence[int],
    asked: Iterable[str],
) -> None:
    """What a sender alone draws for the messages `asked` goes to the other end in a message, if it is used there."""

    def passes(names: Iterable[str], client: int | None) -> bool:
        try:
            if client is None:
                check_server(simulation, rounds, models, names)
            else:
                check_client(simulation, rounds, client, names)
        except Exception:  # whatever the other end makes of it
            return False
        return True

    if passes(asked, None):
        return
    for name in sorted(asked):
        if not passes([name], None) and not all(passes([name], client) for client in clients):
            raise Failed(
                f"both ends draw by ctx.sender_key('{name}'), which only the sender knows: send what is drawn or its "
                f"seed, or draw by ctx.common('{name}', cohort).key, which both ends know"
            )


def others_samples(simulation: Simulation, client: int | None) -> Dataset:
    """The dataset with other samples of all clients but this one: drawn again from all, inputs and targets apart."""
    shards, data, num = simulation.shards, simulation.dataset, len(simulation.dataset.train)
    key = Key(("other samples",))
    inputs, targets = (
        torch.randint(num, (num,), generator=key.fold_in(name).generator()).to(data.train.x.device)
        for name in ("inputs", "targets")
    )
    if client is not None:
        first = int(shards.start[client])
        own = shards.order[first : first + int(shards.sizes[client])]
        inputs[own], targets[own] = own, own
    return replace(data, train=Samples(data.train.x[inputs], data.train.y[targets], data.train.owner))


def _seen_by(client: int, cohort: Cohort, simulation: Simulation) -> Cohort:
    """The cohort with the weights that this client knows: others, but those that it is told."""
    told = simulation.told_weights
    if simulation.algorithm.weights == "uniform" or told == "all":
        return cohort
    factors = [OTHER_WEIGHTS[row % len(OTHER_WEIGHTS)] for row in range(cohort.size)]
    if told == "own" and client in cohort.clients:
        factors[cohort.clients.index(client)] = 1.0
    return replace(cohort, weight=cohort.weight * torch.tensor(factors).to(cohort.weight))


def _round(simulation: Simulation, state: Any, one: RecordedRound, link: RecordingLink) -> Any:
    if not one.cohort.size:
        return state
    with_link = replace(simulation, link=lambda ledger: link)  # type: ignore[arg-type]
    new, _ = with_link.attempt(one.index, state, one.cohort, Ledger())
    if isinstance(link, ReplayLink) and link.next < len(one.frames):
        raise Failed(f"round {one.index + 1}: {link.next} messages instead of the run's {len(one.frames)}")
    return new


def _models(simulation: Simulation, index: int, state: Any) -> dict[str, Tensor]:
    """The tested models by name."""
    models = simulation.algorithm.evaluation_models(state, simulation.key.fold_in("deployed", index))
    return {f"{name}.{part}": tensor for name, one in models.items() for part, tensor in flatten(one).items()}
