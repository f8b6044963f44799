"""A codec of one's own whose entries are not what its codings write: refused in one line, with either wire."""

from pathlib import Path

import pytest

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
