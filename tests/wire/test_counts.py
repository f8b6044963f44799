"""What papers count on each link, and ledgers that are added up."""

from __future__ import annotations

import torch

from fedcomp.core.cohort import Everyone
from fedcomp.wire import Field, Ledger, Link, Payload
from fedcomp.wire.coding import Float


def _floats(rows: int, num: int, paper: int) -> Payload:
    return Payload({"values": Field(torch.zeros(rows, num), Float())}, paper)


def test_a_papers_broadcast_is_counted_for_every_receiver_too() -> None:
    ledger = Ledger()
    Link(ledger).broadcast(_floats(1, 4, paper=10), Everyone(3))
    counters = ledger.counters()
    assert (counters["downlink"], counters["broadcast"]) == (3 * 128, 128)
    assert (counters["paper/downlink"], counters["paper/broadcast"]) == (30, 10)


def test_a_paper_that_counts_otherwise_only_downwards_stands_beside() -> None:
    ledger = Ledger()
    ledger.add_round(2)
    Link(ledger).up(_floats(2, 1, paper=32))
    Link(ledger).unicast(_floats(2, 1, paper=8))
    line = ledger.metrics(1)
    assert (line["bits/total"], line["paper/bits/total"]) == (128, 64 + 16)


def test_ledgers_add_up() -> None:
    ledger, other = Ledger(), Ledger()
    for one in (ledger, other):
        one.add_round(3)
        one.add_gradients(torch.tensor(5))
        Link(one).up(_floats(1, 2, paper=7))
    other.add_gradients(2)
    ledger.merge(other)
    counters = ledger.counters()
    assert (counters["client_rounds"], counters["gradients"]) == (6, 12)
    assert (counters["uplink"], counters["paper/uplink"]) == (128, 14)
    again = Ledger()
    again.restore(counters)
    assert again.counters() == counters
