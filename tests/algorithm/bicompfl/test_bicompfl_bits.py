"""Bits of the bidirectional baselines against the printed columns of BiCompFL's tables 5 to 12.

What a method sends is written down here from its rule, in bits for one client over all rounds, every scale included;
`tests/compressor/test_conformance.py` holds the codecs to these terms. n = 10 clients, 200 rounds (CIFAR-10: 400), a
synchronisation every 50. Printed are two significant digits of bits per parameter, client and round; bpp (BC) counts a
broadcast once for all.

192 cells of six methods: 186 match, and the six that do not are in table 7. Of M3, whose number of whole messages is
random and unstated, the uplink matches within the noise of its coins; downlink, total and broadcast do not.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from fedcomp.reporting.tables.published import Printed, load
from tests.looped import looped

DIMS = {"LeNet5": 61_706, "4CNN": 1_933_258, "6CNN": 2_262_602}
NUM, PERIOD, REPETITIONS = 10, 50, 2
"""Clients; rounds between two synchronisations of CSER and LIEC; messages a round of Neolithic, its R."""
COLUMNS = ("uplink", "downlink", "bpp", "bpp_bc")


@dataclass(frozen=True)
class Sent:
    """Bits of one client over all rounds: up, down to it alone, and down to everybody at once."""

    up: float
    down: float = 0
    broadcast: float = 0

    def columns(self, dim: int, rounds: int) -> dict[str, float]:
        """The tables' columns, in bits per parameter and round."""
        up, alone, shared = (bits / (dim * rounds) for bits in (self.up, self.down, self.broadcast))
        down = alone + shared
        return dict(zip(COLUMNS, (up, down, up + down, up + alone + shared / NUM)))


def _dense(dim: int) -> int:
    return 32 * dim


def _sign(dim: int) -> int:
    return dim + 32


def _topk(dim: int) -> int:
    return dim // NUM * (32 + (dim - 1).bit_length())


def _both_ways(messages: int, up: int, down: int) -> Sent:
    """So many, those down to everybody at once."""
    return Sent(messages * up, broadcast=messages * down)


