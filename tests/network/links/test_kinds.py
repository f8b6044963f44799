"""Drawn rates have the distribution that is said, tables are read strictly, and wrong settings are refused."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hydra.utils import instantiate

from fedcomp.core.choices import options
from fedcomp.core.folders import CONF
from fedcomp.network.links.contract import Network
from fedcomp.network.links.csv import CsvLinks
from fedcomp.network.links.fixed import FixedLinks
from fedcomp.network.links.lognormal import LognormalLinks, sigma
from fedcomp.network.links.shared import SharedLinks
from tests.looped import looped
from tests.refused import refused

MEDIANS = {"down_bps": 3e7, "up_bps": 3e6, "rtt_s": 0.05, "seconds_per_gradient": 0.01}
SPREADS = {"spread_down": 10.0, "spread_up": 4.0, "spread_rtt": 2.0, "spread_gradient": 3.0}


def test_drawn_rates_have_their_median_spread_and_correlation() -> None:
    links = LognormalLinks(**MEDIANS, **SPREADS, correlation=0.5).links(20_000)
    found = {"down": links.down, "up": links.up, "rtt": links.rtt, "gradient": links.work}
    for (name, values), median in zip(found.items(), MEDIANS.values(), strict=True):
        low, middle, high = np.quantile(values, (0.1, 0.5, 0.9))
        assert middle == pytest.approx(median, rel=0.02)
        assert high / low == pytest.approx(SPREADS[f"spread_{name}"], rel=0.05)
    logs = np.log([links.down, links.up, links.rtt, links.work])
    wanted = np.eye(4)
    wanted[0, 1] = wanted[1, 0] = 0.5
    assert np.abs(np.corrcoef(logs) - wanted).max() < 0.02


def test_a_clients_links_depend_on_its_number_and_the_networks_seed_alone() -> None:
    network = LognormalLinks(**MEDIANS, **SPREADS, correlation=0.5)
    few, many = network.links(8), network.links(500)
    other = LognormalLinks(**MEDIANS, **SPREADS, correlation=0.5, seed=1).links(8)
    for name in ("down", "up", "rtt", "work"):
        assert getattr(few, name)[7] == getattr(many, name)[7] != getattr(other, name)[7]


def test_sigma_of_a_spread() -> None:
    assert (sigma(4), sigma(10), sigma(1)) == (pytest.approx(0.540866, abs=1e-6), pytest.approx(0.898358, abs=1e-6), 0)


def test_a_spread_of_one_is_a_fixed_link() -> None:
    drawn, fixed = LognormalLinks(**MEDIANS).links(3), FixedLinks(**MEDIANS).links(3)
    for name in ("down", "up", "rtt", "work"):
        assert (getattr(drawn, name) == getattr(fixed, name)).all()


@pytest.fixture
def table(tmp_path: Path) -> Callable[[str], CsvLinks]:
    def write(text: str) -> CsvLinks:
        path = tmp_path / "rates.csv"
        path.write_text(text)
        return CsvLinks(path=str(path))

    return write


def test_a_table_of_rates(table: Callable[[str], CsvLinks]) -> None:
    links = table("client,down_bps,up_bps,rtt_s,seconds_per_gradient\n1,2e6,1e6,0.1,0.5\n0,inf,3e6,0,0\n").links(2)
    assert links.down.tolist() == [math.inf, 2e6]
    assert (links.up.tolist(), links.rtt.tolist(), links.work.tolist()) == ([3e6, 1e6], [0, 0.1], [0, 0.5])
    assert not links.notes
    links = table("\ufeffdown_bps,up_bps\n1,2\n3,4\n5,6\n").links(2)  # as a spreadsheet program writes it
    assert links.up.tolist() == [2, 4]
    assert "1 more rows than the 2 clients" in links.notes[0]


def test_fedscales_columns(table: Callable[[str], CsvLinks]) -> None:
    links = table("computation,communication\n100,5000\n20,1000\n").links(2)
    assert links.down.tolist() == links.up.tolist() == [5e6, 1e6]
    assert links.work.tolist() == [0.3, 0.06]
    assert "FedScale" in links.notes[0]


@looped(
    "text, says",
    [
        ("down_bps\n1\n", "has no column up_bps: it needs down_bps and up_bps, in bit/s"),
        ("up_bps,down_bps\n1,2\n", "has 1 rows, but 2 clients need one each"),
        ("up_bps,down_bps\n1,2\n1,nan\n", "row 2, column down_bps: nan must be above 0, in bit/s"),
        ("up_bps,down_bps\n1,2\n1,\n", "row 2, column down_bps: an empty cell must be above 0"),
        ("up_bps,down_bps\n1,2\n1\n", "row 2 has 1 cells, but the header 2"),
        ("up_bps,down_bps\n0,2\n1,1\n", "row 1, column up_bps: 0 must be above 0"),
        ("up_bps,down_bps,rtt_s\n1,2,-1\n1,1,0\n", "row 1, column rtt_s: -1 must be 0 or more"),
        ("client,up_bps,down_bps\n0,1,1\n0,1,1\n", "row 2, column client: 0 is there twice"),
        ("client,up_bps,down_bps\n0,1,1\n2,1,1\n", "row 2, column client: 2 is not one of the 2 clients"),
        ("client,up_bps,down_bps\n0,1,1\n", "client 1 has none"),
        ("computation,communication,up_bps\n1,1,1\n1,1,1\n", "FedScale's column computation beside up_bps"),
        ("computation\n1\n1\n", "without communication"),
        ("up_bps,down_bps,up_bps\n1,1,1\n", "has 2 columns up_bps: remove all but one"),
        ("up_bps,down_bps,cell\n1,1,0\n1,1,2\n", "network.capacity_bps is missing: give the uplink of cell 0 to 2"),
        ("up_bps,down_bps,RTT_S\n1,1,1\n1,1,1\n", "has an unknown column 'RTT_S'; did you mean 'rtt_s'?"),
        ("up_bps,down_bps,rtt\n1,1,1\n1,1,1\n", r"has an unknown column 'rtt'; .*: rename or remove it"),
        ("", "is empty: it needs a header line"),
        ("\x80\x04}.", "is a pickle, which can run code when it is read: convert it once with python"),
    ],
)
def test_wrong_tables(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "rates.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=says):
        CsvLinks(path=str(path)).links(2)


test_a_table_that_is_not_there = refused(
    [
        ({"path": "none.csv"}, "network.path=none.csv cannot be read: No such file"),
        ({"path": ""}, "network.path is empty"),
    ],
    lambda **options: CsvLinks(**options).links(1),
)


test_wrong_settings = refused(
    [
        ({"start_s": math.inf}, "network.start_s=inf must be"),
        ({"spread_up": math.nan}, r"network.spread_up=nan must be a number in \[1, inf\)"),
        ({"correlation": 1.5}, r"network.correlation=1.5 must be a number in \[-1, 1\]"),
        ({"deadline": 0}, r"network.deadline=0 must be a number in \(0, inf\], or null"),
        ({"deadline": 1.0, "capacity_bps": 1e6}, "network.deadline=1.0 is not for cells"),
        ({"header": {"message": 1}}, "network.header="),
        ({"header": 3}, "network.header=3 must have"),
        ({"seed": "x"}, "network.seed=x must be a whole number, 0 or more"),
    ],
    lambda **changes: LognormalLinks(**{**MEDIANS, **changes}),
)


test_cells_need_a_capacity_each = refused(
    [
        ({}, r"network.capacity_bps is missing: give the uplink of cell 0 in bit/s"),
        ({"capacity_bps": "fast"}, "network.capacity_bps=fast must be a number"),
        ({"cells": 2, "capacity_bps": [1e6]}, r"has no capacity of cell 1: give 2"),
        ({"cells": 2, "capacity_bps": [1e6, 0]}, r"capacity_bps of cell 1=0 must be a number in \(0, inf\]"),
        ({"cells": 1, "capacity_bps": [1e6, 2e6]}, r"has 2 capacities, but network\.cells=1: give one a cell"),
        ({"cells": 3, "capacity_bps": [1e6, 2e6, 3e6]}, r"network\.cells=3 are more than the 2 clients"),
    ],
    lambda **options: SharedLinks(**MEDIANS, **options).links(2),
)


PRESETS = ("lte", "lte_uk", "5g", "5g_uk", "mobile_us", "broadband_us", "broadband_us_2020", "broadband_uk")
PRESETS += ("broadband_world", "asymmetric_10", "symmetric_10", "cell_20", "cross_silo_1g")


@looped("name", PRESETS)
def test_a_preset_says_where_its_figures_come_from(name: str) -> None:
    path = CONF / "network" / f"{name}.yaml"
    assert "Source:" in path.read_text()
    links = instantiate(options(path)).links(3)
    assert (links.down >= links.up).all() or name not in ("asymmetric_10", "symmetric_10", "cell_20", "cross_silo_1g")


@dataclass(frozen=True, kw_only=True)
class Own(Network):
    """A network of the user's own, whose links a test makes."""

    make: Callable[[np.ndarray], object]

    def links(self, num_clients):
        return self.make(np.ones(num_clients))


