"""Rand-Proj-Spatial: a round's random projections decoded jointly, as far as clients' vectors are alike.

S. Jiang, P. Sharma, G. Joshi, "Correlation aware sparsified mean estimation using random projection", NeurIPS 2023
(arXiv:2310.18868). With n senders, y_i = G_i x_i of k numbers (`projections/rand_proj.py`), S = sum_i G_i^T G_i with
eigenvalues l in [0, n], and T as in Rand-k-Spatial, T(l) = 1 + (R2 / R1) (l - 1) / (n - 1):

    x = (beta / n) T(S)^+ sum_i G_i^T y_i,     beta_r = n d / sum_j l_j / T(l_j) over the round's eigenvalues l_j > 0.

one: R2/R1 = 0, the mean of what is decoded alone; avg: n / 2; max: n - 1, least squares; opt: known; online: estimated
from earlier rounds as in `spatial.py`. The paper's beta is the mean, n d / E[sum_j l_j / T(l_j)], found by simulation.
The round's own is exact, too, because f(S) has the mean c I for every f by the symmetries of the transform, and needs
no table: `normaliser=round`. For vectors of any kind the error depends on R1 = sum ||x_i||^2 and R2 alone
(`expected_error`). It is below Rand-k's only for R2/R1 above a threshold of about n / 4 (avg); max inverts eigenvalues
near 0 where n k is close to d, and is refused there.

No d x d matrix is decomposed where n k < d: T(S)^+ G^T = G^T (a I + g K)^-1 with a = 1 - g, g = (R2/R1) / (n - 1) and
the Gram matrix K = G G^T, whose block (i, l) is w_il at i's rows XOR l's rows, w_il the transform of the product of
their signs. Entries of K and S are whole numbers over d, so they are exact. Weights other than 1/n enter as n w_i y_i.

Shape legend: n senders, D entries, b blocks, c entries of a padded block (the paper's d), k numbers sent of it,
m = min(n k, c).
"""

import functools
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.compressor.estimators.correlation import ALL_OPPOSED, AssumedCorrelation
from fedcomp.compressor.projections.rand_proj import Group, Projected, RandProj
from fedcomp.compressor.rotations.hadamard import butterflies
from fedcomp.compressor.sparsifiers.sampled_entries import SampledEntries
from fedcomp.core.cohort import Cohort
from fedcomp.core.rows import scatter_distinct_
from fedcomp.core.validate import OptionError
from fedcomp.random.keys import Key
from fedcomp.wire import Payload, SharedKnowledge

UNSTABLE = (0.8, 1.25)
"""n k / d between these: the smallest eigenvalues of S are so small that max multiplies errors a hundredfold."""
ENTRIES_AT_ONCE = 1 << 23
MOST_SPECTRA = 400


