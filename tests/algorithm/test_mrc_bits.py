"""Bits of BiCompFL's own methods against the printed columns of its tables 5 to 12.

What a round sends is written down here from each variant's rule: B = ceil(d / 256) blocks of 8 bits a sample, n = 10
clients, n_UL = 1, n_DL = 10; a test holds the codec and the ledger to it. bpp (BC) counts a relayed stream n - 1 times
for n receivers, as the paper does.

128 cells of four methods with fixed blocks: 102 match to the two printed digits. The 26 others, those of `MISMATCHES`
in every table of their model, differ by a unit of the last digit: d is no multiple of 256, and the paper does not say
how it counts the last block (LeNet-5's need an uplink between 8/256 and 0.031316, which no rounding of d / 256 gives).
The 64 cells of the adaptive variants depend on the data, but their ratios do not: down is 9 times up, and bpp (BC) is
up + down / 10, in all but one row of table 8.
"""

import torch

from fedcomp.algorithm.bicompfl.bicompfl_cfl import BiCompFLCFL
from fedcomp.algorithm.bicompfl.bicompfl_gr import BiCompFLGR
from fedcomp.algorithm.bicompfl.bicompfl_pr import BiCompFLPR
from fedcomp.compressor.mrc.split import groups
from fedcomp.reporting.tables.published import load
from fedcomp.wire import Ledger
from tests.algorithm.bicompfl.test_bicompfl_bits import COLUMNS, DIMS, NUM, Sent, as_printed
from tests.conformance import world
from tests.looped import looped
from tests.parts import MRC, Adam, Compressor, MRCSign, ServerSgd, Sgd

SAMPLES_DOWN = 10


