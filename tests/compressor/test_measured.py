"""`codec_error=true`: what is logged, that nothing else changes, and that the receiver sees none of it."""

import json
from pathlib import Path

import pytest
import torch

from fedcomp.core.cohort import Cohort, Everyone
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger, Link, SharedKnowledge
from tests.parts import Compressor, RandK, Sign

COHORT = Cohort.of((0, 1, 2), torch.full((3,), 1 / 3))
KNOWN = SharedKnowledge(Key(("measured",)), COHORT.ids, (24,))
X = torch.randn(3, 24, generator=torch.Generator().manual_seed(0)) * torch.tensor([[1.0], [100.0], [0.0]])


def _sent(compressor: Compressor, link: Link) -> torch.Tensor:
    return compressor.send_up(X, compressor.init(3, X[0]), COHORT, link, KNOWN, Key())[0]


def test_error_is_relative_and_a_mean_over_senders_beside_its_closed_form() -> None:
    link, plain = Link(Ledger()), Link(Ledger())
    assert torch.equal(_sent(Compressor(RandK(k=6), measures_error=True), link), _sent(Compressor(RandK(k=6)), plain))
    decoded = RandK(k=6).decode(RandK(k=6).encode(X, KNOWN, Key()), KNOWN)
    each = ((decoded - X).square().sum(1) / X.square().sum(1))[:2]  # a row of zeros has no error
    assert float(link.measured["codec/error"]) == pytest.approx(float(each.sum()) / 3)
    assert float(link.measured["codec/theory"]) == pytest.approx((24 / 6 - 1) * 2 / 3)
    assert not plain.measured


def test_what_the_memory_adds_is_sent_too_and_the_receiver_gets_no_measurement() -> None:
    compressor = Compressor.of(Sign(), "error")
    memory = compressor.init(3, X[0])
    memory.sender[:] = 5.0
    link = Link(Ledger())
    measuring = Compressor(Sign(), compressor.feedback, measures_error=True)
    payload, _ = measuring.encode(X, memory, COHORT, KNOWN, Key())
    expected = (Sign().decode(payload, KNOWN) - X - 5).square().sum(1) / (X + 5).square().sum(1)
    received = link.broadcast(payload, Everyone(3))
    assert not received.measured
    assert float(link.measured["codec/error_down"]) == pytest.approx(float(expected.mean()))
    assert set(link.measured) == {"codec/error_down"}  # signs have no closed form


@pytest.mark.parametrize("repeats", [1, 2])
def test_a_run_logs_it_if_asked(repeats: int, tmp_path: Path, fedcomp) -> None:
    small = "rounds=2", "num_clients=3", "pictures=false", "quiet=true", f"repeats={repeats}", f"output_root={tmp_path}"
    lossy = "compressor=randk", "compressor.fraction=0.25", "compressor@downlink=sign"
    lines = []
    for asked in ("true", "false"):
        assert fedcomp(*small, *lossy, f"codec_error={asked}", f"name=error_{asked}") == 0
        (record,) = (tmp_path / f"error_{asked}").rglob("metrics.jsonl")
        lines.append(json.loads(record.read_text().splitlines()[-1]))
    measured, plain = lines
    own = {name: measured.pop(name) for name in list(measured) if "codec/" in name}
    assert own["codec/theory"] == pytest.approx(3, rel=0.01)
    assert own["codec/error"] == pytest.approx(3, rel=0.2)
    assert 0 < own["codec/error_down"] < 1
    assert {**measured, "seconds": 0} == {**plain, "seconds": 0}
