"""Normalisation layers' parameters beside a compressor; `codec_error=true`: what is logged, nothing else."""

import json
from pathlib import Path

import pytest
import torch

from fedcomp.core.cohort import Cohort, Everyone
from fedcomp.core.parameter_layout import BIAS, NORMALISATION, WEIGHT, ParameterSubset, ParameterTensor
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger, Link, SharedKnowledge
from tests.looped import looped
from tests.parts import QSGD, Codec, Compressor, Dense, ErrorFeedback, RandK, Sign

TENSORS = (ParameterTensor(30, WEIGHT), ParameterTensor(3, NORMALISATION), ParameterTensor(3, BIAS))
SIZES = tuple(tensor.size for tensor in TENSORS)
COHORT = Cohort.of((1, 4), torch.tensor([0.25, 0.75]))
X = torch.randn(2, 36, generator=Key(("x",)).generator())


def sent(compressor: Compressor) -> tuple[torch.Tensor, Ledger]:
    """What the receiver estimates of two senders' rows X, and the ledger."""
    ledger, common = Ledger(), SharedKnowledge(Key(("k",)), COHORT.ids, SIZES)
    ledger.add_round(2)
    memory = compressor.init(5, X[0])
    estimate, _ = compressor.send_up(X, memory, COHORT, Link(ledger), common, Key(("coin",)))
    return estimate, ledger


def test_other_columns_are_exact_and_counted() -> None:
    spared = Compressor(Sign(granularity="model")).for_tensors(TENSORS)
    estimate, ledger = sent(spared)
    assert torch.allclose(estimate[30:33], COHORT.weight @ X[:, 30:33])
    columns = [*range(30), *range(33, 36)]
    part, signs = X[:, columns], torch.where(X[:, columns] >= 0, 1.0, -1.0)
    assert torch.allclose(estimate[columns], COHORT.weight @ (signs * part.abs().mean(1, keepdim=True)))
    assert ledger.counters()["uplink"] == 2 * (33 + 32 + 3 * 32)


@looped("codec", [Sign(granularity="model"), RandK(0.5), QSGD(), QSGD(coding="fixed")])
def test_papers_count_what_is_compressed_alone(codec: Codec) -> None:
    """Whether a codec's paper counts its message in its own way or as it is."""
    _, ledger = sent(Compressor(codec).for_tensors(TENSORS))
    columns = [*range(30), *range(33, 36)]
    common = SharedKnowledge(Key(("k",)), COHORT.ids, (30, 3))
    alone = codec.encode(X[:, columns], common, Key(("coin",)))
    assert ledger.counters()["paper/uplink"] == int(alone.total_paper_bits)
    assert ledger.counters()["uplink"] == int(alone.total_bits) + 2 * 3 * 32


class Against(Dense):
    """Sends differences to what both ends know."""

    def encode(self, x, common, sender_key):
        return super().encode(x - common.side_information, common, sender_key)

    def decode(self, payload, common):
        return super().decode(payload, common) + common.side_information


def test_side_information_is_that_of_the_compressed_columns() -> None:
    spared = Compressor(Against(), part=ParameterSubset.of(TENSORS, lambda tensor: tensor.kind != NORMALISATION))
    common = SharedKnowledge(Key(("k",)), COHORT.ids, SIZES, side_information=torch.arange(36.0).expand(2, -1))
    estimate, _ = spared.send_up(X, spared.init(5, X[0]), COHORT, Link(Ledger()), common, Key(("coin",)))
    assert torch.allclose(estimate, COHORT.weight @ X, atol=1e-5)


def test_a_message_by_itself_is_decoded_whole() -> None:
    sign = Compressor(Sign(granularity="model"), ErrorFeedback())
    spared, common = sign.for_tensors(TENSORS), SharedKnowledge(Key(("k",)), COHORT.ids, SIZES)
    payload, memory = spared.encode(X, spared.init(5, X[0]), COHORT, common, Key(("coin",)))
    rows, owed = spared.decode(payload, common), spared.sender_memory(memory)
    assert memory.sender.shape == (5, 33)
    assert torch.equal(rows[:, 30:33], X[:, 30:33])
    assert torch.allclose(rows + owed[COHORT.ids], X)
    assert torch.equal(owed[:, 30:33], torch.zeros(5, 3))
    assert (spared.num_coded(36), sign.num_coded(36)) == (33, 36)


def test_nothing_to_spare_is_the_compressor_itself() -> None:
    sign, dense = Compressor(Sign()), Compressor(Dense())
    assert sign.for_tensors((TENSORS[0], TENSORS[2])) == sign
    assert dense.for_tensors(TENSORS) == dense
    assert sign.for_tensors((TENSORS[1],)) == sign
    assert sign.for_tensors(TENSORS).part is not None
    assert ParameterSubset.of(TENSORS, lambda tensor: tensor.kind == NORMALISATION).size == 3


THREE = Cohort.of((0, 1, 2), torch.full((3,), 1 / 3))
KNOWN = SharedKnowledge(Key(("measured",)), THREE.ids, (24,))
ROWS = torch.randn(3, 24, generator=torch.Generator().manual_seed(0)) * torch.tensor([[1.0], [100.0], [0.0]])


def _estimate(compressor: Compressor, link: Link) -> torch.Tensor:
    return compressor.send_up(ROWS, compressor.init(3, ROWS[0]), THREE, link, KNOWN, Key())[0]


def test_error_is_relative_and_a_mean_over_senders_beside_its_closed_form() -> None:
    link, plain = Link(Ledger()), Link(Ledger())
    measured = _estimate(Compressor(RandK(k=6), measures_error=True), link)
    assert torch.equal(measured, _estimate(Compressor(RandK(k=6)), plain))
    decoded = RandK(k=6).decode(RandK(k=6).encode(ROWS, KNOWN, Key()), KNOWN)
    each = ((decoded - ROWS).square().sum(1) / ROWS.square().sum(1))[:2]  # a row of zeros has no error
    assert float(link.measured["codec/error"]) == pytest.approx(float(each.sum()) / 3)
    assert float(link.measured["codec/theory"]) == pytest.approx((24 / 6 - 1) * 2 / 3)
    assert not plain.measured


def test_what_the_memory_adds_is_sent_too_and_the_receiver_gets_no_measurement() -> None:
    compressor = Compressor.of(Sign(), "error")
    memory = compressor.init(3, ROWS[0])
    memory.sender[:] = 5.0
    link = Link(Ledger())
    measuring = Compressor(Sign(), compressor.feedback, measures_error=True)
    payload, _ = measuring.encode(ROWS, memory, THREE, KNOWN, Key())
    expected = (Sign().decode(payload, KNOWN) - ROWS - 5).square().sum(1) / (ROWS + 5).square().sum(1)
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
