"""A model in fragments of whole parameter tensors, each of which is sent in messages of its own.

Shape legend: M rows, d parameters of a fragment.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.compressor import Compressor, Memory
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import ParameterSubset, ParameterTensor
from fedcomp.wire import SharedKnowledge


@dataclass(frozen=True)
class Fragment:
    """Some tensors of a model: their columns, and what they are."""

    part: ParameterSubset
    tensors: tuple[ParameterTensor, ...]

    @classmethod
    def of(cls, tensors: Sequence[ParameterTensor], belongs: Callable[[ParameterTensor], bool]) -> "Fragment":
        """The tensors for which `belongs` is true."""
        return cls.at(tensors, {place for place, tensor in enumerate(tensors) if belongs(tensor)})

    @classmethod
    def at(cls, tensors: Sequence[ParameterTensor], places: Collection[int]) -> "Fragment":
        """The tensors with these numbers, from 0, in the order of the model."""
        return cls(ParameterSubset.at(tensors, places), tuple(tensors[place] for place in sorted(places)))

    @classmethod
    def of_factor(cls, tensors: Sequence[ParameterTensor], role: str) -> "Fragment":
        """A or B of all low-rank adapters."""
        return cls.of(tensors, lambda tensor: tensor.lora is not None and tensor.lora.role == role)

    def own(self, compressor: Compressor) -> Compressor:
        """The compressor for this fragment, whose scales and shifts go dense if they do in the whole model."""
        return compressor.for_tensors(self.tensors) if compressor.part is not None else compressor

    def send_up(
        self, name: str, uplink: Compressor, x: Tensor, memory: Memory, cohort: Cohort, ctx: Context
    ) -> tuple[Tensor, Memory]:
        """As `Context.send_up`, for x [M, d]."""
        known, sender_key = self._known(ctx.common(name, cohort)), ctx.sender_key(name)
        found = self.own(uplink).send_up(x, memory, cohort, ctx.link, known, sender_key)
        return ctx.sent.noted(name, memory, found)

    def send_down(
        self, name: str, downlink: Compressor, x: Tensor, memory: Memory, ctx: Context
    ) -> tuple[Tensor, Memory]:
        """As `Context.send_down`, for x [d] to all clients."""
        sender = ctx.server(x)
        known, sender_key = self._known(ctx.common(name, sender)), ctx.sender_key(name)
        found = self.own(downlink).send_down(x, memory, sender, ctx.everyone, ctx.link, known, sender_key)
        return ctx.sent.noted(name, memory, found)

    def _known(self, common: SharedKnowledge) -> SharedKnowledge:
        return replace(common, layers=self.part.layers)


def fragments_of(tensors: Sequence[ParameterTensor], num: int, pattern: str) -> tuple[Fragment, ...]:
    """A model's tensors in `num` fragments, each tensor in one.

    balanced: the largest tensor first, to the fragment that is smallest so far. strided: tensor t to fragment t mod
    `num`. sequential: neighbours together, cut where shares of 1 / num are nearest; no fragment is empty.

    Raises ValueError: there are fewer tensors than fragments.
    """
    if num > len(tensors):
        raise ValueError(
            f"algorithm.fragments={num} is more than the {len(tensors)} parameter tensors of this model, none of which "
            "is divided: lower it"
        )
    groups: list[set[int]] = [set() for _ in range(num)]
    if pattern == "strided":
        for index in range(len(tensors)):
            groups[index % num].add(index)
    elif pattern == "sequential":
        cuts = _cuts([tensor.size for tensor in tensors], num)
        groups = [set(range(first, end)) for first, end in zip([0, *cuts], [*cuts, len(tensors)], strict=True)]
    else:
        sizes = [0] * num
        for index in sorted(range(len(tensors)), key=lambda index: (-tensors[index].size, index)):
            smallest = sizes.index(min(sizes))
            groups[smallest].add(index)
            sizes[smallest] += tensors[index].size
    return tuple(Fragment.at(tensors, indices) for indices in groups)


def _cuts(sizes: Sequence[int], num: int) -> list[int]:
    """The first tensor of each fragment but the first one."""
    ends, cuts = list(accumulate(sizes)), [0]
    for number in range(1, num):
        target = ends[-1] * number / num
        allowed = range(cuts[-1] + 1, len(sizes) - (num - number) + 1)
        cuts.append(min(allowed, key=lambda index: abs(ends[index - 1] - target)))
    return cuts[1:]
