"""Top-k, whole and in chunks: exactness, which of equal entries are kept, two magnitudes, bits of places."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedcomp.compressor.sparsifiers.chunk_topk import ChunkTopK
from fedcomp.compressor.sparsifiers.topk import stable_topk
from fedcomp.random.keys import Key
from fedcomp.wire import Payload, SharedKnowledge, WireError
from fedcomp.wire.coding import Unsigned
from fedcomp.wire.packing import layout, pack, unpack
from tests.compressor.round_trips import gauss, round_trip
from tests.looped import looped
from tests.parts import Codec, TopK

CNN8, WHOLE = 1_181_536, 4096


def _payload(codec: Codec, x: Tensor) -> Payload:
    return codec.encode(x, SharedKnowledge(Key(), torch.arange(len(x)), (x.shape[1],)), Key())


@looped("positions", ["index", "bitmap", "rice"])
def test_keeps_the_largest(positions: str) -> None:
    x = torch.tensor([[0.1, -5.0, 2.0, 0.0, 3.0], [1.0, 1.5, -0.2, -9.0, 0.3]])
    kept = round_trip(TopK(0.4, positions), x)
    assert torch.equal(kept, torch.tensor([[0.0, -5.0, 0, 0, 3.0], [0, 1.5, 0, -9.0, 0]]))


def test_sparse_vectors_and_full_fraction_are_exact() -> None:
    x = torch.zeros(1, 200)
    x[0, [3, 77, 199]] = torch.tensor([1.0, -2.0, 0.5])
    assert torch.equal(round_trip(TopK(0.015), x), x)
    y = torch.randn(2, 33)
    for positions in ("auto", "index", "bitmap", "rice"):
        assert torch.equal(round_trip(TopK(1.0, positions), y), y)


def test_code_is_the_cheapest_for_k_and_dimension() -> None:
    assert TopK(0.03).index_code_of(CNN8) == "rice"
    assert TopK(0.5).index_code_of(1000) == "bitmap"
    assert TopK(0.001).index_code_of(1000) == "index"


def test_bits_per_parameter_of_rice_codes() -> None:
    """3 % of the network of docs/methods.md: the bound of any position code is 1.154; Rice's is close to it."""
    assert 1.154 < int(_payload(TopK(0.03, "rice"), gauss(1, CNN8, seed=1)).bits) / CNN8 < 1.160


def test_rice_bits_are_those_of_the_gaps() -> None:
    x = torch.zeros(1, 64)
    x[0, [5, 6, 40]] = 1.0
    payload = _payload(TopK(3 / 64, "rice"), x)
    r = payload.fields["gaps"].coding.parameter
    assert payload.fields["gaps"].data.tolist() == [[5, 0, 33]]
    assert payload.bits.tolist() == [96 + sum((gap >> r) + 1 + r for gap in (5, 0, 33))]


def test_bit_budget() -> None:
    # One bit per parameter pays for 1 / 53 of the entries: 32 bits of a value, 21 of its place among CNN8.
    assert TopK(match_bits=1.0, positions="index").num_sent(CNN8) == CNN8 // 53 == 22_293
    for positions in ("auto", "index", "bitmap", "rice"):
        found = int(_payload(TopK(match_bits=1.5, positions=positions), gauss(1, 3000)).bits)
        assert 0.9 * 1.5 * 3000 < found <= 1.5 * 3000


@looped("dtype", [torch.float32, torch.float64])
@looped("levels", [1, 2, 7, 100, 10_000_000])
def test_of_equal_entries_the_first_are_taken(levels: int, dtype: torch.dtype) -> None:
    size = torch.randint(0, levels, (5, 3001), generator=torch.Generator().manual_seed(levels)).to(dtype)
    order = size.sort(dim=1, descending=True, stable=True).indices
    for k in (1, 2, 30, 1000, 3000, 3001):
        assert torch.equal(stable_topk(size, k), order[:, :k].sort(dim=1).values), k


def test_every_row_has_its_own_threshold() -> None:
    size = torch.tensor([[3.0, 3, 3, 1], [0, 0, 0, 5], [4, 3, 2, 1]])
    assert stable_topk(size, 2).tolist() == [[0, 1], [0, 3], [0, 1]]
    assert size.tolist() == [[3.0, 3, 3, 1], [0, 0, 0, 5], [4, 3, 2, 1]]
    assert stable_topk(size[:, :1], 0).shape == (3, 0)


