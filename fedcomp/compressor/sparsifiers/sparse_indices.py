"""Positions of sparse entries on the wire, for codecs whose receiver cannot know them: the cheapest of three codes.

    index   ceil(log2 D) bits each
    bitmap  one bit for every entry of the vector
    rice    Golomb-Rice codes of the gaps between indices

Which one follows from k and D alone and so is known to both ends. Shape legend: M senders, D entries, k indices.
"""

from typing import Literal

import torch
from torch import Tensor

from fedcomp.core.rows import count_along_rows, scatter_distinct_
from fedcomp.wire import Field
from fedcomp.wire.coding import Ascending, Bitmap, Rice, Shortest, bits_for

IndexCode = Literal["auto", "index", "bitmap", "rice"]


def max_bits(code: str, k: int, dim: int) -> int:
    """The most bits that k indices of D can take in a code."""
    if code == "index":
        return k * bits_for(dim)
    return dim if code == "bitmap" else Rice.for_gaps(k, dim).worst_case(k, dim)


def index_code(choice: str, k: int, dim: int) -> str:
    """The code of k indices: as chosen, or for "auto" the one with the shortest worst case."""
    return choice if choice != "auto" else min(("index", "bitmap", "rice"), key=lambda code: max_bits(code, k, dim))


def index_field(code: str, indices: Tensor, dim: int) -> dict[str, Field]:
    """The field that carries indices [M, k], ascending in each row."""
    if code == "index":
        return {"index": Field(indices, Ascending(dim))}
    if code == "bitmap":
        chosen = torch.zeros(indices.shape[0], dim, dtype=torch.uint8, device=indices.device)
        return {"bitmap": Field(chosen.scatter_(1, indices, 1), Bitmap(indices.shape[1]))}
    gaps = torch.diff(indices, dim=1, prepend=torch.full_like(indices[:, :1], -1)) - 1
    return {"gaps": Field(gaps, Rice.for_gaps(indices.shape[1], dim))}


def index_layout(code: str, k: int, dim: int) -> dict[str, int]:
    """Name and number of entries of that field, for `Payload.expect`."""
    return {"bitmap": dim} if code == "bitmap" else {"index" if code == "index" else "gaps": k}


def read_indices(code: str, data: Tensor, k: int) -> Tensor:
    """[M, k] the indices that the field's data says."""
    if code == "index":
        return data
    if code == "rice":
        return count_along_rows(data + 1) - 1
    # Positions of a bitmap without asking the device how many there are: a stable sort puts the ones first, in order.
    return data.sort(dim=1, descending=True, stable=True).indices[:, :k]


def places_field(chosen: Tensor) -> Field:
    """The positions of the entries under the mask `chosen` [M, D], any number a row, as gaps between them.

    A row has ceil(log2(D + 1)) bits for the number, and if it has any entry 4 bits for which of 16 Rice codes is the
    shortest.
    """
    dim = chosen.shape[1]
    positions = compact(torch.arange(dim, device=chosen.device).expand(len(chosen), -1), chosen)
    count = chosen.sum(1)
    there = torch.arange(dim, device=chosen.device) < count[:, None]
    gaps = torch.where(there, torch.diff(positions, dim=1, prepend=torch.full_like(positions[:, :1], -1)) - 1, 0)
    return Field(gaps, Shortest(tuple(Rice(width, dim) for width in range(16))), count)


def read_places(field: Field, dim: int) -> Tensor:
    """[M, D] bool the mask, from `places_field`."""
    assert field.count is not None
    at = count_along_rows(field.data + 1) - 1
    there = torch.arange(at.shape[1], device=at.device) < field.count[:, None]
    found = torch.zeros(len(at), dim + 1, dtype=torch.bool, device=at.device)
    return found.scatter_(1, torch.where(there, at, dim), True)[:, :dim]


def compact(x: Tensor, mask: Tensor) -> Tensor:
    """[M, D]: the entries of x [M, D] under mask [M, D], in order, at the front of each row; zeros behind."""
    dim = x.shape[1]
    to = torch.where(mask, count_along_rows(mask) - 1, dim)
    return scatter_distinct_(x.new_zeros(x.shape[0], dim + 1), to, x)[:, :dim]


def expand(packed: Tensor, mask: Tensor) -> Tensor:
    """[M, D]: the inverse of `compact`, zeros where the mask is."""
    if not packed.shape[1]:  # as a message brings them of which nobody sent any
        return packed.new_zeros(mask.shape)
    return packed.gather(1, (count_along_rows(mask) - 1).clamp_(min=0)).masked_fill_(~mask, 0)