def columns(method: str, dim: int) -> dict[str, float]:
    """The tables' columns of a method with blocks of 256, in bits per parameter and round."""
    up = 8 * -(-dim // 256)
    sent = {
        "BiCompFL-GR-Fixed": Sent(up, broadcast=(NUM - 1) * up),
        "BiCompFL-GR-Reconst-Fixed": Sent(up, broadcast=SAMPLES_DOWN * up),
        "BiCompFL-PR-Fixed": Sent(up, SAMPLES_DOWN * up),
        "BiCompFL-PR-Fixed-SplitDL": Sent(up, SAMPLES_DOWN * up / NUM),
    }[method]
    return sent.columns(dim, 1)


FIXED = ("BiCompFL-GR-Fixed", "BiCompFL-GR-Reconst-Fixed", "BiCompFL-PR-Fixed", "BiCompFL-PR-Fixed-SplitDL")
GR, RECONST, PR, SPLIT = FIXED
CNNS = {(RECONST, "bpp_bc"), (SPLIT, "bpp"), (SPLIT, "bpp_bc")}
LENET = {(GR, "bpp_bc"), (RECONST, "bpp"), (PR, "bpp"), (PR, "bpp_bc")}
MISMATCHES = {(model, *cell) for model in ("4CNN", "6CNN") for cell in CNNS} | {("LeNet5", *cell) for cell in LENET}


def test_every_cell_with_fixed_blocks_but_those_named() -> None:
    rows = [row for row in load("bicompfl") if row.method in FIXED]
    wrong = [
        (row.model, row.method, column)
        for row in rows
        for column, value in columns(row.method, DIMS[row.model]).items()
        if as_printed(value) != row.rates[column]
    ]
    assert len(rows) * len(COLUMNS) == 128
    assert len(wrong) == 26
    assert set(wrong) == MISMATCHES
    for row in rows:  # each within a unit of its last digit
        for column, value in columns(row.method, DIMS[row.model]).items():
            unit = 0.01 if row.rates[column] >= 0.1 else 0.001
            assert abs(value - row.rates[column]) < 1.1 * unit


def test_ratios_of_the_adaptive_rows() -> None:
    rows = [row for row in load("bicompfl") if "Adaptive" in row.method]
    assert len(rows) == 16
    odd = set()
    for row in rows:
        printed, half = row.rates, 0.0005
        ups = [printed["uplink"] - half, printed["uplink"] + half]
        low, high = 9 * ups[0], 9 * ups[1]
        unit = 0.01 if printed["downlink"] >= 0.1 else 0.001
        if not low <= printed["downlink"] + unit / 2 or not high >= printed["downlink"] - unit / 2:
            odd.add((row.table, row.method))
    assert odd <= {("8", "BiCompFL-GR-Adaptive")}


@looped("dim", DIMS.values())
def test_the_codec_sends_what_the_columns_say(dim: int) -> None:
    codec = MRC()
    assert codec.coding.fixed_bits(codec.layout(dim)["indices"]) == 8 * -(-dim // 256)
    parts = groups(-(-dim // 256), NUM)
    assert sum(high - low for low, high in parts) == -(-dim // 256)
    assert [low for low, _ in parts[1:]] == [high for _, high in parts[:-1]]


@looped("relay", ["plain", "xor"])
def test_a_relayed_round_in_the_ledger(relay: str) -> None:
    client, ledger = Adam(lr=0.1, batch_size=4), Ledger()
    sim = world.simulation(BiCompFLGR(client=client, block=16, relay=relay), participation=world.FULL)
    sim.round(0, sim.init(), ledger)
    counters, num = ledger.counters(), world.NUM_CLIENTS
    up = 8 * -(-sim.model.dim // 16)
    assert counters["uplink"] == num * up
    assert counters["downlink"] == num * (num - 1) * up
    assert counters["broadcast"] == (num - 1 if relay == "xor" else num) * up
    assert counters["paper/broadcast"] == (num - 1) * up


@looped("allocation", ["adaptive", "adaptive_avg"])
def test_a_round_that_asks_for_other_blocks_in_the_ledger(allocation: str) -> None:
    """A bit from each client, and the server's answer, a bit to each, which the paper does not count."""
    algorithm = BiCompFLGR(client=Adam(lr=0.1, batch_size=4), block=1, allocation=allocation, longest=64, smallest=1)
    sim, ledger = world.simulation(algorithm, participation=world.FULL), Ledger()
    state, _ = sim.round(0, sim.init(), ledger)
    assert bool(state.wanted[0])
    counters, num = ledger.counters(), world.NUM_CLIENTS
    up = 8 * sim.model.dim
    assert counters["uplink"] == num * (up + 1)
    assert (counters["downlink"], counters["broadcast"]) == (num * ((num - 1) * up + 1), num * up + 1)
    assert (counters["paper/downlink"], counters["paper/broadcast"]) == (num * (num - 1) * up, (num - 1) * up)


@looped("relay", ["plain", "xor"])
def test_a_relayed_round_of_updates_in_the_ledger(relay: str) -> None:
    algorithm, ledger = BiCompFLCFL(Sgd(lr=0.1), ServerSgd(), Compressor(MRCSign(block=8)), relay), Ledger()
    sim = world.simulation(algorithm, participation=world.FULL)
    sim.round(0, sim.init(), ledger)
    counters, num = ledger.counters(), world.NUM_CLIENTS
    up = 8 * -(-sim.model.dim // 8)
    assert (counters["uplink"], counters["downlink"]) == (num * up, num * (num - 1) * up)
    assert counters["broadcast"] == (num - 1 if relay == "xor" else num) * up


def test_a_split_round_in_the_ledger() -> None:
    client, total = Adam(lr=0.1, batch_size=4), Ledger()
    sim = world.simulation(BiCompFLPR(client=client, block=3, split_downlink=True), participation=world.FULL)
    state = sim.init()
    for index in range(world.NUM_CLIENTS):
        state, _ = sim.round(index, state, total)
    blocks = -(-sim.model.dim // 3)
    assert total.counters()["downlink"] == world.NUM_CLIENTS * world.NUM_CLIENTS * blocks * 8
    assert torch.isfinite(state.theta).all()


def test_a_mixed_prior_costs_eight_bits() -> None:
    ledgers = []
    for mixed in (False, True):
        ledgers.append(Ledger())
        client = Adam(lr=0.1, batch_size=4)
        sim = world.simulation(BiCompFLPR(client=client, block=16, optimise_prior=mixed), participation=world.FULL)
        world.run(sim, ledger=ledgers[-1])
    more = ledgers[1].counters()["uplink"] - ledgers[0].counters()["uplink"]
    assert more == 4 * world.NUM_CLIENTS * 8