def cser(dim: int, rounds: int, period: int = PERIOD) -> Sent:
    """A synchronisation adds one message in each direction."""
    return _both_ways(rounds + rounds // period, _sign(dim), _dense(dim))


def liec(dim: int, rounds: int, period: int = PERIOD) -> Sent:
    """A synchronisation sends model and gradient, dense, instead of the signs."""
    averaging = rounds // period
    bits = (rounds - averaging) * _sign(dim) + averaging * 2 * _dense(dim)
    return Sent(bits, broadcast=bits)


def m3(dim: int, rounds: int) -> Sent:
    """Expected: whole vectors in the first round, then with probability 1 / n in each direction."""
    whole = 1 + (rounds - 1) / NUM
    parts, part = rounds - whole, _dense(dim) / NUM
    return Sent(whole * _dense(dim) + parts * _topk(dim), parts * part, whole * _dense(dim))


METHODS: dict[str, Callable[[int, int], Sent]] = {
    "FedAvg": lambda dim, rounds: _both_ways(rounds, _dense(dim), _dense(dim)),
    "Doublesqueeze": lambda dim, rounds: _both_ways(rounds, _sign(dim), _sign(dim)),
    "Memsgd": lambda dim, rounds: _both_ways(rounds, _sign(dim), _dense(dim)),
    "Neolithic": lambda dim, rounds: _both_ways(rounds * REPETITIONS, _sign(dim), _sign(dim)),
    "Cser": cser,
    "Liec": liec,
}
MISMATCHES = {("7", "Liec", column) for column in COLUMNS} | {("7", "Cser", column) for column in ("downlink", "bpp")}
"""Table 7 alone has two thirds of the synchronisations: see the test of what would explain it."""


def _rows(*methods: str) -> list[Printed]:
    return [row for row in load("bicompfl") if row.method in methods]


def _rounds(row: Printed) -> int:
    return 400 if row.dataset == "CIFAR-10" else 200


def _columns(row: Printed) -> dict[str, float]:
    return METHODS[row.method](DIMS[row.model], _rounds(row)).columns(DIMS[row.model], _rounds(row))


def as_printed(value: float) -> float:
    return float(f"{value:.2g}")


def test_every_cell_of_six_methods_but_those_named() -> None:
    rows = _rows(*METHODS)
    wrong = {
        (row.table, row.method, column)
        for row in rows
        for column, value in _columns(row).items()
        if as_printed(value) != row.rates[column]
    }
    assert len(rows) * len(COLUMNS) == 192
    assert wrong == MISMATCHES


@looped("method, sent", [("Liec", liec), ("Cser", cser)])
def test_table_7_is_a_third_of_the_runs_without_synchronisation(method: str, sent: Callable[..., Sent]) -> None:
    """All four of its cells are the mean over three seeds of which one never synchronises; the text says period 50."""
    (row,) = [row for row in _rows(method) if row.table == "7"]
    dim, rounds = DIMS[row.model], _rounds(row)
    every, never = (sent(dim, rounds, period).columns(dim, rounds) for period in (PERIOD, rounds + 1))
    mean = {column: (2 * every[column] + never[column]) / 3 for column in COLUMNS}
    assert {column: as_printed(value) for column, value in mean.items()} == row.rates


def _deviation(dim: int, rounds: int, part: float) -> float:
    """Standard error of a printed cell: coins of p = 1 / n over `rounds` rounds of three runs, then rounded to 0.1."""
    coins = (NUM - 1) / NUM**2 * (rounds - 1) / 3
    return ((32 - part / dim) ** 2 * coins / rounds**2 + 0.1**2 / 12) ** 0.5


def test_m3s_uplink_is_within_the_noise_of_its_coins_and_its_downlink_is_not() -> None:
    """Uplink: every cell within 2 standard errors and the mean of all eight within 1; that of the downlink is 8 off.

    Places are in it: values alone would be 17 standard errors too few. The mean printed downlink, 7.19, is that of
    p = 0.138, or of a bit an entry that says whose part it is in (7.1): neither is in the text.
    """
    ups, downs, bare = [], [], []
    for row in _rows("M3"):
        dim, rounds = DIMS[row.model], _rounds(row)
        ours = m3(dim, rounds).columns(dim, rounds)
        error = _deviation(dim, rounds, _topk(dim))
        ups.append((row.rates["uplink"] - ours["uplink"]) / error)
        downs.append((row.rates["downlink"] - ours["downlink"]) / _deviation(dim, rounds, _dense(dim) / NUM))
        bare.append((row.rates["uplink"] - ours["downlink"]) / error)  # values alone: as many bits as the parts down
    ups, downs, bare = (torch.tensor(each) for each in (ups, downs, bare))
    assert ups.abs().max() < 2
    assert ups.mean().abs() < 8**-0.5
    assert downs.min() > 1.9
    assert downs.mean() > 8 * 8**-0.5
    assert bare.mean() > 17 * 8**-0.5


def test_m3s_broadcast_column_contradicts_its_own_uplink() -> None:
    """No broadcast of the downlink makes less than the uplink; the printed 2.2 is Neolithic's cell in all tables."""
    for row in _rows("M3"):
        dim, rounds = DIMS[row.model], _rounds(row)
        ours = m3(dim, rounds).columns(dim, rounds)
        (other,) = [other for other in _rows("Neolithic") if other.table == row.table]
        assert row.rates["bpp_bc"] == other.rates["bpp_bc"] < row.rates["uplink"]
        assert ours["bpp_bc"] == pytest.approx(ours["uplink"] + 32 / NUM)  # parts and a shared model cost alike
        assert as_printed(ours["bpp"]) == 14
        assert row.rates["bpp"] in (15, 16)  # with its own downlink
        assert row.rates["bpp"] == pytest.approx(row.rates["uplink"] + row.rates["downlink"], abs=0.6)
