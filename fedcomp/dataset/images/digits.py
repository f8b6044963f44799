"""Handwritten 8x8 digits: 1,797 grey images of 64 pixels, 10 classes; inside scikit-learn, so nothing is downloaded.

E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998. FedScalar's data: 20 agents x 80
samples to train on and the remaining 197 to test with. That paper does not say how it splits: here a seeded shuffle.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from fedcomp.core.ranges import Whole, checked
from fedcomp.dataset.tables.sklearn_files import read_table, table_file

if TYPE_CHECKING:
    from fedcomp.dataset.contract import Dataset

NUM_SAMPLES, NUM_CLASSES = 1797, 10
MAX_PIXEL = 16.0


@checked("dataset.")
def load(
    num_train: Annotated[int, Whole(most=NUM_SAMPLES - 1, meaning="one or more must remain to test with")] = 1600,
    split_seed: Annotated[int, Whole(0)] = 0,
    pixels: Annotated[Literal["unit", "raw"], "inputs in [0, 1], or 0 to 16"] = "unit",
) -> Dataset:
    """The digits as 64 features a sample.

    Raises ValueError: an argument outside its range.
    """
    import torch

    from fedcomp.dataset.contract import Dataset, Samples
    from fedcomp.random.keys import Key

    table = torch.from_numpy(read_table("digits.csv.gz", delimiter=","))
    table = table[torch.randperm(NUM_SAMPLES, generator=Key(("dataset", "split", split_seed)).generator())]
    x, y = table[:, :-1].to(torch.uint8), table[:, -1].to(torch.int64)
    return Dataset(
        name="digits",
        train=Samples(x[:num_train], y[:num_train]),
        test=Samples(x[num_train:], y[num_train:]),
        task="classification",
        num_outputs=NUM_CLASSES,
        std=torch.tensor([MAX_PIXEL if pixels == "unit" else 1.0]),
        class_names=tuple(str(digit) for digit in range(NUM_CLASSES)),
    )


def data_files(**_: object) -> list[Path]:
    """What `load` reads."""
    return [table_file("digits.csv.gz")]
