"""Diabetes progression: 442 patients, 10 features, one target; inside scikit-learn, so nothing is downloaded.

B. Efron, T. Hastie, I. Johnstone, R. Tibshirani, "Least angle regression", Annals of Statistics, 2004.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedcomp.dataset.tables.sklearn_files import read_table, table_file

if TYPE_CHECKING:
    from fedcomp.dataset.contract import Dataset
    from fedcomp.dataset.tables.tabular import Scaling

FEATURES = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")


def load(
    test_fraction: float = 0.2, split_seed: int = 0, scaling: Scaling = "z_score", target_scaling: Scaling = "z_score"
) -> Dataset:
    """Regression of the disease's progression after a year on ten measurements, in their own units before scaling.

    With target_scaling=z_score a squared error of 1 is that of predicting the mean.

    Raises ValueError: an argument outside its range.
    """
    from fedcomp.dataset.tables.tabular import tabular_dataset

    return tabular_dataset(
        "diabetes",
        read_table("diabetes_data_raw.csv.gz"),
        read_table("diabetes_target.csv.gz"),
        FEATURES,
        "regression",
        (),
        test_fraction,
        split_seed,
        scaling,
        target_scaling,
    )


def data_files(**_: object) -> list[Path]:
    """What `load` reads."""
    return [table_file("diabetes_data_raw.csv.gz"), table_file("diabetes_target.csv.gz")]
