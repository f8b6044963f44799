"""An update as a sum of products of small factors: thin matrices, or blocks of Kronecker products, and their gradients.

    mat    left [o, r] times right [r, i], laid over a tensor that is o x i in memory
    kron   R blocks left_b (x) right_b of s x s matrices, one after another, flattened and cut at N entries

    ab        left right, both trained; left begins at random, right at 0
    fab       F right, F fixed
    fab+cfd   F right + left G, F and G fixed, both trained factors begin at 0 (aggregation-aware)

A mean of trained factors is then the mean of what they stand for, except for ab.

Shape legend: A clients, N entries of a tensor, F trained numbers of all tensors, X fixed ones, d entries of all,
R blocks of s^4 entries.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from fedcomp.core.parameter_layout import ParameterTensor

FactorType = Literal["mat", "kron"]
FactorPattern = Literal["ab", "fab", "fab+cfd"]
View = Literal["memory", "out_fan_in"]


@dataclass(frozen=True)
class Product:
    """left right of one tensor.

    Attributes:
        size: N. left, right: shapes of the factors, [o, r] and [r, i], or [R, s, s] twice.
    """

    size: int
    left: tuple[int, ...]
    right: tuple[int, ...]

    @classmethod
    def of(cls, tensor: ParameterTensor, kind: str, pattern: str, ratio: float, view: str) -> "Product":
        """For a tensor of N entries of which `ratio` N numbers are trained, or as few as there can be."""
        num = tensor.size
        if kind == "kron":
            blocks = max(1, math.ceil(round(ratio**2 * num / 4 * (4 if pattern == "fab" else 1), 9)))
            side = math.ceil(round((num / blocks) ** 0.25, 9))
            return cls(num, (blocks, side, side), (blocks, side, side))
        kernel = tensor.kernel if view == "memory" else 1
        high, wide = num // tensor.fan_in * kernel, tensor.fan_in // kernel
        rank = max(1, math.ceil(round(ratio * num / (wide if pattern == "fab" else high + wide), 9)))
        return cls(num, (high, rank), (rank, wide))

    @property
    def is_kron(self) -> bool:
        """Whether it is one of Kronecker blocks."""
        return len(self.left) == 3

    @property
    def width(self) -> int:
        """Numbers of the fixed factor that an entry sums over: r of matrices, 1 of Kronecker blocks.

        Through a fixed factor of variance v a gradient step is this times v times the gradient, in the mean.
        """
        return 1 if self.is_kron else self.left[1]

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        """[A, N] of flat factors [A, ...] (or [1, ...])."""
        left, right = left.unflatten(1, self.left), right.unflatten(1, self.right)
        if self.is_kron:
            return torch.einsum("abim,abjn->abijmn", *self._both(left, right)).flatten(1)[:, : self.size]
        return (left @ right).flatten(1)

    def of_right(self, slope: Tensor, left: Tensor) -> Tensor:
        """The gradient of a flat right factor, given that of the tensor [A, N] and left."""
        left = left.unflatten(1, self.left)
        if self.is_kron:
            return torch.einsum("abim,abijmn->abjn", *self._both(left, self._blocks(slope))).flatten(1)
        return (left.mT @ slope.unflatten(1, (self.left[0], self.right[1]))).flatten(1)

    def of_left(self, slope: Tensor, right: Tensor) -> Tensor:
        """The gradient of a flat left factor."""
        right = right.unflatten(1, self.right)
        if self.is_kron:
            return torch.einsum("abjn,abijmn->abim", *self._both(right, self._blocks(slope))).flatten(1)
        return (slope.unflatten(1, (self.left[0], self.right[1])) @ right.mT).flatten(1)

    def _blocks(self, slope: Tensor) -> Tensor:
        """[A, R, s, s, s, s]; cells beyond N have no gradient."""
        blocks, side = self.left[:2]
        return functional.pad(slope, (0, blocks * side**4 - self.size)).unflatten(1, (blocks, side, side, side, side))

    @staticmethod
    def _both(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        rows = max(len(one), len(other))
        return one.expand(rows, *one.shape[1:]), other.expand(rows, *other.shape[1:])


@dataclass(frozen=True)
class Factors:
    """The factors of all tensors that are decomposed, as flat rows of trained and of fixed numbers.

    Attributes:
        pattern: ab, fab or fab+cfd. products: one a tensor.
    """

    pattern: str
    products: tuple[Product, ...]

    @property
    def trained(self) -> list[int]:
        """Sizes of the trained factors, in the order of a row."""
        return [math.prod(shape) for one in self.products for shape in self._shapes(one)[0]]

    @property
    def fixed(self) -> list[int]:
        """Sizes of the fixed factors, in the order of a row."""
        return [math.prod(shape) for one in self.products for shape in self._shapes(one)[1]]

    def fold(self, x: Tensor, fixed: Tensor) -> Tensor:
        """[A, d] of trained [A, F] and fixed [X]."""
        found = []
        for product, own, given in self._each(x, fixed):
            if self.pattern == "ab":
                found.append(product.multiply(own[0], own[1]))
            elif self.pattern == "fab":
                found.append(product.multiply(given[0], own[0]))
            else:
                found.append(product.multiply(given[0], own[0]) + product.multiply(own[1], given[1]))
        return torch.cat(found, 1)

    def pull_back(self, slope: Tensor, x: Tensor, fixed: Tensor) -> Tensor:
        """[A, F] gradient of the trained numbers, given that of what they stand for [A, d]."""
        found = []
        slopes = slope.split([one.size for one in self.products], 1)
        for (product, own, given), one in zip(self._each(x, fixed), slopes, strict=True):
            if self.pattern == "ab":
                found += [product.of_left(one, own[1]), product.of_right(one, own[0])]
            else:
                found.append(product.of_right(one, given[0]))
                found += [product.of_left(one, given[1])] if self.pattern == "fab+cfd" else []
        return torch.cat(found, 1)

    def _each(self, x: Tensor, fixed: Tensor) -> list[tuple[Product, Sequence[Tensor], Sequence[Tensor]]]:
        """Each product with its trained factors [A, ...] and its fixed ones [1, ...]."""
        own, given = (
            iter(x.split(self.trained, 1)),
            iter(fixed.to(x.dtype)[None].split(self.fixed, 1) if self.fixed else ()),
        )
        found: list[tuple[Product, Sequence[Tensor], Sequence[Tensor]]] = []
        for product in self.products:
            trained, kept = self._shapes(product)
            found.append((product, [next(own) for _ in trained], [next(given) for _ in kept]))
        return found

    def _shapes(self, one: Product) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """Shapes of a product's trained and of its fixed factors."""
        if self.pattern == "ab":
            return [one.left, one.right], []
        if self.pattern == "fab":
            return [one.right], [one.left]
        return [one.right, one.left], [one.left, one.right]
