"""Inputs and targets of encoded rows: one row a sample with padding behind, or several.

Shape legend: n samples, L tokens of a sample.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

NO_TARGET = -100
"""As in `dataset/contract.py`."""
Samples = tuple[np.ndarray, np.ndarray, list[int]]
"""x [n, L] int32, y [n, L] int64 with `NO_TARGET`, the owner of each."""


@dataclass(frozen=True)
class Encoded:
    """A row's tokens.

    Attributes:
        tokens: of prompt, answer and end. num_before: how many of the first are no target. owner: its number.
    """

    tokens: list[int]
    num_before: int
    owner: int

    @property
    def targets(self) -> list[int]:
        """The tokens, `NO_TARGET` in place of the first `num_before`."""
        return [NO_TARGET] * self.num_before + self.tokens[self.num_before :]


def pad(rows: Sequence[Encoded], length: int, padding: int) -> Samples:
    """A sample of each row that has a target within L + 1 tokens, the first of which is none."""
    kept = [row for row in rows if any(target >= 0 for target in row.targets[1 : length + 1])]
    return _filled([(row.tokens, row.targets) for row in kept], length, padding, [row.owner for row in kept])


def pack(rows: Sequence[Encoded], length: int, padding: int) -> Samples:
    """Samples of all rows of an owner, joined in their order; each token but an owner's first is a target once."""
    parts: list[tuple[list[int], list[int]]] = []
    owners: list[int] = []
    by_owner: dict[int, list[Encoded]] = {}
    for row in rows:
        by_owner.setdefault(row.owner, []).append(row)
    for owner, own in by_owner.items():
        tokens = list(itertools.chain.from_iterable(row.tokens for row in own))
        targets = list(itertools.chain.from_iterable(row.targets for row in own))
        for start in range(0, len(tokens) - 1, length):
            cut = slice(start, start + length + 1)
            if any(target >= 0 for target in targets[cut][1:]):
                parts.append((tokens[cut], targets[cut]))
                owners.append(owner)
    return _filled(parts, length, padding, owners)


def _filled(parts: Sequence[tuple[list[int], list[int]]], length: int, padding: int, owners: list[int]) -> Samples:
    x = np.full((len(parts), length), padding, np.int32)
    y = np.full((len(parts), length), NO_TARGET, np.int64)
    for number, (tokens, targets) in enumerate(parts):
        seen, wanted = tokens[:-1][:length], targets[1 : length + 1]
        x[number, : len(seen)], y[number, : len(wanted)] = seen, wanted
    return x, y, owners
