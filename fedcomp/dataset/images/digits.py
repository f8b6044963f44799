"""Handwritten 8x8 digits: 1,797 grey images of 64 pixels, 10 classes; inside scikit-learn, so nothing is downloaded.

E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998. FedScalar's data: 20 agents x 80
samples to train on and the remaining 197 to test with. That paper does not say how it splits: here a seeded shuffle.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fedcomp.core.validate import check_seed
from fedcomp.dataset.tables.sklearn_files import read_table, table_file

if TYPE_CHECKING:
    from fedcomp.dataset.contract import Dataset

NUM_CLASSES = 10
MAX_PIXEL = 16.0


def load(num_train: int = 1600, split_seed: int = 0, pixels: Literal["unit", "raw"] = "unit") -> Dataset:
    """The digits as 64 features a sample.

    Raises ValueError: an argument outside its range.
    """
    import torch

    from fedcomp.dataset.contract import Dataset, Samples
    from fedcomp.random.keys import Key

    if pixels not in ("unit", "raw"):
        raise ValueError(f"dataset.pixels={pixels} must be unit (inputs in [0, 1]) or raw (0 to 16)")
    table = torch.from_numpy(read_table("digits.csv.gz", delimiter=","))
    num_samples = len(table)
    if not isinstance(num_train, int) or not 1 <= num_train < num_samples:
        raise ValueError(
            f"dataset.num_train={num_train} must be 1 to {num_samples - 1}: of {num_samples} digits at "
            "least one must remain to test with"
        )
    check_seed("dataset.split_seed", split_seed)
    table = table[torch.randperm(num_samples, generator=Key(("dataset", "split", split_seed)).generator())]
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
