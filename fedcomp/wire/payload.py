"""What a message is: named fields whose entries have a declared coding; its bits follow from them.

Shape legend: M senders (rows), n entries of a field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.wire.coding import Coding, bits_for


@dataclass(frozen=True)
class Field:
    """Entries of one kind.

    Attributes:
        data: [M, n] floats or non-negative integer codes.
        coding: how an entry is written.
        count: [M] int64 entries that row really sends, the first ones (the rest is zero and not sent); itself sent
            before them. None: all n, which both ends know.
    """

    data: Tensor
    coding: Coding
    count: Tensor | None = None

    @property
    def static_bits(self) -> int | None:
        """Bits a row takes, where all take as many and the layout alone says so; else None."""
        if self.count is not None or self.coding.width is None:
            return None
        return self.data.shape[1] * self.coding.width

    @property
    def bits(self) -> Tensor:
        """[M] int64 bits of each row, the count's own included."""
        if self.static_bits is not None:
            return torch.full((self.data.shape[0],), self.static_bits, dtype=torch.int64, device=self.data.device)
        each = self.coding.bits(self.data)
        if self.count is None:
            return each.sum(1)
        sent = torch.arange(self.data.shape[1], device=self.data.device) < self.count[:, None]
        return (each * sent).sum(1) + bits_for(self.data.shape[1] + 1)


@dataclass(frozen=True)
class Payload:
    """One message a sender, all senders side by side.

    Attributes:
        fields: by name, in the order in which they are sent.
        paper_bits: bits a row as the method's paper counts them, where it counts otherwise; None: as true.
    """

    fields: Mapping[str, Field]
    paper_bits: int | None = None

    @property
    def num_rows(self) -> int:
        """M."""
        return next(iter(self.fields.values())).data.shape[0]

    @property
    def bits(self) -> Tensor:
        """[M] int64 true bits of each row's message."""
        each = [field.bits for field in self.fields.values()]
        return torch.stack(each).sum(0)

    @property
    def total_bits(self) -> int | Tensor:
        """Bits of all rows together: an int where the layout decides, else a 0-d tensor left on its device."""
        fixed, varying = 0, []
        for field in self.fields.values():
            static = field.static_bits
            if static is None:
                varying.append(field.bits.sum())
            else:
                fixed += static
        total = fixed * self.num_rows
        return total if not varying else torch.stack(varying).sum() + total