PLAIN = FixedLinks(down_bps=1e6, up_bps=1e6)

test_ones_own_links = refused(
    [
        ({"make": lambda one: None}, r"network=test_kinds: links returned a NoneType, but must return Links"),
        ({"make": lambda one: PLAIN.made(one, -one, one, one)}, r"links.up is -1.0 for client 0, but must be above 0"),
        ({"make": lambda one: PLAIN.made(one, 0 * one, one, one)}, r"links.up is 0.0 for client 0"),
        ({"make": lambda one: PLAIN.made(one * math.nan, one, one, one)}, r"links.down is nan for client 0"),
        ({"make": lambda one: PLAIN.made(one, one, -one, one)}, r"links.rtt is -1.0 for client 0, but must be 0 or"),
        ({"make": lambda one: PLAIN.made(one, one, one, -one)}, r"links.work is -1.0 for client 0"),
        (
            {"make": lambda one: PLAIN.made(one, one[1:], one, one)},
            r"links.up is \(2,\), but must be a NumPy array \[3",
        ),
        (
            {"make": lambda one: PLAIN.made(one * np.random.default_rng().uniform(1, 2), one, one, one)},
            r"^network=test_kinds: links are other ones when they are asked for again, .*: draw them by a key",
        ),
        ({"make": lambda one: PLAIN.made(one, [1e6] * 3, one, one)}, r"links.up is a list, but must be a NumPy array"),
    ],
    lambda make: Own(make=make).checked_links(3),
)
