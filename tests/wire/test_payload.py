"""Bits follow from the fields; ragged rows pay for their count; entries that a coding does not write are refused."""

from pathlib import Path

import pytest
import torch

from fedcomp.wire import Field, Ledger, Link, Payload, WireError, WireLink
from fedcomp.wire.coding import Float, Rice, Unsigned
from fedcomp.wire.packing import layout, pack, unpack


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


def test_ragged_rows_send_their_count() -> None:
    data = torch.tensor([[7, 8, 0, 0], [1, 2, 3, 4], [0, 0, 0, 0]])
    payload = Payload({"codes": Field(data, Unsigned(4), count=torch.tensor([2, 4, 0]))})
    assert payload.bits.tolist() == [3 + 8, 3 + 16, 3]
    received = WireLink(Ledger()).up(payload)
    assert torch.equal(received.fields["codes"].data, data)
    assert received.fields["codes"].count.tolist() == [2, 4, 0]


def test_counts_that_both_ends_know_are_neither_sent_nor_charged() -> None:
    data = torch.tensor([[7, 8, 0, 0], [1, 2, 3, 4], [0, 0, 0, 0]])
    payload = Payload({"codes": Field(data, Unsigned(4), torch.tensor([2, 4, 0]), count_known=True)})
    assert payload.bits.tolist() == [8, 16, 0]
    assert [len(pack(payload, row)) for row in range(3)] == [1, 2, 0]
    assert layout(payload)["codes"].known_counts == (2, 4, 0)
    received = WireLink(Ledger()).up(payload)
    assert torch.equal(received.fields["codes"].data, data)
    assert received.fields["codes"].count.tolist() == [2, 4, 0]
    assert torch.equal(received.bits, payload.bits)


def test_a_false_width_is_caught_by_the_wire() -> None:
    class Liar(Unsigned):
        def write(self, row):
            return Unsigned(self.width + 2).write(row)

    lying = Payload({"codes": Field(torch.tensor([[1, 2, 3, 4]]), Liar(3))})
    assert Link(Ledger()).up(lying) is lying
    with pytest.raises(WireError, match="declares 12"):
        WireLink(Ledger()).up(lying)


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
        }[self.fault]()})

    def decode(self, payload, common):
        return payload.expect(codes=common.dim)[0].float()
"""
REFUSED = {
    "not rounded": "field codes: its entries are torch.float32, but its coding, Unsigned, writes integers",
    "too large": "field codes of row 0: an entry of 32768 where 0 to 255 are allowed, as Unsigned says",
    "too wide": "field codes: its entries are torch.float32, but its coding, Float, writes torch.bfloat16",
}


@pytest.mark.parametrize("wire", ["counted", "packed"])
@pytest.mark.parametrize("fault", REFUSED)
def test_entries_that_the_coding_does_not_write_are_refused(fedcomp, capfd, tmp_path: Path, fault, wire) -> None:
    (tmp_path / "compressor").mkdir()
    (tmp_path / "faulty.py").write_text(CODEC)
    (tmp_path / "compressor/faulty.yaml").write_text("_target_: faulty.Faulty\nfault: none\nfeedback: none\n")
    options = [f"compressor.fault={fault}", f"wire={wire}", "rounds=1", "quiet=true", "pictures=false"]
    assert fedcomp("--config-dir", str(tmp_path), "compressor=faulty", *options) == 1
    assert f"error: {REFUSED[fault]}" in capfd.readouterr().err


def test_ranges_are_checked_in_the_first_round_with_clients_and_packed_in_every_round(monkeypatch) -> None:
    from fedcomp.algorithm.fedavg import FedAvg
    from fedcomp.client.sgd import Sgd
    from fedcomp.compressor import Compressor
    from fedcomp.compressor.dense import Dense
    from fedcomp.participation.bernoulli import Bernoulli
    from fedcomp.server.sgd import Sgd as ServerSgd
    from fedcomp.wire import Ledger, Link, Payload, WireLink
    from tests.conformance import world

    checked: list[int] = []
    monkeypatch.setattr(Payload, "check_range", lambda self: checked.append(index))
    algorithm = FedAvg(Sgd(lr=0.1, batch_size=4), ServerSgd(), *[Compressor(Dense())] * 2)
    for link in (Link, WireLink):
        sim = world.simulation(algorithm, participation=Bernoulli(probability=0.1), rounds=20, link=link)
        state, taking = sim.init(), [index for index in range(20) if sim.cohort(index).size]
        assert taking[0] > 0
        assert len(taking) > 1
        checked.clear()
        for index in range(20):
            state, _ = sim.round(index, state, Ledger())
        assert sorted(set(checked)) == (taking[:1] if link is Link else taking)