@dataclass(frozen=True)
class ProjSpatial(AssumedCorrelation):
    """Decodes random projections jointly; `allow_unstable` is whether max may decode n k close to d numbers."""

    transforms: ClassVar[tuple[str, ...]] = ("one", "avg", "max", "opt", "online")

    normaliser: Literal["round", "mean"] = "round"
    allow_unstable: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.transform == "online" and self.normaliser == "mean":
            raise OptionError(
                "estimator.normaliser=mean makes no sense with transform=online: R2/R1 is another one in "
                "every round, and so would be the simulated beta; take normaliser=round"
            )

    def check(self, codec: Codec) -> None:
        """Only random projections."""
        if isinstance(codec, RandProj):
            return
        instead = (
            "a spatial_* estimator, or compressor=rand_proj_spatial"
            if isinstance(codec, SampledEntries)
            else ("compressor=rand_proj_spatial, or estimator=weighted_sum")
        )
        raise OptionError(
            f"estimator: Rand-Proj-Spatial makes no sense for {type(codec).__name__}: it decodes random "
            f"projections; use {instead}"
        )

    def estimate(
        self, codec: Codec, payload: Payload, memory: Tensor, cohort: Cohort, common: SharedKnowledge
    ) -> tuple[Tensor, Tensor]:
        assert isinstance(codec, RandProj)
        num = cohort.size
        self.check_senders(codec, common.dim, num)
        parts = codec.projected(payload, common)
        slope = self._slope(num, memory)
        blocks, seen = [], torch.zeros(2, dtype=torch.float64, device=cohort.weight.device)
        for part in parts:
            weighted = part.values * (num * cohort.weight)[:, None, None]
            if self.transform == "online":
                seen = seen + _correlation(part, weighted)
            blocks.append(self._decode(part, weighted, slope)[:, : part.group.size].flatten())
        if self.transform == "online":
            memory = self.learnt(memory, seen[0], seen[1])
        return torch.cat(blocks), memory

    def expected_error(self, codec: Codec, x: Tensor) -> Tensor | None:
        """0-d float64 E||estimate - mean of x||^2 for rows x [n, D] and weights 1/n; None where T is learnt.

        (1/n^2) [(beta^2 c1 - 1) R1 + (beta^2 c2 - 1) R2], c1 = E[sum l / T^2] / (n d) and
        c2 = (E[sum l^2 / T^2] / d - n c1) / (n (n - 1)), of each block, times (d - 1) / (c - 1) if it is padded. The
        means are those of simulated spectra.
        """
        if self.transform == "online":
            return None
        assert isinstance(codec, RandProj)
        num, total = x.shape[0], x.new_zeros((), dtype=torch.float64)
        slope = float(self._slope(num, x.new_zeros(1, 0)))
        for group in codec.groups(x.shape[1]):
            part = x[:, group.first : group.first + group.num * group.size].double().view(num, group.num, -1)
            r1 = part.square().sum()
            r2 = part.sum(0).square().sum() - r1
            if self._all_opposed(num):
                total += r1 + r2
                continue
            beta, c1, c2 = _constants(num, group.kept, group.padded, slope)
            padded = (group.size - 1) / max(group.padded - 1, 1)
            total += padded * ((beta**2 * c1 - 1) * r1 + (beta**2 * c2 - 1) * r2)
        return total / num**2

    def check_senders(self, codec: Codec, dim: int, num_senders: int) -> None:
        """max is unstable where n k is close to d."""
        assert isinstance(codec, RandProj)
        num = num_senders
        if self.allow_unstable or not (self.transform == "max" or self.assumed(num) > 0.99 * (num - 1)) or num == 1:
            return
        for group in codec.groups(dim):
            share = num * group.kept / group.padded
            if UNSTABLE[0] < share < UNSTABLE[1]:
                raise OptionError(
                    f"estimator.transform={self.transform} is unstable where n k / d is near 1: here {num} "
                    f"senders send {group.kept} numbers each of {group.padded}, {share:.2f}; take "
                    f"transform={'avg' if num > 2 else 'one'}, another fraction, or .allow_unstable=true"
                )

    def _all_opposed(self, num: int) -> bool:
        """Whether all vectors are known to sum to zero: the estimate is then 0, which is exact."""
        return num > 1 and 1 + self.assumed(num) <= ALL_OPPOSED

    def _slope(self, num: int, memory: Tensor) -> Tensor:
        """0-d float64 g = (R2 / R1) / (n - 1); at most 1, avg of two senders too."""
        if num == 1:
            return torch.zeros((), dtype=torch.float64, device=memory.device)
        fixed = torch.full((), min(self.assumed(num) / (num - 1), 1.0), dtype=torch.float64, device=memory.device)
        if self.transform != "online":
            return fixed
        r1, r2, seen = memory[0].double()
        # Kept off both ends: at -1 T(n) = 0, at n - 1 T(0) = 0, and an estimate is never sure.
        learnt = (r2 / r1.clamp(min=1e-30)).clamp(-0.9, 0.95 * (num - 1)) / (num - 1)
        return torch.where(seen > 0, learnt, fixed.clamp(max=0.95))

    def _decode(self, part: Projected, values: Tensor, slope: Tensor) -> Tensor:
        """[b, c] float32 the estimate of each block, with the entries that pad it."""
        num, group = len(values), part.group
        if self._all_opposed(num):
            return values.new_zeros(group.num, group.padded)
        singular = self.transform == "max" or (self.transform == "opt" and self.assumed(num) >= num - 1)
        singular = (singular or (self.transform == "avg" and num == 2)) and num > 1
        fixed = _constants(num, group.kept, group.padded, float(slope))[0] if self.normaliser == "mean" else None
        by_rows = num * group.kept <= group.padded
        at_once = max(1, ENTRIES_AT_ONCE // max(num * group.padded, min(num * group.kept, group.padded) ** 2))
        out = []
        signs = part.signs()
        for first in range(0, group.num, at_once):
            blocks = slice(first, first + at_once)
            own, rows = signs[:, blocks].transpose(0, 1), part.rows[:, blocks].transpose(0, 1)
            y = values[:, blocks].transpose(0, 1)
            if by_rows:
                right = y.flatten(1).double()
                solved, total = _solve(gram(own, rows), right, slope, singular)
            else:
                right = _sum_back(own, rows, y).double()
                solved, total = _solve(frame(own, rows), right, slope, singular)
            beta = num * group.padded / total if fixed is None else torch.full_like(total, fixed)
            solved = (solved * (beta / num)[:, None]).to(torch.float32)
            if by_rows:
                solved = _sum_back(own, rows, solved.view(y.shape))
            out.append(solved)
        return torch.cat(out)


def gram(signs: Tensor, rows: Tensor) -> Tensor:
    """[b, n k, n k] float64 K = G G^T from signs [b, n, c] and rows [b, n, k]."""
    (num_blocks, num, padded), kept = signs.shape, rows.shape[2]
    found = signs.new_empty(num_blocks, num, kept, num, kept)
    for i in range(num):
        w = butterflies((signs[:, i : i + 1] * signs).reshape(-1, padded)).view(num_blocks, num, padded)
        places = rows[:, None, i, :, None] ^ rows[:, :, None, :]  # [b, n, k, k]: of l the entry (row of i, row of l)
        found[:, i] = w.gather(2, places.flatten(2)).view(num_blocks, num, kept, kept).transpose(1, 2)
    return found.view(num_blocks, num * kept, num * kept).double() / padded


def frame(signs: Tensor, rows: Tensor) -> Tensor:
    """[b, c, c] float64 S = sum_i G_i^T G_i."""
    num_blocks, _, padded = signs.shape
    found = signs.new_empty(num_blocks, padded, padded)
    for block in range(num_blocks):
        chosen = torch.nn.functional.one_hot(rows[block], padded).to(torch.float32)  # [n, k, c]
        matrix = butterflies(chosen.view(-1, padded)).view_as(chosen) * signs[block, :, None]
        flat = matrix.flatten(0, 1)
        found[block] = flat.T @ flat
    return found.double() / padded


def _sum_back(signs: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """[b, c] sum_i G_i^T v_i from signs [b, n, c], rows [b, n, k] and v [b, n, k] float32."""
    padded = signs.shape[2]
    zeros = torch.zeros_like(signs).flatten(0, 1)
    spread = scatter_distinct_(zeros, rows.flatten(0, 1), values.flatten(0, 1))
    mixed = butterflies(spread).view_as(signs)
    return (mixed * signs).sum(1) / padded**0.5


def _solve(matrix: Tensor, right: Tensor, slope: Tensor, singular: bool) -> tuple[Tensor, Tensor]:
    """([b, m] T(A)^+ y, [b] sum of l / T(l) over the eigenvalues l > 0 of A [b, m, m]), T(l) = 1 - g + g l."""
    if singular:
        values, vectors = torch.linalg.eigh(matrix)
        in_range = values > matrix.shape[1] * torch.finfo(matrix.dtype).eps * values[:, -1:]
        inverse = torch.where(in_range, 1 / values.where(in_range, torch.ones_like(values)), 0.0)
        along = (vectors.mT @ right[:, :, None])[:, :, 0] * inverse
        return (vectors @ along[:, :, None])[:, :, 0], in_range.sum(1, dtype=matrix.dtype)
    eye = torch.eye(matrix.shape[1], dtype=matrix.dtype, device=matrix.device)
    factor = torch.linalg.cholesky_ex((1 - slope) * eye + slope * matrix).L
    inverse = torch.cholesky_inverse(factor)
    return (inverse @ right[:, :, None])[:, :, 0], (inverse * matrix).sum((1, 2))


def _correlation(part: Projected, values: Tensor) -> Tensor:
    """[2] float64 unbiased estimates of R1 and of R2 of a group's blocks."""
    share = part.group.kept / part.group.padded
    own = values.double().square().sum()
    total = part.back(values).double().sum(0).square().sum()
    return torch.stack((own / share, (total - own) / share**2))


@functools.lru_cache(maxsize=64)
def spectra(num: int, kept: int, padded: int) -> tuple[Tensor, ...]:
    """Positive eigenvalues [m] of S, one tensor a simulated draw; the draws depend on n, k and c alone."""
    size = min(num * kept, padded)
    group, codec, found = Group(0, 1, padded, kept), RandProj(1.0), []
    for draw in range(max(8, min(MOST_SPECTRA, 20_000 // size))):
        key = Key(("rand_proj_spatial", "table", num, kept, padded, draw))
        words, rows = codec.drawn(key, torch.arange(num), 0, group)
        signs = Projected(group, torch.zeros(num, 1, kept), rows, words).signs().transpose(0, 1)
        make = gram if num * kept <= padded else frame
        values = torch.linalg.eigvalsh(make(signs, rows.transpose(0, 1))[0])
        found.append(values[values > size * torch.finfo(values.dtype).eps * values[-1]])
    return tuple(found)


@functools.lru_cache(maxsize=1024)
def _constants(num: int, kept: int, padded: int, slope: float) -> tuple[float, float, float]:
    """(mean beta, c1, c2) of `expected_error`."""
    sums = torch.zeros(3, dtype=torch.float64)
    drawn = spectra(num, kept, padded)
    for values in drawn:
        transform = 1 - slope + slope * values
        ratio = values / transform
        sums += torch.stack((ratio.sum(), (ratio / transform).sum(), ratio.square().sum())) / len(drawn)
    first, second, third = sums.tolist()
    c1 = second / (num * padded)
    return num * padded / first, c1, (third / padded - num * c1) / (num * (num - 1)) if num > 1 else 0.0
