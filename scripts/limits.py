#!/usr/bin/env python
"""How far codecs are from what is possible: writes docs/results/limits.md and its picture.

    python -m scripts.record_updates --out outputs/updates dataset=mnist model=lenet5 partition=dirichlet num_clients=10 client.lr=0.05 client.steps=20
    python -m scripts.limits outputs/updates/updates_10.npy

Each codec sends Gaussian vectors, and recorded updates of LeNet-5. Beside its bits and its error stand the entropy of
what it sends, which an ideal entropy coder behind it would need, and the rate-distortion bound of a Gaussian source,
D(R) = 2^(-2R) (T. Cover and J. Thomas, "Elements of information theory", theorem 10.3.2). Shape legend: M vectors, D
entries.
"""

# ruff: noqa: E501 (commands, and the lines of a page)

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.config.compose import compose
from fedcomp.config.instantiate import build_compressor
from fedcomp.display import figure
from fedcomp.model.build import build
from fedcomp.model.networks.cnn import lenet5
from fedcomp.random.keys import Key
from fedcomp.runtime.command import exit_status
from fedcomp.wire import Field, SharedKnowledge
from fedcomp.wire.coding import Ascending, Bitmap, Rice

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "limits.md"
SHOWN = {
    "sign": ("sign", ("",)),
    "EDEN, least error": ("eden compressor.scale=min_mse", tuple(f"compressor.bits={bits}" for bits in (1, 2, 3, 4))),
    "EDEN, unbiased": ("eden", tuple(f"compressor.bits={bits}" for bits in (1, 2, 3, 4))),
    "QUIC-FL": ("quic_fl", tuple(f"compressor.bits={bits}" for bits in (1, 2, 3, 4))),
    "QSGD": ("qsgd", tuple(f"compressor.levels={levels}" for levels in (127, 255, 511))),
    "TernGrad": ("terngrad", ("",)),
    "fp4": ("fp4", ("",)),
    "Top-k": ("topk", tuple(f"compressor.match_bits={bits}" for bits in (0.1, 0.3, 1, 2, 3, 4))),
    "Top-k in chunks, 2-bit values": ("chunk_topk", tuple(f"compressor.fraction={one}" for one in (0.01, 0.03, 0.1))),
    "Rand-k": ("randk compressor.scale=none", tuple(f"compressor.fraction={share}" for share in (0.03, 0.1))),
}
"""{label: (choice of the group compressor with its options, options of each row)}."""


@dataclass(frozen=True)
class Row:
    """What one codec makes of one kind of vectors.

    Attributes:
        bits: of a message, per entry. entropy: of its entries, as an ideal coder of each field would write them.
        error: ||C(x) - x||^2 / ||x||^2, the mean over vectors. deviation: its standard error.
    """

    bits: float
    entropy: float
    error: float
    deviation: float

    @property
    def bound(self) -> float:
        """The least error of a Gaussian source with so many bits."""
        return 2.0 ** (-2 * self.bits)

    @property
    def wasted(self) -> float:
        """Bits per entry beyond what the bound needs for this error."""
        return self.bits - self._needed

    @property
    def wasted_at_best(self) -> float:
        """As `wasted`, with an ideal entropy coder behind the codec."""
        return self.entropy - self._needed

    @property
    def _needed(self) -> float:
        return max(0.0, 0.5 * math.log2(1 / self.error))


def measure(codec: Codec, x: Tensor, layers: tuple[int, ...]) -> Row:
    """Send each row of x [M, D] once."""
    common = SharedKnowledge(Key(("limits",)), torch.arange(len(x)), layers)
    payload = codec.encode(x, common, common.key.fold_in("sender"))
    errors = (codec.decode(payload, common).double() - x).square().sum(1) / x.double().square().sum(1)
    bits, entropy = float(payload.bits.double().mean()), sum(map(entropy_of, payload.fields.values())) / len(x)
    deviation = float(errors.std()) / math.sqrt(len(x))
    return Row(bits / common.dim, min(entropy, bits) / common.dim, float(errors.mean()), deviation)


def entropy_of(field: Field) -> float:
    """Bits of all rows by an ideal code of their entries: of sets of places, of symbols; floats as they are sent."""
    return sum(_row_entropy(field, row) for row in range(len(field.data)))


def _row_entropy(field: Field, row: int) -> float:
    sent, as_sent = field.sent(row), float(field.bits[row])
    if field.data.is_floating_point():
        return as_sent
    coding = field.coding
    if isinstance(coding, Bitmap):
        return min(as_sent, _of_a_set(len(sent), int(sent.sum())))
    if isinstance(coding, Ascending | Rice) and coding.span is not None:
        return min(as_sent, _of_a_set(coding.span, len(sent)))
    counts = torch.unique(sent, return_counts=True)[1].double()
    return min(as_sent, float(-(counts * (counts / counts.sum()).log2()).sum()))


def _of_a_set(span: int, size: int) -> float:
    """log2 of the number of sets of `size` among `span` places."""
    return (math.lgamma(span + 1) - math.lgamma(size + 1) - math.lgamma(span - size + 1)) / math.log(2)


def codecs() -> Iterator[tuple[str, str, Codec]]:
    """(label, command, codec) of each row."""
    for label, (choice, variants) in SHOWN.items():
        for options in variants:
            words = f"compressor={choice} {options}".split()
            yield label, " ".join(words), build_compressor(compose(words).compressor).codec


