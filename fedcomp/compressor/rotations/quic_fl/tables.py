"""Tables of QUIC-FL's receiver, and the sender of least variance that belongs to each.

The receiver decodes code x of an entry with shared random number h to r[h, x]. An unbiased sender chooses, for an entry
y, codes whose mean over h and its own coin is y. Of all of them the one with the least variance lies on a lower convex
hull whose vertices round y to the nearest r[h, x] for a threshold common to all h. So all midpoints of neighbours
(r[h, x], r[h, x+1]) are sorted; start with code 0 for every h; jump j raises the code of one h, h_j, by one, and
G_j = mean_h r[h, code after j jumps]. For y in [G_j, G_{j+1}] every h has its code after j jumps, and h = h_j one more
with probability (y - G_j) / (G_{j+1} - G_j). The official program has a grid of 10,001 values of y with a tabulated
sender instead, and rounds y to it.

`tables.csv` has r for b = 1..4 bits and l = 6, 5, 4, 4 bits of h, solved for the least mean variance over normal y, of
which those above T have none: 1.46540, 0.21350, 0.042638, 0.009523 (the official tables, with this sender: 1.46701,
0.21491, 0.043116, 0.009684).

Shape legend: H = 2^l shared numbers, X = 2^b codes, J = H (X - 1) jumps.
"""

import csv
import functools
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

SHARED_BITS = {1: 6, 2: 5, 3: 4, 4: 4}
"""l by b."""
THRESHOLD = 3.0972690781987844
"""T: a normal entry is larger with probability 1/512, and is then sent as it is."""


@dataclass(frozen=True, eq=False)
class Table:
    """r and its sender.

    Attributes:
        values: [H, X] float64 r, ascending in x.
        means: [J + 1] float64 G, ascending from at most -T to at least T.
        codes: [J, H] int64 the code of h after j jumps.
        raised: [J] int64 h_j.
    """

    values: np.ndarray
    means: np.ndarray = field(init=False)
    codes: np.ndarray = field(init=False)
    raised: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        num_shared, num_codes = self.values.shape
        if not (np.diff(self.values, axis=1) > 0).all():
            raise ValueError("a table of QUIC-FL must ascend with the code in every row: sort its rows")
        midpoints = (self.values[:, 1:] + self.values[:, :-1]) / 2
        raised = np.argsort(midpoints, axis=None, kind="stable") // (num_codes - 1)
        after = (raised[:, None] == np.arange(num_shared)).cumsum(0)  # codes after jumps 1..J
        codes = np.concatenate((np.zeros((1, num_shared), np.int64), after))
        means = np.take_along_axis(self.values.T, codes, 0).mean(1)
        if means[0] > -THRESHOLD * (1 - 1e-6) or means[-1] < THRESHOLD * (1 - 1e-6):
            raise ValueError(
                f"a table of QUIC-FL must reach from -T to T = {THRESHOLD:.4f} in the mean over h, but this one "
                f"reaches from {means[0]:.4f} to {means[-1]:.4f}"
            )
        for name, value in (("means", means), ("codes", codes[:-1]), ("raised", raised)):
            object.__setattr__(self, name, value)

    def variance(self, y: np.ndarray) -> np.ndarray:
        """Var[decoded | y] of each y in [-T, T]: E[decoded^2 | y] is linear in y between the G_j."""
        squares = np.take_along_axis(self.values.T**2, self.codes, 0).mean(1)
        last = (self.values[:, -1] ** 2).mean()
        return np.interp(y, self.means, np.append(squares, last)) - y**2

    @functools.cached_property
    def mean_variance(self) -> float:
        """The mean of `variance` over standard normal y, of which those beyond T have none."""
        y = np.linspace(-THRESHOLD, THRESHOLD, 200_001)
        heights = self.variance(y) * np.exp(-(y**2) / 2)  # the trapezoids below have a name in NumPy from 2.0 on only
        return float((np.diff(y) * (heights[1:] + heights[:-1]) / 2).sum()) / math.sqrt(2 * math.pi)


@functools.cache
def table(bits: int) -> Table:
    """The shipped table of b = `bits` bits, 1 to 4."""
    text = (Path(__file__).parent / "tables.csv").read_text(encoding="utf-8")
    lines = [line for line in csv.DictReader(text.splitlines()) if int(line["bits"]) == bits]
    return Table(values_of(lines, SHARED_BITS[bits], bits))


def values_of(lines: list[dict[str, str]], shared_bits: int, bits: int) -> np.ndarray:
    """[H, X] r from the lines h, code, value of a file. Raises ValueError: not every place has one value."""
    values = np.full((1 << shared_bits, 1 << bits), np.nan)
    places = {(int(line["h"]), int(line["code"])): float(line["value"]) for line in lines}
    if set(places) != set(np.ndindex(values.shape)) or len(places) != len(lines):
        raise ValueError(
            f"a table of QUIC-FL for {bits} bits needs one value for each of {values.shape[0]} shared numbers and "
            f"{values.shape[1]} codes, but this one has {len(lines)} lines"
        )
    for place, value in places.items():
        values[place] = value
    return values
