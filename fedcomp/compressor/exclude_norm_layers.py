"""A compressor that sends some columns uncompressed, as floats in the same message; their bits are counted.

For scale and shift of BatchNorm, which are few and large: FedMRN (its section 5.1) and the programs that it compares
with send them uncompressed, and count them as nothing.

Shape legend: M senders in the cohort, D entries, d of them compressed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from fedcomp.compressor.compressor import Compressor, Memory
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import ParameterSubset, ParameterTensor, is_normalisation
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float


@dataclass(frozen=True, kw_only=True)
class ExcludeNormLayers(Compressor):
    """Compresses `part`, and sends the other columns dense; memories are those of the part.

    Attributes:
        part: the columns that the codec sees.
    """

    part: ParameterSubset

    def init(self, num_senders: int, like: Tensor) -> Memory:
        """Empty memories for vectors like `like` [D]."""
        return super().init(num_senders, self.part.take(like))

    def encode(
        self, x: Tensor, memory: Memory, cohort: Cohort, common: SharedKnowledge, private_key: Key
    ) -> tuple[Payload, Memory]:
        """The codec's fields, and `uncompressed`, the other columns, which papers leave out of their counts."""
        payload, memory = super().encode(self.part.take(x), memory, cohort, self._known(common), private_key)
        assert "uncompressed" not in payload.fields, "a codec has a field called uncompressed"
        fields = {**payload.fields, "uncompressed": Field(self.part.rest.take(x).contiguous(), Float(), on_paper=False)}
        return replace(payload, fields=fields), memory

    def estimate(
        self, payload: Payload, memory: Memory, cohort: Cohort, common: SharedKnowledge
    ) -> tuple[Tensor, Memory]:
        """The codec's estimate of its columns, and the weighted sum of the others."""
        inner, uncompressed = self._received(payload)
        estimate, memory = super().estimate(inner, memory, cohort, self._known(common))
        return self._whole(estimate, cohort.weight @ uncompressed), memory

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """[M, D] the codec's columns, and the others as they were."""
        inner, uncompressed = self._received(payload)
        return self._whole(super().decode(inner, self._known(common)), uncompressed)

    def coded(self, x: Tensor) -> Tensor:
        """[M, d] the part's columns."""
        return self.part.take(x)

    def num_coded(self, dim: int) -> int:
        """d."""
        return self.part.size

    def omega(self, layers: tuple[int, ...], num_senders: int) -> float | None:
        """The codec's; of the other columns nothing is left out."""
        return super().omega(self.part.layers, num_senders)

    def sender_memory(self, memory: Memory) -> Tensor:
        """[N, D] the part's memories; of the other columns nothing is left out."""
        part = super().sender_memory(memory)
        return self._whole(part, part.new_zeros(part.shape[0], self.part.rest.size))

    def _received(self, payload: Payload) -> tuple[Payload, Tensor]:
        """The codec's message, and the other columns [M, D - d]."""
        fields = dict(payload.fields)
        (uncompressed,) = Payload({"uncompressed": fields.pop("uncompressed")}).expect(uncompressed=self.part.rest.size)
        return replace(payload, fields=fields), uncompressed

    def _whole(self, part: Tensor, rest: Tensor) -> Tensor:
        """[..., D] from the part's columns [..., d] and the others."""
        whole = part.new_empty(*part.shape[:-1], self.part.dim)
        self.part.rest.put_(whole, rest)
        return self.part.put_(whole, part)

    def _known(self, common: SharedKnowledge) -> SharedKnowledge:
        side = None if common.side_information is None else self.part.take(common.side_information)
        return replace(common, layers=self.part.layers, side_information=side)


def exclude_norm_layers(compressor: Compressor, tensors: tuple[ParameterTensor, ...]) -> Compressor:
    """The compressor without normalisation layers' parameters; itself if there are none of these, or no others."""
    part = ParameterSubset.of(tensors, lambda tensor: not is_normalisation(tensor))
    if compressor.codec.near_lossless or not part.size or not part.rest.size:
        return compressor
    parts = compressor.codec, compressor.feedback, compressor.estimator, compressor.predictor
    return ExcludeNormLayers(*parts, group=compressor.group, part=part)
