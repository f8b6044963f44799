"""Top-k: exactness on sparse vectors, which of equal entries are kept, and the choice of the index code."""

import torch

from fedcomp.compressor.sparsifiers.topk import TopK, stable_topk
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.looped import looped

CNN8 = 1_181_536


def _round_trip(codec: TopK, x: torch.Tensor) -> torch.Tensor:
    known = SharedKnowledge(Key(), torch.arange(x.shape[0]), (x.shape[1],))
    return codec.decode(codec.encode(x, known, Key()), known)


@looped("positions", ["index", "bitmap", "rice"])
def test_keeps_the_largest(positions: str) -> None:
    x = torch.tensor([[0.1, -5.0, 2.0, 0.0, 3.0], [1.0, 1.5, -0.2, -9.0, 0.3]])
    kept = _round_trip(TopK(0.4, positions), x)
    assert torch.equal(kept, torch.tensor([[0.0, -5.0, 0, 0, 3.0], [0, 1.5, 0, -9.0, 0]]))


def test_sparse_vectors_and_full_fraction_are_exact() -> None:
    x = torch.zeros(1, 200)
    x[0, [3, 77, 199]] = torch.tensor([1.0, -2.0, 0.5])
    assert torch.equal(_round_trip(TopK(0.015), x), x)
    y = torch.randn(2, 33)
    for positions in ("auto", "index", "bitmap", "rice"):
        assert torch.equal(_round_trip(TopK(1.0, positions), y), y)


def test_code_is_the_cheapest_for_k_and_dimension() -> None:
    assert TopK(0.03).index_code_of(CNN8) == "rice"
    assert TopK(0.5).index_code_of(1000) == "bitmap"
    assert TopK(0.001).index_code_of(1000) == "index"


def test_bits_per_parameter_of_rice_codes() -> None:
    """3 % of the network of docs/methods.md: the bound of any position code is 1.154; Rice's is close to it."""
    x = torch.randn(1, CNN8, generator=torch.Generator().manual_seed(1))
    payload = TopK(0.03, "rice").encode(x, SharedKnowledge(Key(), torch.arange(1), (CNN8,)), Key())
    assert 1.154 < int(payload.bits) / CNN8 < 1.160


def test_rice_bits_are_those_of_the_gaps() -> None:
    x = torch.zeros(1, 64)
    x[0, [5, 6, 40]] = 1.0
    payload = TopK(3 / 64, "rice").encode(x, SharedKnowledge(Key(), torch.arange(1), (64,)), Key())
    r = payload.fields["gaps"].coding.parameter
    assert payload.fields["gaps"].data.tolist() == [[5, 0, 33]]
    assert payload.bits.tolist() == [96 + sum((gap >> r) + 1 + r for gap in (5, 0, 33))]


def test_bit_budget() -> None:
    # One bit per parameter pays for 1 / 53 of the entries: 32 bits of a value, 21 of its place among CNN8.
    codec = TopK(match_bits=1.0, positions="index")
    assert codec.num_sent(CNN8) == CNN8 // 53 == 22_293
    x = torch.randn(1, 3000, generator=torch.Generator().manual_seed(0))
    known = SharedKnowledge(Key(), torch.arange(1), (3000,))
    for positions in ("auto", "index", "bitmap", "rice"):
        codec = TopK(match_bits=1.5, positions=positions)
        assert 0.9 * 1.5 * 3000 < int(codec.encode(x, known, Key()).bits) <= 1.5 * 3000


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
