"""Random masking: closed-form error, the number of entries sent, and that it needs not be sent."""

import torch

from fedcomp.compressor.sparsifiers.random_mask import RandomMask
from fedcomp.compressor.sparsifiers.sparse_indices import compact, expand
from fedcomp.random.keys import Key
from tests.compressor.round_trips import draws, known


def _rows() -> torch.Tensor:
    return torch.randn(4, 12, generator=torch.Generator().manual_seed(0))


def test_bits_are_those_of_the_entries_alone() -> None:
    codec, x = RandomMask(0.3, seed_cost="derived"), torch.ones(50, 400)
    payload = codec.encode(x, known(50, 400), Key())
    sent = codec.decode(payload, known(50, 400)).count_nonzero(1)
    assert payload.bits.tolist() == (32 * sent).tolist()
    # 400 p entries on average, with standard deviation sqrt(400 p (1 - p)) / sqrt(50) = 1.3 of the mean.
    assert abs(float(sent.double().mean()) - 120) < 5 * 1.3


def test_everything_is_exact() -> None:
    assert torch.equal(draws(RandomMask(1.0), _rows(), 1)[0], _rows())


def test_compaction_and_back() -> None:
    x = torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]])
    mask = torch.tensor([[True, False, True, False], [False] * 4, [True] * 4])
    packed = compact(x, mask)
    assert packed.tolist() == [[1, 3, 0, 0], [0, 0, 0, 0], [9, 10, 11, 12]]
    assert torch.equal(expand(packed, mask), x * mask)
