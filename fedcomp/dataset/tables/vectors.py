"""Vectors for mean estimation, one a client: made by a rule, or read from a file.

Kind `paper` is the simulation of D. Jhunjhunwala et al., "Leveraging spatial and temporal correlations in sparsified
mean estimation", NeurIPS 2021, appendix B: all entries are 1/sqrt(d) in the first half of the vectors and -1/sqrt(d) in
the others, and the first c columns of the others are then turned positive. So R2/R1 = c n/d - 1.

Shape legend: n vectors, d entries.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from fedcomp.core.first_line import first_line
from fedcomp.core.ranges import Whole, checked
from fedcomp.dataset.fetch import below

if TYPE_CHECKING:
    from torch import Tensor

    from fedcomp.dataset.contract import Dataset

Kind = Literal["paper", "gaussian", "equal", "lognormal", "sparse", "file"]


@checked("dataset.")
def load(
    kind: Kind = "paper",
    num: Annotated[int, Whole()] = 10,
    dim: Annotated[int, Whole()] = 100,
    columns: int = 50,
    correlation: float | None = None,
    path: str | None = None,
    root: str = ".",
    seed: Annotated[int, Whole(0)] = 0,
) -> Dataset:
    """n vectors, which are both the training and the test set; their targets are zeros, which no task reads.

    Args:
        kind: paper | gaussian (independent standard normal entries over sqrt(d)) | equal (one such vector n times) |
            lognormal (independent log-normal entries, all positive, length 1) | sparse (one entry in a hundred,
            log-normal with a random sign, the others 0, length 1) | file.
        num: n, even for `paper`; of a file its number of rows.
        correlation: R2/R1 instead of `columns`, c: (R2/R1 + 1) d/n must be a whole number.
    Raises:
        ValueError: an argument outside its range, or a file that holds no such array.
    """
    import torch

    from fedcomp.dataset.contract import Dataset, Samples
    from fedcomp.random.keys import Key

    if kind == "file":
        vectors = _read(path, root, num)
    elif kind == "paper":
        vectors = _paper(num, dim, columns if correlation is None else _columns(correlation, num, dim))
    elif kind in ("lognormal", "sparse"):
        vectors = _heavy(num, dim, seed, kind == "sparse")
    else:
        rows = Key(("dataset", "vectors", seed)).normal(torch.arange(num if kind == "gaussian" else 1), dim)
        vectors = (rows / math.sqrt(dim)).expand(num, dim).contiguous()
    samples = Samples(vectors, torch.zeros(len(vectors), 1))
    return Dataset("vectors", samples, samples, "regression", 1)


def data_files(kind: str = "paper", path: str | None = None, root: str = ".", **_: object) -> list[Path]:
    """What `load` reads: nothing, unless the vectors come from a file."""
    return below(root, path) if kind == "file" and path is not None else []


def _heavy(num: int, dim: int, seed: int, sparse: bool) -> Tensor:
    """[n, d] vectors of length 1 with log-normal entries: all of them, or d/100 (1 or more) with random signs."""
    import torch

    from fedcomp.random.keys import Key

    key, ids = Key(("dataset", "vectors", "lognormal", seed)), torch.arange(num)
    rows = key.normal(ids, dim).exp()
    if sparse:
        kept = key.fold_in("kept").choice(ids, max(1, dim // 100), dim)
        signed = rows * key.fold_in("sign").rademacher(ids, dim)
        rows = torch.zeros_like(rows).scatter_(1, kept, signed.gather(1, kept))
    return rows / rows.norm(dim=1, keepdim=True)


def _paper(num: int, dim: int, columns: int) -> Tensor:
    import torch

    if num % 2:
        raise ValueError(
            f"dataset.num={num} must be even for dataset.kind=paper: half of the vectors oppose the others"
        )
    if not isinstance(columns, int) or not 0 <= columns <= dim:
        raise ValueError(f"dataset.columns={columns} must be a whole number from 0 to dataset.dim={dim}")
    vectors = torch.full((num, dim), 1 / math.sqrt(dim))
    vectors[num // 2 :, columns:] *= -1
    return vectors


def _columns(correlation: float, num: int, dim: int) -> int:
    """c that gives this R2/R1."""
    columns = (correlation + 1) * dim / num
    if abs(columns - round(columns)) > 1e-6 or not 0 <= round(columns) <= dim:
        raise ValueError(
            f"dataset.correlation={correlation} must be c n/d - 1 for a whole number c of columns from 0 to d: "
            f"-1 to {num - 1} in steps of {num / dim:g}"
        )
    return round(columns)


def _read(path: str | None, root: str, num: int) -> Tensor:
    import torch

    if path is None:
        raise ValueError("dataset.kind=file needs dataset.path, for instance dataset.path=mine.npy")
    file = below(root, path)[0]
    try:
        array = np.load(file) if file.suffix == ".npy" else np.loadtxt(file, delimiter=",", ndmin=2)
        if np.iscomplexobj(array):
            raise ValueError("its entries are complex numbers")
        vectors = torch.from_numpy(np.asarray(array, np.float64)).to(torch.float32)
    except (OSError, ValueError) as error:
        reason = first_line(error)
        raise ValueError(
            f"cannot read vectors from {file} ({reason}): give a .npy array, or a .csv of numbers between commas"
        ) from None
    if vectors.dim() != 2 or len(vectors) != num:
        raise ValueError(
            f"{file} holds an array {tuple(vectors.shape)}, but must be [n, d] with n = num_clients = {num}"
        )
    return vectors