def main() -> None:
    """Measure, draw and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("updates", type=Path, help="recorded updates of LeNet-5 [M, D], a .npy file")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page; its picture lies beside it")
    given = parser.parse_args()
    sys.exit(exit_status(lambda: write(given.updates, given.out)))


def write(recorded: Path, out: Path) -> None:
    """Measure what is recorded there, and write the page. Raises ValueError, OSError: no updates of LeNet-5."""
    updates = torch.from_numpy(np.load(recorded))
    lenet = tuple(build(lenet5, Key(("limits",)), (1, 28, 28), 10, "classification").layers)
    if updates.dim() != 2 or updates.shape[1] != sum(lenet):
        raise ValueError(f"{recorded} is {tuple(updates.shape)}, but must be updates of LeNet-5, [M, {sum(lenet)}]")
    out.parent.mkdir(parents=True, exist_ok=True)
    gaussian = torch.randn(8, 65_536, generator=torch.Generator().manual_seed(0))
    rows = [
        (label, command, measure(codec, gaussian, (65_536,)), measure(codec, updates, lenet))
        for label, command, codec in codecs()
    ]
    out.write_text(page(rows), encoding="utf-8")
    draw(rows, out.with_suffix(".png"))


Measured = list[tuple[str, str, Row, Row]]
"""Label, command, and what was measured of Gaussian vectors and of updates."""


def page(rows: Measured) -> str:
    """docs/results/limits.md."""
    lines = "\n".join(
        f"| {label} | `{command}` | {_cells(ours)} | {theirs.bits:.3f} | {theirs.entropy:.3f} | {theirs.error:.4g} |"
        for label, command, ours, theirs in rows
    )
    commands = "\n".join(line.strip() for line in (__doc__ or "").splitlines() if line.startswith("    python"))
    return f"""\
# How far from the limit

Where is there still something to gain? Each codec sends eight Gaussian vectors of 65,536 entries (seed 0), and ten updates of
LeNet-5 on MNIST (61,706 entries, its codes by tensor; clients with Dirichlet(0.5) classes, round 6). The page is written by

```
{commands}
```

- **bits** of a message, per entry; **entropy**: what they would be with an ideal entropy coder behind the codec (places: the
  logarithm of the number of sets of so many places; codes: their first-order entropy; floats as sent).
- **error**: ‖C(x) − x‖² / ‖x‖², the mean over vectors; its standard error is below {_worst(rows):.1f} % of it for Gaussian vectors.
- **bound**: the least error that any codec can have for Gaussian entries with so many bits, D(R) = 2^(−2R). **wasted**: the bits
  beyond those that the bound needs for the codec's error; in brackets with the ideal entropy coder.

For updates no bound is known: their entries are far from Gaussian and depend on each other. A codec may lie below the Gaussian
bound there, and those that send few large entries do.

| codec | options | bits | entropy | error | bound | wasted | of updates: bits | entropy | error |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
{lines}

![Error against bits of each codec, for Gaussian vectors and for updates of LeNet-5](limits.png)

- On Gaussian vectors EDEN at 1 to 4 bits has the errors of Lloyd and Max's quantisers (.3634, .1175, .0345, .0095). An entropy
  coder behind it would save up to a quarter of a bit; the rest can only be had by coding entries together.
- Rotating makes every vector Gaussian, so EDEN and QUIC-FL cannot gain from an update's form. Codecs that do not rotate do:
  on updates QSGD with 255 levels a tensor has EDEN's error of 3 bits in 2.13, and Top-k in chunks with values of 2 bits has
  a smaller error at 0.70 bits than EDEN at 1.
- Top-k sends floats, a waste that grows with the number of entries sent.
"""


def _cells(row: Row) -> str:
    return (
        f"{row.bits:.3f} | {row.entropy:.3f} | {row.error:.4g} | {row.bound:.4g} | "
        f"{row.wasted:.2f} ({row.wasted_at_best:.2f})"
    )


def _worst(rows: Measured) -> float:
    return 100 * max(ours.deviation / ours.error for _, _, ours, _ in rows)


def draw(rows: Measured, file: Path) -> None:
    """Error against bits, a panel for each kind of vectors."""
    picture = figure.new_figure(11, 4.6)
    for column, title in enumerate(("Gaussian vectors", "updates of LeNet-5")):
        axes = picture.add_subplot(1, 2, 1 + column)
        for number, label in enumerate(SHOWN):
            points = sorted((one[column].bits, one[column].error) for name, _, *one in rows if name == label)
            colour = figure.COLOURS[number % len(figure.COLOURS)]
            axes.plot(
                *zip(*points), color=colour, marker="os^Dv<>PX*"[number], markersize=5, linewidth=1.2, label=label
            )
        bits = [step / 50 for step in range(1, 226)]
        axes.plot(bits, [2 ** (-2 * one) for one in bits], color=figure.INK, linewidth=1, linestyle="--", label="D(R)")
        axes.set_yscale("log")
        axes.set_xlim(0, 4.5)
        axes.set_ylim(3e-3, 7)
        figure.style(axes, "bits an entry", "squared error / squared length" if not column else "")
        axes.set_title(title if not column else f"{title}; D(R) is of Gaussian vectors", fontsize=8, loc="left")
    handles, labels = picture.axes[0].get_legend_handles_labels()
    picture.legend(handles, labels, ncols=4, fontsize=8, frameon=False, loc="outside upper center")
    figure.save(picture, file)


if __name__ == "__main__":
    main()
