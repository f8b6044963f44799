"""A round's legs as exchanges: down, work, up, in this order, each possibly empty.

A phase is a maximal run of legs down, of work, or up; the bits of a client in it are the sum over its legs: an update
and its statistics are one transfer. A new exchange begins where a down or work phase follows an up phase, since the
server needs all messages up before it sends again.

Shape legend: M clients of the cohort, N clients in all, L rows of a leg.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fedcomp.network.traffic.rounds import NUMBER, ROW, TO_ALL, TO_COHORT, TO_LISTED, Round, Template
from fedcomp.wire.legs import BROADCAST, RELAY, UNICAST, UP, WORK, XOR_RELAY


@dataclass
class Exchange:
    """One exchange.

    Attributes:
        down: [N] int64 bits that go to each client alone. once: (bits, receivers) of what is sent once for several.
        work: [N] int64 component gradients. up: [N] int64 bits of each client.
    """

    down: np.ndarray
    work: np.ndarray
    up: np.ndarray
    once: list[tuple[int, np.ndarray]] = field(default_factory=list)


def exchanges(one: Round, num_clients: int, multicast: bool) -> list[Exchange]:
    """The exchanges of a round. `multicast`: whether broadcasts and relays are sent once, or to each receiver."""
    found: list[Exchange] = []
    cohort = np.array(one.clients, np.int64)
    reached = cohort if one.on_time is None else cohort[one.on_time]
    for number, (kind, who, ids, amounts) in zip(exchange_numbers(one.template), rows(one, cohort), strict=True):
        if number == len(found):
            found.append(Exchange(*np.zeros((3, num_clients), np.int64)))
        exchange, receivers = found[-1], ids
        if who == TO_COHORT and len(found) > 1 and one.on_time is not None:  # who was late is gone
            receivers, amounts = reached, amounts if kind == BROADCAST else amounts[one.on_time]
        if kind in (UP, WORK, UNICAST):
            to = exchange.up if kind == UP else exchange.work if kind == WORK else exchange.down
            if who == TO_LISTED:  # who may be there twice
                np.add.at(to, receivers, amounts)
            else:
                to[receivers] += amounts
        elif kind == BROADCAST:
            everybody = np.arange(num_clients) if who == TO_ALL else receivers
            _send(exchange, int(amounts[0]), everybody, multicast)
        else:
            _relay(exchange, kind, amounts, receivers, multicast)
    return found


def exchange_numbers(template: Template) -> list[int]:
    """To which exchange each leg belongs, from 0 on."""
    numbers: list[int] = []
    number, after_up = 0, False
    for leg in template:
        up = leg.kind == UP
        number += after_up and not up
        numbers.append(number)
        after_up = up
    return numbers


def rows(one: Round, cohort: np.ndarray) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """(kind, who, clients, amounts [L]) of each leg; of a broadcast the amount is [1], its bits in all."""
    listed, varying = iter(one.listed), iter(one.varying)
    for leg in one.template:
        ids = np.array(next(listed), np.int64) if leg.who == TO_LISTED else cohort
        if leg.form == NUMBER:
            amounts = np.full(1 if leg.kind == BROADCAST else len(ids), leg.value, np.int64)
        else:
            amounts = np.frombuffer(leg.row, np.int64) if leg.form == ROW else next(varying)
        yield leg.kind, leg.who, ids, amounts


def _send(exchange: Exchange, bits: int, receivers: np.ndarray, multicast: bool) -> None:
    if multicast and len(receivers) and bits:
        exchange.once.append((bits, receivers))
    elif not multicast:
        exchange.down[receivers] += bits


def _relay(exchange: Exchange, kind: int, amounts: np.ndarray, ids: np.ndarray, multicast: bool) -> None:
    """What reaches client i are the messages of all others; once, M messages, or M - 1 of them by XOR."""
    total = int(amounts.sum())
    if not multicast:
        exchange.down[ids] += total - amounts
        return
    assert kind in (RELAY, XOR_RELAY)
    if len(ids) > 1:
        _send(exchange, total - int(amounts[0]) if kind == XOR_RELAY else total, ids, multicast=True)
