"""How alike clients' vectors are taken to be: R2 / R1, from which joint estimators choose their transform T.

Rand-k-Spatial and Rand-Proj-Spatial (`spatial.py`, `proj_spatial.py`) are unbiased for every T and best for the one of
R2 / R1 in [-1, n - 1]: R1 = sum ||x_i||^2 and R2 = ||sum x_i||^2 - R1 of n senders' vectors.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from fedcomp.compressor.contract import Estimator
from fedcomp.core.ranges import Within
from fedcomp.core.validate import OptionError, as_typed, check_choice

ALL_OPPOSED = 1e-12
"""At R2/R1 = -1 all vectors sum to zero and T(n) = 0: below this T(n) the estimate is 0, which is exact."""


@dataclass(frozen=True)
class AssumedCorrelation(Estimator):
    """Which R2 / R1 is assumed: 0 (one), n / 2 (avg), n - 1 (max), `ratio` (opt), or that of earlier rounds (online).

    In a round with fewer than ratio + 1 senders the ratio counts as n - 1, the most that there can be.
    """

    uses_correlation: ClassVar[bool] = True
    transforms: ClassVar[tuple[str, ...]]

    transform: str = "avg"
    ratio: Annotated[float | None, Within("[-1, inf)", "R2/R1, in [-1, n - 1]")] = None
    decay: Annotated[float, Within("[0, 1)")] = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("estimator.transform", self.transform, self.transforms)
        if (self.ratio is None) != (self.transform != "opt"):
            raise OptionError(
                f"estimator.ratio={as_typed(self.ratio)} goes with transform=opt, and only with it: the R2/R1 in "
                f"[-1, n - 1] that is known; the transform is {self.transform}"
            )

    def init(self, num_senders: int, like: Tensor) -> Tensor:
        """online: [1, 3] decayed sums of R1, of R2 and of the weights 1 - decay; else empty.

        Raises ValueError: opt's ratio is more than all senders together can have.
        """
        if self.ratio is not None and self.ratio > num_senders - 1:
            raise OptionError(
                f"estimator.ratio={self.ratio} must be in [-1, {num_senders - 1}], R2/R1 of at most "
                f"n = {num_senders} senders: lower it, or take transform=max, which is n - 1"
            )
        return like.new_zeros(1, 3) if self.transform == "online" else like.new_zeros(1, 0)

    def assumed(self, num: int) -> float:
        """The R2 / R1 that is assumed of `num` senders; online: before anything is known."""
        fixed = {"one": 0.0, "max": num - 1.0, "opt": min(self.ratio or 0.0, num - 1.0)}
        return fixed.get(self.transform, num / 2)

    def learnt(self, memory: Tensor, r1: Tensor, r2: Tensor) -> Tensor:
        """The memory [1, 3] with a round's unbiased estimates of R1 and R2, both 0-d."""
        new = torch.stack((r1, r2, torch.ones_like(r1))).to(memory.dtype)
        return self.decay * memory + (1 - self.decay) * new[None]
