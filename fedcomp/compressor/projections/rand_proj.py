"""Random projections of blocks by subsampled Hadamard transforms, one for each sender (SRHT).

S. Jiang, P. Sharma, G. Joshi, "Correlation aware sparsified mean estimation using random projection", NeurIPS 2023
(arXiv:2310.18868): y_i = G_i x_i, G_i = E_i H D_i with D_i random signs, H the d x d Walsh-Hadamard matrix over sqrt(d)
and E_i k rows chosen uniformly without replacement, drawn by each sender independently from a seed that the server
knows. G_i G_i^T = I, and E[G_i^T G_i] = (k/d) I: decoded alone, a message is (d/k) G_i^T y_i. The estimator
`proj_spatial.py` decodes a round's messages jointly. The bits are those of Rand-k; the paper counts 32 k.

The paper's d is a power of two. Here a vector is cut into blocks of B entries, the last one shorter, and a block is
padded with zeros to c, the next power of two, which costs no bits: only k numbers are sent. k is divided over the
blocks in proportion to their sizes, at least one number a block.

Shape legend: M senders, D entries, b blocks of a group, c entries of a padded block, k entries sent of a block.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.compressor.rotations import hadamard
from fedcomp.compressor.seed import SeedCost, seed_field, seed_layout, shared_source
from fedcomp.compressor.sparsifiers.num_kept import Sparsifier
from fedcomp.core.rows import scatter_distinct_
from fedcomp.core.validate import OptionError
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float

LARGEST_BLOCK = 8192
"""The joint decoder solves a system of up to this size for each block."""


@dataclass(frozen=True)
class Group:
    """Adjacent blocks of one size, each of which sends k numbers.

    Attributes:
        first: their first entry. num: b. size: entries of each. kept: k.
    """

    first: int
    num: int
    size: int
    kept: int

    @property
    def padded(self) -> int:
        """c, the power of two from `size` on."""
        return 1 << (self.size - 1).bit_length()


@dataclass(frozen=True)
class Projected:
    """What arrived of a group's blocks.

    Attributes:
        group: which blocks.
        values: [M, b, k] y. rows: [M, b, k] int64 the rows of E, ascending.
        words: the signs D, as `hadamard.apply` takes them.
    """

    group: Group
    values: Tensor
    rows: Tensor
    words: Tensor

    def signs(self) -> Tensor:
        """[M, b, c] float32 the diagonal of D."""
        bits = (self.words[:, :, None] >> torch.arange(32, device=self.words.device)) & 1
        kept = bits.flatten(1)[:, : self.group.num * self.group.padded]
        return kept.to(torch.float32).mul_(2.0).sub_(1.0).view(len(kept), self.group.num, self.group.padded)

    def back(self, values: Tensor) -> Tensor:
        """[M, b, c] G^T v of each sender and block, for v [M, b, k]."""
        num_rows, group = len(values), self.group
        padded = scatter_distinct_(
            values.new_zeros(*values.shape[:2], group.padded).flatten(0, 1),
            self.rows.flatten(0, 1),
            values.flatten(0, 1),
        )
        rows = padded.view(num_rows, group.num * group.padded)
        hadamard.apply(rows, 0, group.padded, self.words, inverse=True, num=group.num)
        return rows.view(num_rows, group.num, group.padded)


@dataclass(frozen=True)
class RandProj(Sparsifier):
    """Sends k numbers of the projected vector; alone they are decoded times c / k, unbiased. B is `block`."""

    block: int = 1024
    seed_cost: SeedCost = "sent"
    unbiased = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.block, int) or self.block not in [1 << power for power in range(1, 14)]:
            raise OptionError(
                f"block={self.block} must be a power of two from 2 to {LARGEST_BLOCK}: entries that are "
                "projected together"
            )

    def check_dim(self, dim: int) -> None:
        """Raise ValueError if k > D, or if there is not one number for each block."""
        k, num_blocks = self.num_sent(dim), -(-dim // self.block)
        if k < num_blocks:
            given = f"fraction={self.fraction}" if self.k is None else f"k={self.k}"
            raise OptionError(
                f"{given} sends {k} numbers, but {dim} entries in blocks of "
                f"{self.block} need {num_blocks}, one each: send more, or raise block"
            )

    def groups(self, dim: int) -> tuple[Group, ...]:
        """Blocks of `dim` entries by size and k: k_b = k d_b / D rounded down, the rest to the largest remainders."""
        k = self.num_sent(dim)
        num_full, last = divmod(dim, self.block)
        sizes = [self.block] * num_full + ([last] if last else [])
        kept = [k * size // dim for size in sizes]
        order = sorted(range(len(sizes)), key=lambda place: (-(k * sizes[place] % dim), place))
        for place in order[: k - sum(kept)]:
            kept[place] += 1
        if kept[-1] == 0:  # a short last block takes its one number from the block that has the most
            kept[kept.index(max(kept))] -= 1
            kept[-1] = 1
        groups: list[Group] = []
        for place, (size, num) in enumerate(zip(sizes, kept, strict=True)):
            if groups and (groups[-1].size, groups[-1].kept) == (size, num):
                groups[-1] = Group(groups[-1].first, groups[-1].num + 1, size, num)
            else:
                groups.append(Group(place * self.block, 1, size, num))
        return tuple(groups)

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """The numbers y [M, k] of all blocks, each block's in the order of its rows."""
        seed = seed_field(self.seed_cost, common, sender_key)
        key, ids = shared_source(Payload(seed), common)
        values = []
        for number, group in enumerate(self.groups(common.dim)):
            words, rows = self.drawn(key, ids, number, group)
            z = x[:, group.first : group.first + group.num * group.size].reshape(len(x), group.num, group.size)
            z = torch.nn.functional.pad(z, (0, group.padded - group.size)).flatten(1)  # a copy, also of no padding
            hadamard.apply(z, 0, group.padded, words, inverse=False, num=group.num)
            values.append(z.view(len(x), group.num, group.padded).gather(2, rows).flatten(1))
        sent = torch.cat(values, 1)
        return Payload(seed | {"values": Field(sent, Float())}, paper_bits=32 * sent.shape[1])

    def projected(self, payload: Payload, common: SharedKnowledge) -> list[Projected]:
        """What arrived, by group."""
        groups = self.groups(common.dim)
        num = [group.num * group.kept for group in groups]
        received = payload.expect(**seed_layout(self.seed_cost), values=sum(num))[-1]
        key, ids = shared_source(payload, common)
        found = []
        for number, (group, values) in enumerate(zip(groups, received.split(num, 1), strict=True)):
            words, rows = self.drawn(key, ids, number, group)
            found.append(Projected(group, values.reshape(len(values), group.num, group.kept), rows, words))
        return found

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """(c / k) G^T y of each block, without the entries that pad it."""
        blocks = []
        for part in self.projected(payload, common):
            scale = part.group.padded / part.group.kept
            blocks.append(part.back(part.values).mul_(scale)[:, :, : part.group.size].flatten(1))
        return torch.cat(blocks, 1)

    def expected_error(self, x: Tensor) -> Tensor:
        """[M] float64 E||C(x) - x||^2 of each row: sum over blocks of (c / k - 1) (d - 1) / (c - 1) ||x_b||^2."""
        total = x.new_zeros(len(x), dtype=torch.float64)
        for group in self.groups(x.shape[1]):
            part = x[:, group.first : group.first + group.num * group.size].double().square().sum(1)
            total += part * (group.padded / group.kept - 1) * (group.size - 1) / max(group.padded - 1, 1)
        return total

    def drawn(self, key: Key, ids: Tensor, number: int, group: Group) -> tuple[Tensor, Tensor]:
        """(words of the signs [M, ceil(b c / 32)], rows [M, b, k] ascending) of a group of blocks."""
        num = group.num * group.padded
        words = key.fold_in("signs", number).bits(ids, -(-num // 32))
        drawn = key.fold_in("rows", number).bits(ids, num).view(len(ids), group.num, group.padded)
        ranked = (drawn << 31) | torch.arange(group.padded, device=ids.device)
        rows = ranked.topk(group.kept, dim=2, largest=False, sorted=False).values & 0x7FFFFFFF
        return words, rows.sort(dim=2).values
