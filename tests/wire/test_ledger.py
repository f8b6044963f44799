"""What is counted on which link, and how it is reported."""

import pytest
import torch

from fedcomp.core.cohort import Everyone, Listed
from fedcomp.wire import Field, Ledger, Link, Payload, WireLink
from fedcomp.wire.coding import Elias, Float, Rice


def _floats(rows: int, num: int, paper: int | None = None) -> Payload:
    return Payload({"values": Field(torch.zeros(rows, num), Float())}, paper)


def test_links() -> None:
    ledger = Ledger()
    link = Link(ledger)
    link.up(_floats(3, 2))
    link.unicast(_floats(3, 1))
    link.broadcast(_floats(1, 4), Everyone(3))
    counters = ledger.counters()
    assert counters["uplink"] == 192
    assert counters["downlink"] == 96 + 3 * 128
    assert counters["broadcast"] == 96 + 128


def test_a_relay_goes_to_all_others() -> None:
    """Three clients' 64 bits: each gets two; a broadcast needs three of them, or the XORs of two pairs."""
    for link in (Link, WireLink):
        for coded, broadcast in ((False, 3 * 64), (True, 2 * 64)):
            ledger, payload = Ledger(), _floats(3, 2)
            received = link(ledger).relay(payload, coded)
            assert torch.equal(received.fields["values"].data, payload.fields["values"].data)
            counters = ledger.counters()
            assert (counters["uplink"], counters["downlink"], counters["broadcast"]) == (0, 6 * 64, broadcast)
            assert counters["paper/broadcast"] == 2 * 64


def test_messages_of_different_length_are_not_mixed() -> None:
    codes = Field(torch.tensor([[1], [900]]), Elias())
    with pytest.raises(ValueError, match=r"relaying by XOR needs messages of one length.*\(algorithm.relay=plain\)"):
        Link(Ledger()).relay(Payload({"codes": codes}), coded=True)


def test_bits_per_parameter_is_per_client_and_round() -> None:
    ledger = Ledger()
    for size in (2, 0, 4):
        ledger.add_round(size)
        if size:
            Link(ledger).up(_floats(size, 10))
    line = ledger.metrics(10)
    assert line["bits/uplink"] == 6 * 320
    assert line["bpp/uplink"] == 32.0
    assert line["bpp/total"] == 32.0
    assert not any(name.startswith("paper/") for name in line)


def test_paper_count_stands_beside() -> None:
    ledger = Ledger()
    ledger.add_round(2)
    Link(ledger).up(_floats(2, 10, paper=100))
    line = ledger.metrics(10)
    assert line["bits/uplink"] == 640
    assert line["paper/bits/uplink"] == 200
    assert line["paper/bpp/uplink"] == 10.0


def test_counts_that_depend_on_data_are_read_late_and_exactly() -> None:
    ledger = Ledger()
    payload = Payload({"gaps": Field(torch.tensor([[8, 0], [1, 1]]), Rice(1))})
    for _ in range(3):
        Link(ledger).broadcast(payload, Everyone(5))
    assert isinstance(payload.total_bits, torch.Tensor)
    assert ledger.counters()["downlink"] == 3 * 5 * (6 + 2 + 2 + 2)
    assert ledger.counters()["downlink"] == 180


def test_idle_receivers_share_the_downlink() -> None:
    """Two of twenty take part; everybody hears 40 bits, and the two another 30, for 10 parameters."""
    ledger, other = Ledger(), Ledger()
    for _ in range(3):
        ledger.add_round(2)
        Link(ledger).broadcast(_floats(1, 1), Listed((4, 9)))  # a part of the twenty
        Link(ledger).broadcast(_floats(1, 1, paper=10), Everyone(20))
    line = ledger.metrics(10)
    assert line["bpp/downlink"] == (2 * 32 + 20 * 32) / (2 * 10)
    assert line["bpp/downlink_per_receiver"] == (2 * 32 + 20 * 32) / (20 * 10)
    assert line["paper/bpp/downlink_per_receiver"] == (2 * 32 + 20 * 10) / (20 * 10)
    other.restore(ledger.counters())
    assert other.metrics(10) == line
    other.merge(ledger)
    assert other.receiver_rounds == 6 * 20


def test_without_idle_receivers_a_receiver_hears_what_a_participant_is_sent() -> None:
    ledger = Ledger()
    for size in (3, 0, 2):
        ledger.add_round(size)
        if size:
            Link(ledger).unicast(_floats(size, 5))
    line = ledger.metrics(5)
    assert line["bpp/downlink_per_receiver"] == line["bpp/downlink"] == 32.0


def test_a_paper_that_counts_one_of_two_directions_has_no_total() -> None:
    ledger = Ledger()
    ledger.add_round(2)
    Link(ledger).up(_floats(2, 1))
    assert "paper/bits/total" not in ledger.metrics(1)  # counted alike: no paper/ at all
    Link(ledger).broadcast(_floats(1, 1, paper=0), Everyone(2))
    line = ledger.metrics(1)
    assert (line["paper/bits/uplink"], line["paper/bits/downlink"]) == (64, 0)
    assert not {"paper/bits/total", "paper/bpp/total"} & line.keys()
    one_way = Ledger()
    Link(one_way).up(_floats(2, 1, paper=8))
    assert one_way.metrics(1)["paper/bits/total"] == 16  # nothing went down, so nothing is left out


def test_a_broadcast_says_to_whom() -> None:
    with pytest.raises(ValueError, match=r"receivers=3, but must say to whom: the cohort, ctx.everyone"):
        Link(Ledger()).broadcast(_floats(1, 1), 3)  # type: ignore[arg-type]


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
