"""The columns that a compressor compresses: all, or some, with the others as floats in the same message, and counted.

For scale and shift of BatchNorm, which are few and large: FedMRN (its section 5.1) and the programs that it compares
with send them uncompressed, and count them as nothing.

Shape legend: M senders in the cohort, D entries, d of them compressed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from fedcomp.core.parameter_layout import ParameterSubset
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float


@dataclass(frozen=True)
class AllColumns:
    """Every column is compressed: what comes in goes out."""

    def size(self, dim: int) -> int:
        """d of vectors of `dim` entries."""
        return dim

    def layers(self, layers: tuple[int, ...]) -> tuple[int, ...]:
        """Sizes of the parameter tensors in what is compressed."""
        return layers

    def take(self, x: Tensor) -> Tensor:
        """[..., d] what is compressed of x [..., D]."""
        return x

    def known(self, common: SharedKnowledge) -> SharedKnowledge:
        """What both ends know of the compressed columns."""
        return common

    def join(self, payload: Payload, x: Tensor) -> Payload:
        """The codec's message of x [M, D], with the columns that it does not compress."""
        return payload

    def coded(self, payload: Payload) -> Payload:
        """The codec's message alone."""
        return payload

    def whole(self, decoded: Tensor, payload: Payload, weight: Tensor | None = None) -> Tensor:
        """[..., D] from decoded columns [..., d] and the others in the message: of all M, or their sum by `weight`."""
        return decoded

    def padded(self, rows: Tensor) -> Tensor:
        """[..., D] from rows [..., d], and 0 elsewhere."""
        return rows


@dataclass(frozen=True)
class SomeColumns(AllColumns):
    """Compresses `part`; the other columns go as `uncompressed`, which papers leave out of their counts."""

    part: ParameterSubset

    def size(self, dim: int) -> int:
        return self.part.size

    def layers(self, layers: tuple[int, ...]) -> tuple[int, ...]:
        return self.part.layers

    def take(self, x: Tensor) -> Tensor:
        return self.part.take(x)

    def known(self, common: SharedKnowledge) -> SharedKnowledge:
        side = None if common.side_information is None else self.part.take(common.side_information)
        return replace(common, layers=self.part.layers, side_information=side)

    def join(self, payload: Payload, x: Tensor) -> Payload:
        assert "uncompressed" not in payload.fields, "a codec has a field called uncompressed"
        rest = Field(self.part.rest.take(x).contiguous(), Float(), on_paper=False)
        return replace(payload, fields={**payload.fields, "uncompressed": rest})

    def coded(self, payload: Payload) -> Payload:
        fields = {name: field for name, field in payload.fields.items() if name != "uncompressed"}
        return replace(payload, fields=fields)

    def whole(self, decoded: Tensor, payload: Payload, weight: Tensor | None = None) -> Tensor:
        rest = self._uncompressed(payload)
        return self._put(decoded, rest if weight is None else weight @ rest)

    def padded(self, rows: Tensor) -> Tensor:
        return self._put(rows, rows.new_zeros(*rows.shape[:-1], self.part.rest.size))

    def _uncompressed(self, payload: Payload) -> Tensor:
        """[M, D - d]."""
        (rest,) = Payload({"uncompressed": payload.fields["uncompressed"]}).expect(uncompressed=self.part.rest.size)
        return rest

    def _put(self, part: Tensor, rest: Tensor) -> Tensor:
        whole = part.new_empty(*part.shape[:-1], self.part.dim)
        self.part.rest.put_(whole, rest)
        return self.part.put_(whole, part)
