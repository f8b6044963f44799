"""BiCompFL and the bidirectional baselines of its tables (arXiv:2502.00206)."""

from math import log

from fedcomp.reporting.tables import published
from scripts.reproduce import bicompfl_gaps
from scripts.reproduce.bicompfl_claims import claims
from scripts.reproduce.bicompfl_tables import GR, TABLES, TITLES
from scripts.reproduce.markdown import best, made_with, picture
from scripts.reproduce.printed import beside
from scripts.reproduce.records import Folder, Records

EXPERIMENTS = (*TABLES.values(), *bicompfl_gaps.EXPERIMENTS)
_ONE_TABLE = """\
`make reproduce PAPER=bicompfl SCALE=paper` runs them all ([hours](index.md)). For one of their runs give table 5's
command one method, one seed and the table's `experiment/bicompfl/data@_global_` and `split@_global_`."""


def page(folder: Folder) -> str:
    """docs/results/bicompfl.md."""
    records = {number: folder[experiment] for number, experiment in TABLES.items()}
    first = records["5"]
    return f"""\
# BiCompFL and the bidirectional baselines

The settings of BiCompFL's tables 5 to 12: n = 10, 3 local epochs (the paper's "local rounds" are read as epochs),
Adam 3e-4, server step 0.1, M3 0.02. The paper prints the best accuracy over 200 rounds, as the mean of 3 seeds; here ±
is the sample standard deviation over the seeds, and in a claim the standard error of the differences over the
seeds that both methods have.
{_hard_seeds(records["6"])}

The page is written by `make reproduce PAPER=bicompfl SCALE=paper`.

{claims(records)}

What the paper does not say: what a local round is, how scores are initialised, and that the relayed messages of all
others are what a client receives with global randomness. Of the 192 printed bit counts of the baselines 186 follow
from the methods' rules; six of table 7 do not, and M3's downlink differs
(`tests/algorithm/bicompfl/test_bicompfl_bits.py`). Of the 128 printed counts of variants with fixed blocks, 102 are
reproduced to both digits, and 26 differ by one in the last digit because of the shorter last block
(`tests/algorithm/test_mrc_bits.py`).

{_above_capacity(first)}Methods still learn: decoded
masks follow the posteriors only partly. CSER and LIEC average every 50 rounds.

## Adaptive blocks: the capacity

{bicompfl_gaps.adaptive_blocks(folder)}

## SplitDL: the other blocks

{bicompfl_gaps.split(folder)}

{_sections(records)}
"""


def _sections(records: dict[str, Records]) -> str:
    printed = published.load("bicompfl")
    parts = []
    for number, own in records.items():
        if own:
            rows = {row.method: row for row in printed if row.table == number}
            parts += [
                f"## Table {number}: {TITLES[number][-1]}",
                made_with(TABLES[number], own),
                beside(rows, own, [("expected mask (%)", best("expected/accuracy"))]),
                picture("Accuracy against bits", f"bicompfl_table_{number}.png", own),
            ]
    if missing := [
        f"- table {number}, {TITLES[number][-1]}: not run yet." for number, own in records.items() if not own
    ]:
        parts += ["## Further tables", "\n".join(missing), _ONE_TABLE]
    return "\n\n".join(parts)


def _hard_seeds(records: Records) -> str:
    """How far the seeds of FedAvg are apart where they draw the split."""
    found = records.where(label="FedAvg").collect(lambda run: run.best("test/accuracy"))
    if len(found) < 2:
        return ""
    return f"A seed draws the split, too: in table 6 FedAvg has {100 * min(found):.1f} to {100 * max(found):.1f} %."


def _above_capacity(records: Records) -> str:
    """How often a block of GR-Fixed has more nats than 256 candidates can code."""
    found = [line["mrc/kl_up"] for run in records.where(label=GR) for line in run.lines if "mrc/kl_up" in line]
    if not found:
        return ""
    above = sum(one > log(256) for one in found)
    return (
        "The KL divergence of GR-Fixed's blocks (`mrc/kl_up`, a mean) is above the capacity of 256 candidates,\n"
        f"{log(256):.1f} nats, in {above} of {len(found)} rounds. "
    )
