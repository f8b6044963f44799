"""QUIC-FL: its tables and their sender, its exact entries, its common rotation, its bits."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedcomp.compressor.rotations.quic_fl.quic_fl import QuicFL
from fedcomp.compressor.rotations.quic_fl.tables import SHARED_BITS, THRESHOLD, Table, table, values_of
from fedcomp.compressor.rotations.rotation import LARGEST, Rotation
from fedcomp.random.keys import Key
from fedcomp.wire import Payload, SharedKnowledge, WireError
from fedcomp.wire.coding import Ascending
from fedcomp.wire.packing import layout, pack, unpack
from tests.compressor.round_trips import decode_repeated, error, vector
from tests.looped import looped

MEAN_VARIANCE = {1: 1.46540, 2: 0.21350, 3: 0.042638, 4: 0.009523}
WORST = {1: 25.8, 2: 5.00, 3: 1.07, 4: 0.263}
GRID = np.linspace(-THRESHOLD, THRESHOLD, 4001)


def _exactly(parts: Table, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of what y is decoded to, by going through every h and both sides of the coin."""
    j = (np.searchsorted(parts.means, y, side="right") - 1).clip(0, len(parts.raised) - 1)
    up = (y - parts.means[j]) / np.diff(parts.means)[j]
    low = parts.values[np.arange(len(parts.values)), parts.codes[j]]
    rows = np.arange(len(y))
    raised = parts.raised[j]
    more = parts.values[raised, parts.codes[j, raised] + 1]
    mean, square = low.mean(1), (low**2).mean(1)
    less = low[rows, raised]
    mean = mean + up * (more - less) / len(parts.values)
    square = square + up * (more**2 - less**2) / len(parts.values)
    return mean, square - mean**2


@looped("bits", SHARED_BITS)
def test_tables_are_unbiased_and_as_good_as_stated(bits: int) -> None:
    parts = table(bits)
    mean, variance = _exactly(parts, GRID)
    assert np.abs(mean - GRID).max() < 1e-7
    assert variance == pytest.approx(parts.variance(GRID), abs=1e-7 * np.abs(parts.values).max() ** 2)
    assert variance.max() == pytest.approx(WORST[bits], rel=0.02)
    assert parts.mean_variance == pytest.approx(MEAN_VARIANCE[bits], abs=1e-5)
    assert parts.values == pytest.approx(-parts.values[::-1, ::-1], abs=1e-8)


def test_wrong_tables_are_refused() -> None:
    values = table(2).values
    with pytest.raises(ValueError, match="must ascend with the code in every row"):
        Table(values[:, ::-1])
    with pytest.raises(ValueError, match=r"must reach from -T to T = 3.0973 .* reaches from -2.787"):
        Table(0.9 * values)
    lines = [{"h": "0", "code": "0", "value": "1"}] * 2
    with pytest.raises(ValueError, match="one value for each of 32 shared numbers and 4 codes, but this one has 2"):
        values_of(lines, 5, 2)


def test_error_given_the_rotation_is_the_tables() -> None:
    dim, num = 600, 4000
    x = vector("lognormal", dim)
    y = decode_repeated(QuicFL(2), x, (dim,), num)
    z = Rotation(dim).forward(x[None], Key(("repeated",)), torch.zeros(1, dtype=torch.int64))[0].double()
    scaled = (z * dim**0.5 / z.norm()).numpy()
    expected = table(2).variance(scaled)[np.abs(scaled) <= THRESHOLD].sum() / dim
    mean, deviation = error(y, x)
    assert mean == pytest.approx(expected, abs=4 * deviation)


@looped("bits", [1, 2])
def test_mean_of_equal_vectors_under_one_rotation(bits: int) -> None:
    dim, num, rounds = 1024, 100, 20
    x, codec = vector("lognormal", dim), QuicFL(bits)
    errors = []
    for round in range(rounds):
        known = SharedKnowledge(Key(("mean", round)), torch.arange(num), (dim,))
        payload = codec.encode(x.expand(num, -1), known, Key(("coin", round)))
        mean = codec.weighted_sum(payload, known, torch.full((num,), 1 / num))
        errors.append(float((mean - x).square().sum() / x.square().sum()))
    deviation = float(np.std(errors) / rounds**0.5)
    assert np.mean(errors) * num == pytest.approx(MEAN_VARIANCE[bits], abs=4 * num * deviation)


def test_large_entries_are_exact_and_few() -> None:
    dim = 512
    x = 0.001 * vector("gaussian", dim)[None]
    known = SharedKnowledge(Key(("large",)), torch.arange(1), (dim,))
    x += 10 * Rotation(dim).inverse(torch.eye(dim)[7:8], known.key, torch.zeros(1, dtype=torch.int64))
    codec = QuicFL(1)
    payload = codec.encode(x, known, Key())
    places, values = payload.fields["exact_places"], payload.fields["exact_values"]
    assert (int(places.count[0]), int(places.data[0, 0])) == (1, 7)  # type: ignore[index]
    assert float(values.data[0, 0]) == pytest.approx(dim**0.5, rel=1e-3)
    one_hot = torch.eye(dim)[3:4]
    sent = codec.encode(one_hot, known, Key()).fields["exact_places"]
    assert int(sent.count[0]) == 0  # type: ignore[index]


@looped("dim, pieces", [(1, 1), (3, 1), (5000, 1), (LARGEST + 100, 2)])
@looped("seed", ["sent", "derived"])
def test_bits(dim: int, pieces: int, seed: str) -> None:
    codec = QuicFL(2, seed_cost=seed)
    known = SharedKnowledge(Key(("bits",)), torch.arange(2), (dim,))
    payload = codec.encode(vector("lognormal", dim).expand(2, -1), known, Key())
    count = payload.fields["exact_places"].count
    assert count is not None
    numbers = 2 * codec.most_exact(dim).bit_length()  # each of the two fields of exact entries begins with their number
    fixed = 2 * dim + 32 * pieces + numbers + (64 if seed == "sent" else 0)
    assert payload.bits.tolist() == (fixed + count * (32 + (dim - 1).bit_length())).tolist()
    assert payload.paper_bits == round(2.125 * dim)
    if dim > 4000:
        assert (count > 0).all()


@looped(
    "name, changed, line",
    [
        ("norms", [-1.0], "an entry of -1.0 where a finite number, 0"),
        ("norms", [math.inf], "an entry of inf where a finite"),
        ("exact_values", [3.0, 4.0], "an entry of 3.0 where a finite number of magnitude 3.097266 or more"),
        ("exact_values", [math.nan, 4.0], "an entry of nan where a finite number of magnitude"),
        ("exact_places", [5, 5], "not in ascending order"),
    ],
)
def test_foreign_messages_are_refused(name: str, changed: list[float], line: str) -> None:
    codec, known = QuicFL(1, seed_cost="derived"), SharedKnowledge(Key(), torch.arange(1), (600,))
    payload = codec.encode(vector("gaussian", 600)[None], known, Key())
    fields, two = dict(payload.fields), {"exact_places": [1, 2], "exact_values": [4.0, 4.0]}
    for one, values in ({name: changed} if name == "norms" else two | {name: changed}).items():
        data = fields[one].data.clone()
        data[0, : len(values)] = torch.tensor(values, dtype=data.dtype)
        fields[one] = replace(fields[one], data=data, count=None if name == "norms" else torch.tensor([2]))
    message = pack(Payload(fields), 0)
    with pytest.raises(WireError, match=line):
        unpack([message], layout(payload), torch.device("cpu"))
    assert isinstance(payload.fields["exact_places"].coding, Ascending)