@looped("positions", ["index", "rice", "auto"])
def test_every_chunk_sends_its_share(positions: str) -> None:
    decoded = round_trip(ChunkTopK(0.1, 30, "float", positions), x := gauss(3, 108), (70, 8, 30))
    first = 0
    for width, kept in ((30, 3), (30, 3), (10, 1), (8, 1), (30, 3)):
        part, own = decoded[:, first : first + width], x[:, first : first + width]
        assert ((part != 0).sum(1) == kept).all()
        best = own.abs().topk(kept, dim=1).indices
        assert torch.equal(part.gather(1, best), own.gather(1, best))
        first += width


def test_one_chunk_is_top_k_and_what_is_left_is_smaller() -> None:
    x = gauss(4, 100)
    assert torch.equal(round_trip(ChunkTopK(0.2, values="float"), x), round_trip(TopK(0.2), x))
    chunked = round_trip(ChunkTopK(0.2, 25, "float"), x)
    assert ((chunked - x).square().sum(1) <= 0.8 * x.square().sum(1)).all()


def _laplace(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(64, WHOLE, generator=generator).sign() * torch.empty(64, WHOLE).exponential_(generator=generator)


@looped("x, kept, whole", [(gauss(64, WHOLE), 0.0036, 0.9159), (_laplace(1), 0.0112, 0.8402)])
def test_two_magnitudes_have_the_error_of_the_table(x: Tensor, kept: float, whole: float) -> None:
    """64 chunks of one tensor, 41 entries of each; relative to the values that are sent, and to all."""
    row = x.flatten()[None]
    decoded = round_trip(ChunkTopK(0.01), row)
    chosen = decoded != 0
    assert int(chosen.sum()) == 64 * 41
    error = (decoded - row)[chosen].square().sum() / row[chosen].square().sum()
    assert float(error) == pytest.approx(kept, rel=0.1)
    assert float((decoded - row).square().sum() / row.square().sum()) == pytest.approx(whole, rel=0.01)
    assert (decoded[chosen].sign() == row[chosen].sign()).all()
    assert len(decoded[chosen].abs().unique()) == 2


def test_two_magnitudes_of_few_values_are_exact() -> None:
    x = torch.tensor([[0.0, 5.0, -1.0, 0.0, 7.0, 7.0]])
    assert torch.equal(round_trip(ChunkTopK(0.5, 4), x, (4, 2)), torch.tensor([[0.0, 5.0, -1.0, 0.0, 7.0, 0.0]]))
    x = torch.tensor([[3.0, -5.0, 1.0, -2.0, 0.0]])  # a magnitude is the mean of its part
    assert torch.equal(round_trip(ChunkTopK(1.0), x), torch.tensor([[4.0, -4.0, 1.0, -1.0, 1.0]]))
    assert not round_trip(ChunkTopK(0.5), torch.zeros(2, 6)).any()


@looped("fraction, kept, rice", [(0.01, 41, 8.068), (0.03, 123, 6.572), (0.05, 205, 5.780)])
def test_bits_of_places(fraction: float, kept: int, rice: float) -> None:
    x = gauss(8, 8 * WHOLE)
    values = 2 * 8 * kept + 64
    fixed = _payload(ChunkTopK(fraction, positions="index"), x)
    assert set(fixed.bits.tolist()) == {values + 12 * 8 * kept}
    coded = _payload(ChunkTopK(fraction, positions="rice"), x)
    found = (coded.bits.double().mean() - values) / (8 * kept)
    assert float(found) == pytest.approx(rice, rel=0.02)


def test_a_position_beyond_a_short_chunk_is_refused() -> None:
    """The last chunk of 10 entries in chunks of 7 has 3: position 3 is none of them."""
    payload = _payload(ChunkTopK(0.3, 7, "float", "index"), gauss(1, 10))
    index = payload.fields["index"]
    beyond = replace(index, data=torch.tensor([[*index.data[0, :-1].tolist(), 3]]))
    message = pack(Payload({**payload.fields, "index": replace(beyond, coding=Unsigned(3))}), 0)
    with pytest.raises(WireError, match="an entry is at or above its limit"):
        unpack([message], layout(payload), torch.device("cpu"))
