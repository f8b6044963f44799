"""Blocks: partitions of every kind, proposals, their merge, when they are asked for, and what agreeing costs."""

import math
import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from fedcomp.compressor.mrc.allocation import Adaptive, AdaptiveAverage, Changing, Fixed
from fedcomp.compressor.mrc.allocation.adaptive import Sizes, boundaries, merged
from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.core.cohort import Everyone
from fedcomp.wire import Field, Ledger, Payload, WireError, WireLink
from fedcomp.wire.packing import FieldLayout, layout, pack, unpack
from tests.looped import looped

CAPACITY = math.log(256)


def _check_partition(blocks: Blocks, dim: int) -> None:
    offsets = blocks.offsets.tolist()
    assert offsets[0] == 0
    assert offsets[-1] == dim
    assert all(low < high for low, high in pairwise(offsets))
    assert max(blocks.sizes.tolist()) <= blocks.longest
    assert blocks.owner().tolist() == [b for b, size in enumerate(blocks.sizes.tolist()) for _ in range(size)]


@looped("dim, size", [(1000, 256), (1000, 1000), (100, 256), (1, 1), (512, 256), (513, 256)])
def test_fixed_blocks_partition(dim, size) -> None:
    blocks = Fixed(size).first(dim)
    _check_partition(blocks, dim)
    assert blocks.num == -(-dim // size)
    assert not isinstance(Fixed(), Changing)


@looped("offsets", [[], [0], [1, 5], [0, 3, 3, 5], [0, 4, 3, 5], [0, 4], [0, 6], [[0, 5]]])
def test_offsets_that_are_no_partition_are_refused(offsets) -> None:
    with pytest.raises(ValueError, match="must start at 0, increase, and end at the vector's size, 5"):
        Blocks.of(offsets, 5)


def _scanned(kl: np.ndarray, capacity: float, longest: int) -> list[int]:
    """The scan as the paper has it: close before the entry that would be too much."""
    ends, total, length = [0], 0.0, 0
    for e, each in enumerate(kl.tolist()):
        if length and (total + each > capacity or length == longest):
            ends.append(e)
            total, length = 0.0, 0
        total, length = total + each, length + 1
    return [*ends, len(kl)]


@looped("seed", range(200))
def test_proposals_are_those_of_the_scan(seed: int) -> None:
    draw = random.Random(seed)
    kl, longest = draw.choices([0.0, 0.125, 0.5, 1.0, 3.0, 9.0], k=draw.randint(1, 200)), draw.choice([1, 2, 7, 300])
    each = np.array(kl, np.float32)  # multiples of 1/8: sums are exact in any order
    assert boundaries(each, 4.0, longest).tolist() == _scanned(each, 4.0, longest)


@looped("unit, size, most", [("nats", 89, 88), ("bits", 128, 128)])
def test_capacity_is_the_code_s_in_nats_or_its_length_in_bits(unit, size, most) -> None:
    """ln 256 = 5.545 or log2 256 = 8, at a divergence of 1/16 nat an entry; requests go by the same one."""
    kl = torch.full((1, 1000), 0.0625)
    average = AdaptiveAverage(capacity=unit, phi=1.25)
    assert average.read(average.propose(kl, 256), 1000).longest == size
    for block in (50, 80, 100, 125, 200):
        asks = bool(average.request(kl, Blocks.fixed(1000, block), 256).fields["flag"].data)
        assert asks == (block not in ((80, 100) if unit == "nats" else (125,))), block
    cut = Adaptive(capacity=unit)
    assert cut.read(cut.propose(kl, 256), 1000).longest == most


def test_merge_takes_the_mean_of_those_who_have_a_boundary_rounded_up() -> None:
    assert merged([np.array([10, 20, 30]), np.array([13, 30])]).tolist() == [0, 12, 25, 30]
    assert merged([np.array([1, 2, 3, 40]), np.array([40])]).tolist() == [0, 21, 40]  # 2 and 3 are not above 21


@looped("seed", range(200))
def test_merged_blocks_partition_and_are_no_longer_than_the_longest(seed: int) -> None:
    draw = random.Random(seed)
    sizes = [draw.choices(range(1, 10), k=draw.randint(1, 40)) for _ in range(draw.randint(1, 6))]
    dim = max(sum(row) for row in sizes)
    ends = []
    for row in sizes:
        left = dim - sum(row)
        ends.append(np.array([*row, *[9] * (left // 9), *([left % 9] if left % 9 else [])]).cumsum())
    offsets = merged(ends)
    _check_partition(Blocks.of(torch.from_numpy(offsets), dim), dim)
    assert np.diff(offsets).max() <= 9


def test_side_information_is_charged_to_the_bit_and_read_strictly() -> None:
    method = Adaptive(longest=4096)
    kl = torch.rand(3, 5000, generator=torch.Generator().manual_seed(1)) * torch.tensor([[0.03], [0.05], [0.07]])
    proposals = method.propose(kl, 256)
    numbers = (proposals.fields["sizes"].data > 0).sum(1)
    assert len(set(numbers.tolist())) > 1
    assert proposals.bits.tolist() == (12 * numbers).tolist()
    received = WireLink(Ledger()).up(proposals)
    assert torch.equal(received.fields["sizes"].data, proposals.fields["sizes"].data)
    allocation = method.merge(received)
    ledger = Ledger()
    blocks = method.read(WireLink(ledger).broadcast(allocation, Everyone(3)), 5000)
    assert allocation.bits.tolist() == [12 * blocks.num]
    message = pack(proposals, 0)
    for wrong in (message[:-2], message + b"\0", b"\xff" * len(message), bytes(len(message))):
        with pytest.raises(WireError):
            unpack([wrong], layout(proposals), torch.device("cpu"))
    with pytest.raises(WireError, match="it was made by another codec"):
        method.read(AdaptiveAverage().propose(kl, 256), 5000)


@looped("sizes, longest", [([1, 1, 1], 1), ([4096], 4096), ([5, 1, 3], 5), ([7], 7)])
def test_sizes_round_trip(sizes, longest) -> None:
    coding = Sizes(sum(sizes), longest)
    payload = Payload({"sizes": Field(torch.tensor([[*sizes, 0]]), coding)})
    assert payload.bits.tolist() == [len(sizes) * coding.width]
    assert torch.equal(WireLink(Ledger()).up(payload).fields["sizes"].data, payload.fields["sizes"].data)


def test_sizes_that_overshoot_are_refused() -> None:
    known = {"sizes": FieldLayout(2, Sizes(5, 4), torch.int64)}
    for sizes in (0b1111_0000, 0b1101_0000):  # 4 and 4, 4 and 2
        with pytest.raises(WireError, match="block sizes that do not add up to 5$"):
            unpack([bytes([sizes])], known, torch.device("cpu"))


def test_adaptive_asks_when_divergence_has_fallen_and_only_if_told_also_when_it_has_grown() -> None:
    blocks = Blocks.fixed(1000, 100)
    level = CAPACITY / 100
    kl = torch.stack([torch.full((1000,), level * factor) for factor in (1.0, 0.3, 0.0, 3.5)])
    asked = Adaptive().request(kl, blocks, 256)
    assert asked.fields["flag"].data.flatten().tolist() == [0, 1, 1, 0]
    assert asked.bits.tolist() == [1] * 4
    both = Adaptive(two_sided=True).request(kl, blocks, 256)
    assert both.fields["flag"].data.flatten().tolist() == [0, 1, 1, 1]
    assert not Adaptive().wanted(asked)
    assert Adaptive().wanted(both)
    assert Adaptive(vote="any").wanted(asked)


def test_a_single_empty_block_counts_100_in_the_mean_ratio() -> None:
    kl = torch.full((1, 1000), CAPACITY / 100)
    kl[0, :100] = 0
    # (9 + 100) / 10 = 10.9
    for phi, asks in ((10.0, 1), (11.0, 0)):
        flag = Adaptive(phi=phi).request(kl, Blocks.fixed(1000, 100), 256).fields["flag"].data
        assert flag.flatten().tolist() == [asks]


def test_adaptive_average_asks_on_either_side_and_fills_blocks_to_capacity() -> None:
    blocks, method = Blocks.fixed(1000, 100), AdaptiveAverage(smallest=16, longest=512)
    level = CAPACITY / 100
    kl = torch.stack([torch.full((1000,), level * factor) for factor in (1.0, 0.3, 0.0, 3.5)])
    asked = method.request(kl, blocks, 256)
    assert asked.fields["flag"].data.flatten().tolist() == [0, 1, 1, 1]
    one_sided = AdaptiveAverage(two_sided=False).request(kl, blocks, 256)
    assert one_sided.fields["flag"].data.flatten().tolist() == [0, 1, 1, 0]
    assert method.wanted(asked)
    proposals = WireLink(Ledger()).up(method.propose(kl, 256))
    assert (proposals.fields["size"].data + 1).flatten().tolist() == [100, 333, 512, 29]
    assert proposals.bits.tolist() == [9] * 4
    allocation = method.merge(proposals)
    assert allocation.bits.tolist() == [9]
    new = method.read(WireLink(Ledger()).broadcast(allocation, Everyone(4)), 1000)
    assert new.sizes.tolist() == [244, 244, 244, 244, 24]  # 974 / 4 = 243.5, to even


@looped("dim", [1000, 40])
@looped("method", [Adaptive(longest=64), AdaptiveAverage(longest=64)])
def test_nobody_asks_for_the_blocks_that_are_there(method, dim) -> None:
    """Nothing diverges, and blocks are as long as they may be: only who proposes others asks."""
    kl = torch.zeros(3, dim)
    blocks = method.read(method.merge(method.propose(kl, 256)), dim)
    assert method.request(kl, Blocks.fixed(dim, 8), 256).fields["flag"].data.flatten().tolist() == [1, 1, 1]
    assert method.request(kl, blocks, 256).fields["flag"].data.flatten().tolist() == [0, 0, 0]
    again = Blocks.of(blocks.offsets, dim)  # as a run's state brings them back
    kl[1] = 30.0
    asked = replace(method, two_sided=True).request(kl, again, 256)
    assert asked.fields["flag"].data.flatten().tolist() == [0, 1, 0]


@looped("method", [Adaptive(longest=64), AdaptiveAverage(longest=64)])
@looped("dim", [1, 10, 64, 65, 1000])
def test_whatever_the_divergence_blocks_partition(method, dim) -> None:
    generator = torch.Generator().manual_seed(dim)
    for kl in (torch.zeros(3, dim), torch.full((3, dim), 50.0), torch.rand(3, dim, generator=generator) * 0.3):
        assert isinstance(method, Changing)
        blocks = method.read(method.merge(method.propose(kl, 256)), dim)
        _check_partition(blocks, dim)
