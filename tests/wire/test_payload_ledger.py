"""Bits follow from the fields, and are counted on each link; entries that a coding does not write are refused."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedcomp.core.cohort import Cohort, Everyone, Listed
from fedcomp.wire import Field, Ledger, Link, Payload, WireError, WireLink
from fedcomp.wire.coding import Elias, Float, Rice, Shortest, Unsigned
from fedcomp.wire.legs import ALL, BROADCAST, COHORT, Legs
from fedcomp.wire.packing import layout, pack, unpack
from tests.conformance import world
from tests.looped import looped
from tests.outside import write_files
from tests.parts import Bernoulli, fedavg
from tests.refused import refused
from tests.thorough import thorough


def _payload() -> Payload:
    return Payload(
        {
            "values": Field(torch.tensor([[1.5, -2.0], [0.0, 3.0]]), Float()),
            "codes": Field(torch.tensor([[3, 1, 0], [2, 2, 1]]), Unsigned(2)),
            "gaps": Field(torch.tensor([[0, 5], [9, 1]]), Rice(2)),
        }
    )


def test_bits_are_the_sum_of_the_fields() -> None:
    # gaps: (0>>2)+3 + (5>>2)+3 = 7 and (9>>2)+3 + 3 = 8.
    assert _payload().bits.tolist() == [64 + 6 + 7, 64 + 6 + 8]
    assert int(_payload().total_bits) == 155


def test_a_decoder_may_expect_any_number_of_entries() -> None:
    payload = _payload()
    assert payload.expect(values=2, codes=None, gaps=2)[1] is payload.fields["codes"].data
    with pytest.raises(WireError, match="this message holds 2 values, 3 codes, 2 gaps; expected 2 values, any more"):
        payload.expect(values=2, more=None)


def test_static_fields_need_no_tensor() -> None:
    payload = Payload({"values": Field(torch.zeros(3, 5), Float())})
    assert payload.total_bits == 480
    assert isinstance(payload.total_bits, int)


def test_packing_round_trip_and_byte_padding() -> None:
    payload = _payload()
    messages = [pack(payload, row) for row in range(2)]
    assert [len(message) for message in messages] == [10, 10]
    back = unpack(messages, layout(payload), torch.device("cpu"))
    for name, field in payload.fields.items():
        assert torch.equal(back.fields[name].data, field.data)


@looped("known, bits", [(False, [3 + 8, 3 + 16, 3]), (True, [8, 16, 0])])
def test_ragged_rows_send_their_count_unless_both_ends_know_it(known: bool, bits: list[int]) -> None:
    data, count = torch.tensor([[7, 8, 0, 0], [1, 2, 3, 4], [0, 0, 0, 0]]), torch.tensor([2, 4, 0])
    payload = Payload({"codes": Field(data, Unsigned(4), count, count_known=known)})
    assert payload.bits.tolist() == bits
    assert [len(pack(payload, row)) for row in range(3)] == [-(-num // 8) for num in bits]
    assert layout(payload)["codes"].known_counts == ((2, 4, 0) if known else None)
    received = WireLink(Ledger()).up(payload)
    assert torch.equal(received.fields["codes"].data, data)
    assert received.fields["codes"].count.tolist() == [2, 4, 0]
    assert torch.equal(received.bits, payload.bits)


class Longer(Unsigned):
    """One bit more than it counts."""

    def write(self, row):
        return torch.cat((super().write(row), row.new_zeros(1, dtype=torch.uint8)))


class Fewer(Unsigned):
    """Its `fixed_bits`, which the ledger counts, are fewer than its `bits`."""

    def fixed_bits(self, num):
        return num


class Misread(Unsigned):
    """Reads zeros."""

    def read(self, bits, start, num, dtype):
        row, end = super().read(bits, start, num, dtype)
        return torch.zeros_like(row), end


@pytest.mark.parametrize(
    ("coding", "says"),
    [
        (Misread(3), "field codes arrives with other entries than were sent: its coding reads what was not sent"),
        (Longer(3), "field codes of row 0: Longer writes 13 bits of it, and counts 12"),
        (Shortest((Longer(3), Unsigned(4))), "field codes of row 0: Shortest writes 14 bits of it, and counts 13"),
        (Fewer(3), "field codes of row 0: Fewer writes 12 bits of it; its fixed_bits says 4"),
    ],
)
def test_a_coding_of_ones_own_that_counts_or_reads_wrongly_is_refused(coding, says) -> None:
    lying = Payload({"codes": Field(torch.tensor([[1, 2, 3, 4]]), coding)})
    for link in (Link(Ledger()), WireLink(Ledger())):
        with pytest.raises(WireError, match=says):
            link.up(lying)


CODEC = """
from dataclasses import dataclass

import torch

from fedcomp.compressor import Codec
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float, Unsigned


