"""Draws of many repetitions at once, each from a key of its own, the same bits as one after another.

Shape legend: R repetitions, N clients of each, M rows, n draws a row.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from fedcomp.random.keys import Key
from fedcomp.random.philox import MASK, philox_numpy

SHORT = 4096
"""Draws a row up to which one call for all repetitions beats one call, compiled perhaps, for each."""


class NotVmappable(RuntimeError):
    """An operation that vmap over repetitions does not support; they then run one after another."""


@dataclass(frozen=True)
class KeyOfEach(Key):
    """A key for all repetitions, of which each draws from its own of the `keys`."""

    keys: tuple[Key, ...] = ()

    @property
    def seed(self) -> int:
        """There is no single one."""
        raise NotVmappable("a draw for all repetitions from one generator")

    def fold_in(self, *parts: int | str) -> Self:
        return replace(self, keys=tuple(key.fold_in(*parts) for key in self.keys))

    def bits(self, ids_M: Tensor, num: int, start: int = 0) -> Tensor:
        return self._of_each("bits", ids_M, num, start)

    def uniform(self, ids_M: Tensor, num: int, start: int = 0) -> Tensor:
        return self._of_each("uniform", ids_M, num, start)

    def rademacher(self, ids_M: Tensor, num: int, start: int = 0) -> Tensor:
        return self._of_each("rademacher", ids_M, num, start)

    def normal(self, ids_M: Tensor, num: int, start: int = 0) -> Tensor:
        return self._of_each("normal", ids_M, num, start)

    def choice(self, ids_M: Tensor, num: int, out_of: int) -> Tensor:
        return self._of_each("choice", ids_M, num, out_of)

    @abstractmethod
    def _of_each(self, name: str, ids_M: Tensor, *options: int) -> Tensor:
        """What the method `name` of each key draws."""


@dataclass(frozen=True)
class ClientKey(KeyOfEach):
    """A key for R N clients: client i of repetition r has the number r N + i, and draws from repetition r's key.

    Attributes:
        num_clients: N.
    """

    num_clients: int = 1

    def bits(self, ids_M: Tensor, num: int, start: int = 0) -> Tensor:
        if ids_M.device.type == "cpu" and num <= SHORT:
            return torch.from_numpy(self._words(ids_M.numpy(), num, start))
        return super().bits(ids_M, num, start)

    def uniform(self, ids_M: Tensor, num: int, start: int = 0) -> Tensor:
        if ids_M.device.type == "cpu" and num <= SHORT:
            return (self.bits(ids_M, num, start) >> 8).to(torch.float32) * 2.0**-24
        return super().uniform(ids_M, num, start)

    def _words(self, ids_M: np.ndarray, num: int, start: int) -> np.ndarray:
        """[M, n] int64: as `Key.bits`, with a Philox key for each row."""
        repetition, client = np.divmod(ids_M, self.num_clients)
        seeds = np.array([key.seed for key in self.keys], np.uint64)[repetition][:, None]
        num_counters = -(-num // 4)
        counter = np.zeros((4, len(ids_M), num_counters), np.uint64)
        counter[0] = np.arange(start // 4, start // 4 + num_counters)
        counter[2] = client[:, None]
        words = philox_numpy((seeds & np.uint64(MASK), seeds >> np.uint64(32)), counter)
        return words.transpose(1, 2, 0).reshape(len(ids_M), 4 * num_counters).view(np.int64)[:, :num]

    def _of_each(self, name: str, ids_M: Tensor, *options: int) -> Tensor:
        """Each repetition's rows by themselves."""
        repetition, drawn = ids_M // self.num_clients, None
        for number in repetition.unique().tolist():
            where = (repetition == number).nonzero()[:, 0]
            part = getattr(self.keys[number], name)(ids_M[where] % self.num_clients, *options)
            drawn = part.new_empty(len(ids_M), *part.shape[1:]) if drawn is None else drawn
            drawn[where] = part
        return drawn if drawn is not None else getattr(self.keys[0], name)(ids_M, *options)


@dataclass(frozen=True)
class VmappedKey(KeyOfEach):
    """A key inside `torch.func.vmap` over repetitions.

    Attributes:
        anchor: any tensor that is mapped over repetitions; draws must be, even where client numbers are not.
    """

    anchor: Tensor | None = None

    def _of_each(self, name: str, ids_M: Tensor, *options: int) -> Tensor:
        def draw(_: Tensor, ids_RM: Tensor) -> tuple[Tensor]:
            return (torch.stack([getattr(key, name)(ids, *options) for key, ids in zip(self.keys, ids_RM)]),)

        assert self.anchor is not None
        return over_repetitions(draw, self.anchor, ids_M)[0]


def over_repetitions(function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> tuple[Tensor, ...]:
    """Call `function` from inside `torch.func.vmap` with the tensors as they are outside, repetitions first.

    It returns tensors whose first axis is the repetitions; they come back mapped.
    """
    return _Outside.apply(function, *tensors)


class _Outside(torch.autograd.Function):
    """An operation whose rule under vmap is to be called with all repetitions."""

    @staticmethod
    def forward(function: Callable, *tensors: Tensor) -> Any:
        raise NotVmappable("called outside of vmap, or with nothing that is mapped")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is differentiated."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, function: Callable, *tensors: Tensor) -> Any:
        whole = [
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(tensors, in_dims[1:])
        ]
        outputs = function(*whole)
        return outputs, tuple(0 for _ in outputs)
