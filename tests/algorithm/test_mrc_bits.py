"""Bits of BiCompFL's own methods against the printed columns of its tables 5 to 12.

What a round sends is written down here from each variant's rule: B = ceil(d / 256) blocks of 8 bits a sample, n = 10
clients, n_UL = 1, n_DL = 10; tests hold the ledger to it, and `tests/compressor/mrc/test_codec.py` the codec. bpp (BC)
counts a relayed stream n - 1 times for n receivers, as the paper does.

128 cells of four methods with fixed blocks: 102 match to the two printed digits. The 26 others, those of `MISMATCHES`
in every table of their model, differ by a unit of the last digit: d is no multiple of 256, and the paper does not say
how it counts the last block (LeNet-5's need an uplink between 8/256 and 0.031316, which no rounding of d / 256 gives).
The 64 cells of the adaptive variants depend on the data, but their ratios do not: down is 9 times up, and bpp (BC) is
up + down / 10, in all but one row of table 8.
"""

from dataclasses import replace

from fedcomp.algorithm.bicompfl.bicompfl_cfl import BiCompFLCFL
from fedcomp.algorithm.bicompfl.bicompfl_gr import BiCompFLGR
from fedcomp.algorithm.bicompfl.bicompfl_pr import BiCompFLPR
from fedcomp.algorithm.contract import Algorithm
from fedcomp.reporting.tables.published import load
from tests.algorithm.bicompfl.test_bicompfl_bits import COLUMNS, DIMS, NUM, Sent, as_printed
from tests.conformance import world
from tests.looped import looped
from tests.parts import Adam, Compressor, MRCSign, ServerSgd, Sgd
from tests.rounds import one_round, rounds

SAMPLES_DOWN = 10
CLIENTS, DIM = world.NUM_CLIENTS, 39


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


FIRST = Adam(lr=0.1, batch_size=4)


def _bits(algorithm: Algorithm) -> dict[str, int]:
    """Of a first round of all clients."""
    return one_round(world.simulation(algorithm, participation=world.FULL)).bits


@looped("relay", ["plain", "xor"])
@looped(
    "algorithm",
    [BiCompFLGR(client=FIRST, block=16), BiCompFLCFL(Sgd(lr=0.1), ServerSgd(), Compressor(MRCSign(block=16)))],
)
def test_a_relayed_round_in_the_ledger(algorithm: Algorithm, relay: str) -> None:
    bits, up = _bits(replace(algorithm, relay=relay)), 8 * -(-DIM // 16)
    assert (bits["uplink"], bits["downlink"]) == (CLIENTS * up, CLIENTS * (CLIENTS - 1) * up)
    assert bits["broadcast"] == (CLIENTS - 1 if relay == "xor" else CLIENTS) * up
    assert bits["paper/broadcast"] == (CLIENTS - 1) * up


@looped("allocation", ["adaptive", "adaptive_avg"])
def test_a_round_that_asks_for_other_blocks_in_the_ledger(allocation: str) -> None:
    """A bit from each client, and the server's answer, a bit to each, which the paper does not count."""
    bits = _bits(BiCompFLGR(client=FIRST, block=1, allocation=allocation, longest=64, smallest=1))
    up = 8 * DIM
    assert bits["uplink"] == CLIENTS * (up + 1)
    assert (bits["downlink"], bits["broadcast"]) == (CLIENTS * ((CLIENTS - 1) * up + 1), CLIENTS * up + 1)
    paper = bits["paper/downlink"], bits["paper/broadcast"]
    assert paper == (CLIENTS * (CLIENTS - 1) * up, (CLIENTS - 1) * up)


def test_a_split_round_in_the_ledger() -> None:
    sim = world.simulation(BiCompFLPR(client=FIRST, block=3, split_downlink=True), participation=world.FULL)
    down = sum(one.bits["downlink"] for one in rounds(sim, CLIENTS))
    assert down == CLIENTS * CLIENTS * -(-DIM // 3) * 8