@dataclass(frozen=True)
class Faulty(Codec):
    fault: str

    def encode(self, x, common, sender_key):
        return Payload({"codes": {
            "not rounded": lambda: Field(x * 100 + 128, Unsigned(8)),
            "too large": lambda: Field(torch.full_like(x, 32768, dtype=torch.int64), Unsigned(8)),
            "too wide": lambda: Field(x, Float(torch.bfloat16)),
            "behind": lambda: Field(torch.ones_like(x, dtype=torch.int64), Unsigned(8), torch.tensor([2] * len(x))),
        }[self.fault]()})

    def decode(self, payload, common):
        return payload.expect(codes=common.dim)[0].float()
"""
REFUSED = {
    "not rounded": "field codes: its entries are torch.float32, but its coding, Unsigned, writes integers",
    "too large": "field codes of row 0: an entry of 32768 where 0 to 255 are allowed, as Unsigned says",
    "too wide": "field codes: its entries are torch.float32, but its coding, Float, writes torch.bfloat16",
    "behind": "field codes of row 0: entry 2 is not zero, but behind its count of 2, so that it is not sent",
}


@pytest.mark.parametrize("wire", ["packed", *thorough(["counted"])])
@pytest.mark.parametrize("fault", REFUSED)
def test_entries_that_the_coding_does_not_write_are_refused(fedcomp, capfd, tmp_path: Path, fault, wire) -> None:
    choice = "_target_: faulty.Faulty\nfault: none\nfeedback: none\n"
    write_files(tmp_path, {"faulty.py": CODEC, "compressor/faulty.yaml": choice})
    options = [f"compressor.fault={fault}", f"wire={wire}", "rounds=1", "quiet=true", "pictures=false"]
    assert fedcomp("--config-dir", str(tmp_path), "compressor=faulty", *options) == 1
    assert re.search(f"error: round 1(, client 0)?: {REFUSED[fault]}", capfd.readouterr().err)


def test_ranges_are_checked_in_the_first_round_with_clients_and_at_times_and_packed_in_every_round(monkeypatch) -> None:
    checked: list[int] = []
    monkeypatch.setattr(Payload, "check_range", lambda self: checked.append(index))
    for link in (Link, WireLink):
        sim = world.simulation(fedavg(), participation=Bernoulli(probability=0.15), rounds=22, link=link)
        state, taking = sim.init(), [index for index in range(22) if sim.cohort(index).size]
        assert {1, 16, 21} == {1, 8, 16, 21} & set(taking)  # first, 8th, 16th from there, last
        assert taking[0] == 1
        checked.clear()
        for index in range(22):
            state, _ = sim.round(index, state, Ledger())
        assert sorted(set(checked)) == ([1, 16, 21] if link is Link else taking)


def _floats(rows: int, num: int, paper: int | None = None) -> Payload:
    return Payload({"values": Field(torch.zeros(rows, num), Float())}, paper)


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


UNEQUAL = Payload({"codes": Field(torch.tensor([[1], [900]]), Elias())})


def _in_round(send: Callable[[Link, Payload], Payload], num_rows: int) -> Payload:
    """A message of so many rows in a round of two clients."""
    ledger = Ledger()
    ledger.begin_round(Cohort.of((0, 4), torch.ones(2)))
    return send(Link(ledger), _floats(num_rows, 1))


test_wrong_messages = refused(
    [
        (lambda: Link(Ledger()).up(Payload({})), "^a message without fields"),
        (
            lambda: Payload({"v": torch.ones(2, 3)}),  # type: ignore[dict-item]
            r"^field v is of the type Tensor, but must be a Field, as in Field\(x, Float\(\)\)$",
        ),
        (lambda: Payload({"v": [1.0]}), "^field v is of the type list, but must be a Field$"),  # type: ignore[dict-item]
        (
            lambda: Payload({"v": Field(torch.ones(2, 3).numpy(), Float())}),
            r"^field v: its data are of the type ndarray, but must be a tensor: take torch.from_numpy\(x\)$",
        ),
        (
            lambda: Payload({"v": Field([1.0], Float())}),
            "^field v: its data are of the type list, but must be a tensor$",
        ),
        *(
            (
                lambda count=count: Payload({"v": Field(torch.ones(2, 3), Float(), count)}),
                f"^field v: its count is {given}",
            )
            for count, given in [
                (torch.ones(2, 1).long(), r"torch.int64 \(2, 1\), but must be torch.int64 \(2,\), one for each row$"),
                (torch.ones(2), r"torch.float32 \(2,\), but must be"),
                ([1, 2], "list, but must be"),
            ]
        ),
        (
            lambda: Link(Ledger()).relay(UNEQUAL, coded=True),
            r"relaying by XOR needs messages of one length.*\(algorithm.relay=plain\)",
        ),
        (
            lambda: Payload({"a": Field(torch.ones(3), Float())}),
            r"^a message has fields of shapes {'a': \(3,\)}, but all must be \[M, n\]",
        ),
        (
            lambda: Payload({"a": Field(torch.ones(1, 3), Float()), "b": Field(torch.ones(2, 3), Float())}),
            r"^a message has fields of shapes {'a': \(1, 3\), 'b': \(2, 3\)}",
        ),
        (lambda: _in_round(Link.up, 1), "^a message of 1 rows, values, goes between the server and the 2 clients"),
        (lambda: _in_round(Link.unicast, 3), "^a message of 3 rows, values, goes between the server and the 2 clients"),
        (
            lambda: Link(Ledger()).broadcast(_floats(1, 1), 3),  # type: ignore[arg-type]
            "receivers=3, but must say to whom: the cohort, ctx.everyone",
        ),
    ]
)


TO_ALL = Link.broadcast, _floats(1, 4), Everyone(3)
COUNTED: list[tuple[int, list[tuple[Any, ...]], dict[str, float | None]]] = [
    (
        3,
        [(Link.up, _floats(3, 2)), (Link.unicast, _floats(3, 1)), TO_ALL],
        {"uplink": 192, "downlink": 96 + 3 * 128, "broadcast": 96 + 128, "paper/bits/uplink": None},
    ),
    # A paper's broadcast is counted for every receiver too.
    (
        3,
        [(Link.broadcast, _floats(1, 4, paper=10), Everyone(3))],
        {"downlink": 3 * 128, "broadcast": 128, "paper/downlink": 30, "paper/broadcast": 10},
    ),
    (2, [(Link.up, _floats(2, 1))], {"bits/total": 64, "paper/bits/total": None}),
    (2, [(Link.up, _floats(2, 1, paper=8))], {"bits/uplink": 64, "paper/bits/uplink": 16, "paper/bpp/uplink": 8.0}),
    # A paper that counts one of two directions has no total; but where nothing went down, nothing is left out.
    (
        2,
        [(Link.up, _floats(2, 1)), (Link.broadcast, _floats(1, 1, paper=0), Everyone(2))],
        {"paper/bits/uplink": 64, "paper/bits/downlink": 0, "paper/bits/total": None, "paper/bpp/total": None},
    ),
    (2, [(Link.up, _floats(2, 1, paper=8))], {"paper/bits/total": 16}),
    (
        2,
        [(Link.up, _floats(2, 1, paper=32)), (Link.unicast, _floats(2, 1, paper=8))],
        {"bits/total": 128, "paper/bits/total": 64 + 16},
    ),
]


@looped("size, sent, wanted", COUNTED)
def test_a_round_is_counted(size: int, sent: list[tuple[Any, ...]], wanted: dict[str, float | None]) -> None:
    """Of one parameter; None is not in the line. A message stands after the way that it goes."""
    ledger = Ledger()
    ledger.add_round(size)
    for way, *given in sent:
        way(Link(ledger), *given)
    found = ledger.counters() | ledger.metrics(1)
    assert {name: found.get(name) for name in wanted} == wanted


@looped("way, link", [(Link.up, "uplink"), (Link.unicast, "downlink"), (Link.unicast, "downlink_per_receiver")])
def test_bits_per_parameter_are_per_client_and_round(way: Callable[[Link, Payload], Payload], link: str) -> None:
    ledger = Ledger()
    for size in (2, 0, 4):
        ledger.add_round(size)
        if size:
            way(Link(ledger), _floats(size, 10))
    assert ledger.metrics(10)[f"bpp/{link}"] == ledger.metrics(10)["bpp/total"] == 32.0


def test_counts_that_depend_on_data_are_read_late_and_exactly() -> None:
    ledger = Ledger()
    payload = Payload({"gaps": Field(torch.tensor([[8, 0], [1, 1]]), Rice(1))})
    for _ in range(3):
        Link(ledger).broadcast(payload, Everyone(5))
    assert isinstance(payload.total_bits, torch.Tensor)
    assert ledger.counters()["downlink"] == 3 * 5 * (6 + 2 + 2 + 2) == 180


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


def test_legs_say_whose_they_are() -> None:
    legs = Legs((4, 9))
    for who in (None, Listed((4, 9)), Everyone(20), Listed((4, 8))):
        legs.add(BROADCAST, 32, who)
    assert [leg.who for leg in legs.made] == [COHORT, COHORT, ALL, (4, 8)]


def test_ledgers_add_up() -> None:
    ledger, other = Ledger(), Ledger()
    for one in (ledger, other):
        one.add_round(3)
        one.add_gradients(torch.tensor(5))
        Link(one).up(_floats(1, 2, paper=7))
    other.add_gradients(2)
    ledger.merge(other)
    counters, again = ledger.counters(), Ledger()
    assert (counters["client_rounds"], counters["gradients"]) == (6, 12)
    assert (counters["uplink"], counters["paper/uplink"]) == (128, 14)
    again.restore(counters)
    assert again.counters() == counters
