"""Top-k in chunks: counts, two magnitudes against the table, bits of places."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedcomp.compressor.sparsifiers.chunk_topk import ChunkTopK
from fedcomp.compressor.sparsifiers.topk import TopK
from fedcomp.random.keys import Key
from fedcomp.wire import Payload, SharedKnowledge, WireError
from fedcomp.wire.coding import Unsigned
from fedcomp.wire.packing import layout, pack, unpack
from tests.looped import looped

WHOLE = 4096


def _known(layers: tuple[int, ...], num: int = 1) -> SharedKnowledge:
    return SharedKnowledge(Key(("chunks",)), torch.arange(num), layers)


def _sent(codec: ChunkTopK, x: Tensor, layers: tuple[int, ...]) -> tuple[Payload, Tensor]:
    common = _known(layers, len(x))
    payload = codec.encode(x, common, Key())
    return payload, codec.decode(payload, common)


def _gauss(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@looped("positions", ["index", "rice", "auto"])
def test_every_chunk_sends_its_share(positions: str) -> None:
    layers = (70, 8, 30)
    decoded = _sent(ChunkTopK(0.1, 30, "float", positions), x := _gauss(3, 108), layers)[1]
    first = 0
    for width, kept in ((30, 3), (30, 3), (10, 1), (8, 1), (30, 3)):
        part, own = decoded[:, first : first + width], x[:, first : first + width]
        assert ((part != 0).sum(1) == kept).all()
        best = own.abs().topk(kept, dim=1).indices
        assert torch.equal(part.gather(1, best), own.gather(1, best))
        first += width


def test_one_chunk_is_top_k_and_what_is_left_is_smaller() -> None:
    x = _gauss(4, 100)
    decoded = _sent(ChunkTopK(0.2, values="float"), x, (100,))[1]
    topk = TopK(0.2)
    assert torch.equal(decoded, topk.decode(topk.encode(x, _known((100,), 4), Key()), _known((100,), 4)))
    chunked = _sent(ChunkTopK(0.2, 25, "float"), x, (100,))[1]
    assert ((chunked - x).square().sum(1) <= 0.8 * x.square().sum(1)).all()


def _laplace(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(64, WHOLE, generator=generator).sign() * torch.empty(64, WHOLE).exponential_(generator=generator)


@pytest.mark.parametrize(
    ("x", "kept", "whole"),
    [(_gauss(64, WHOLE), 0.0036, 0.9159), (_laplace(1), 0.0112, 0.8402)],
    ids=["gauss", "laplace"],
)
def test_two_magnitudes_have_the_error_of_the_table(x: Tensor, kept: float, whole: float) -> None:
    """64 chunks of one tensor, 41 entries of each; relative to the values that are sent, and to all."""
    row = x.flatten()[None]
    decoded = _sent(ChunkTopK(0.01), row, (row.shape[1],))[1]
    chosen = decoded != 0
    assert int(chosen.sum()) == 64 * 41
    error = (decoded - row)[chosen].square().sum() / row[chosen].square().sum()
    assert float(error) == pytest.approx(kept, rel=0.1)
    assert float((decoded - row).square().sum() / row.square().sum()) == pytest.approx(whole, rel=0.01)
    assert (decoded[chosen].sign() == row[chosen].sign()).all()
    assert len(decoded[chosen].abs().unique()) == 2


def test_two_magnitudes_of_few_values_are_exact() -> None:
    x = torch.tensor([[0.0, 5.0, -1.0, 0.0, 7.0, 7.0]])
    assert torch.equal(_sent(ChunkTopK(0.5, 4), x, (4, 2))[1], torch.tensor([[0.0, 5.0, -1.0, 0.0, 7.0, 0.0]]))
    assert not _sent(ChunkTopK(0.5), torch.zeros(2, 6), (6,))[1].any()


@looped("fraction, kept, rice", [(0.01, 41, 8.068), (0.03, 123, 6.572), (0.05, 205, 5.780)])
def test_bits_of_places(fraction: float, kept: int, rice: float) -> None:
    x = _gauss(8, 8 * WHOLE)
    values = 2 * 8 * kept + 64
    fixed = _sent(ChunkTopK(fraction, positions="index"), x, (8 * WHOLE,))[0]
    assert set(fixed.bits.tolist()) == {values + 12 * 8 * kept}
    coded = _sent(ChunkTopK(fraction, positions="rice"), x, (8 * WHOLE,))[0]
    found = (coded.bits.double().mean() - values) / (8 * kept)
    assert float(found) == pytest.approx(rice, rel=0.02)


def test_a_position_beyond_a_short_chunk_is_refused() -> None:
    """The last chunk of 10 entries in chunks of 7 has 3: position 3 is none of them."""
    payload, _ = _sent(ChunkTopK(0.3, 7, "float", "index"), _gauss(1, 10), (10,))
    index = payload.fields["index"]
    beyond = replace(index, data=torch.tensor([[*index.data[0, :-1].tolist(), 3]]))
    message = pack(Payload({**payload.fields, "index": replace(beyond, coding=Unsigned(3))}), 0)
    with pytest.raises(WireError, match="an entry is at or above its limit"):
        unpack([message], layout(payload), torch.device("cpu"))
