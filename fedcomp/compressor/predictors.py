"""What both ends of a link expect a message to say: messages are differences to it, and the receiver adds it again.

Unlike a feedback, whose memory is the sender's, a predictor's memory is known to both ends, bit for bit, and so is
computed from what was received. Three of them:

    aggregate   CAFe: A. Ortega et al., "Compressed aggregate feedback", arXiv:2412.04538. One vector G for all senders,
                the last mean as everybody knows it; m_i = C(x_i - G), mean = sum_i w_i m_i + (sum_i w_i) G. No state a
                client. Exact where clients agree; where they do not, the codec's noise is remembered, and the floor is
                up to 1 / delta times that without it. The rule is the abstract's; the constants were not read.
    ef21        P. Richtarik, I. Sokolov, I. Fatkhullin, "EF21", NeurIPS 2021: one vector g_i for each sender, kept at
                both ends; c_i = C(x_i - g_i), g_i <- g_i + c_i, and the mean is that of the g_i, idle senders' too.
                Reaches the optimum on heterogeneous clients with a contractive codec.
    ef21_p      K. Gruntkowska, A. Tyurin, P. Richtarik, "EF21-P and friends", ICML 2023, on the downlink: as ef21 with
                the server as the only sender and the model as x, w <- w + C(x - w), which starts at the first model.

A codec must contract: otherwise the differences grow without bound, as errors that are fed back do.

Shape legend: M senders in the cohort, N senders, D entries.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec, Estimator, Feedback
from fedcomp.compressor.estimators.estimator import WeightedSum
from fedcomp.compressor.feedback import NoFeedback
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import put_rows, take_rows
from fedcomp.core.ranges import CheckedOptions, Within
from fedcomp.core.validate import OptionError

ROUNDING = 1e-4
"""How far float32 weights of many clients sum from 1."""


class Predictor(CheckedOptions, ABC):
    """What a predictor is: a frozen dataclass of options."""

    prefix = "predictor."

    @property
    @abstractmethod
    def follows_senders(self) -> bool:
        """Whether its memory is one row a sender, which follows that sender's vectors.

        Else it is one vector for all, which the algorithm replaces by the mean as everybody knows it
        (`Compressor.observe`).
        """

    @property
    def observes(self) -> bool:
        """Whether it needs the last mean, which the algorithm passes to `Compressor.observe`."""
        return not self.follows_senders

    @property
    def starts_at_model(self) -> bool:
        """Whether its memory starts at the first model, and so follows models and not changes."""
        return False

    def check(self, codec: Codec, feedback: Feedback, estimator: Estimator) -> None:
        """Raise ValueError if it does not go together with the other parts of a compressor."""
        if feedback != NoFeedback() or estimator != WeightedSum():
            raise OptionError("predictor is a memory of its own: leave feedback=none and estimator=weighted_sum")
        if not codec.contractive:
            raise OptionError(
                f"predictor={type(self).__name__} makes no sense for {type(codec).__name__} as configured: "
                "its error can be larger than what it sends, and what is predicted would grow without bound; use a "
                "setting of it that only shrinks (scale=none or min_mse), another compressor, or predictor=none"
            )

    @abstractmethod
    def init(self, num_senders: int, like: Tensor) -> Tensor:
        """First memory, [N, D] or [D], for vectors like `like` [D]."""

    @abstractmethod
    def predict(self, memory: Tensor, cohort: Cohort) -> Tensor:
        """[M, D] or [1, D] what is expected of the cohort's messages."""

    @abstractmethod
    def mean(self, decoded: Tensor, memory: Tensor, cohort: Cohort) -> tuple[Tensor, Tensor]:
        """The mean [D] from decoded messages [M, D], and the memory afterwards."""


@dataclass(frozen=True)
class NoPrediction(Predictor):
    """Messages say the vectors themselves, and the estimator makes one of them."""

    follows_senders = False
    observes = False

    def check(self, codec: Codec, feedback: Feedback, estimator: Estimator) -> None:
        """It goes together with all."""

    def init(self, num_senders: int, like: Tensor) -> Tensor:
        return like.new_zeros(num_senders, 0)

    def predict(self, memory: Tensor, cohort: Cohort) -> Tensor:
        return memory.new_zeros(1, 1)

    def mean(self, decoded: Tensor, memory: Tensor, cohort: Cohort) -> tuple[Tensor, Tensor]:
        return cohort.weight @ decoded, memory


@dataclass(frozen=True)
class Aggregate(Predictor):
    """The last mean, times `decay`: 1 is CAFe, 0 sends vectors as they are."""

    decay: Annotated[float, Within("[0, 1]", "1 is the last mean itself")] = 1.0

    follows_senders = False

    def init(self, num_senders: int, like: Tensor) -> Tensor:
        return torch.zeros_like(like)

    def predict(self, memory: Tensor, cohort: Cohort) -> Tensor:
        return (self.decay * memory)[None]

    def mean(self, decoded: Tensor, memory: Tensor, cohort: Cohort) -> tuple[Tensor, Tensor]:
        return cohort.weight @ decoded + cohort.weight.sum() * (self.decay * memory), memory


@dataclass(frozen=True)
class EF21(Predictor):
    """The sum of each sender's messages so far; `starts_at_model`: from the first model on (EF21-P's w), not from 0."""

    starts_at_model: bool = False

    follows_senders = True

    def init(self, num_senders: int, like: Tensor) -> Tensor:
        if self.starts_at_model:
            return like[None].repeat(num_senders, 1)
        return like.new_zeros(num_senders, like.shape[0])

    def predict(self, memory: Tensor, cohort: Cohort) -> Tensor:
        return take_rows(memory, cohort)

    def follow(self, decoded: Tensor, memory: Tensor, cohort: Cohort) -> tuple[Tensor, Tensor]:
        """(the senders' rows g_i + c_i [M, D], the memory [N, D] afterwards)."""
        rows = take_rows(memory, cohort) + decoded
        return rows, put_rows(memory, cohort, rows)

    def mean(self, decoded: Tensor, memory: Tensor, cohort: Cohort) -> tuple[Tensor, Tensor]:
        """The mean over all N by the cohort's weights where nobody is idle and these sum to 1; else all count alike.

        Weights 1 / (N p_i) of a cohort that is drawn client by client stand for idle clients, whose rows are here.
        """
        if cohort.is_all_of(memory.shape[0]):
            rows, memory = self.follow(decoded, memory, cohort)
            alike = torch.full_like(cohort.weight, 1 / memory.shape[0])
            averages = (cohort.weight.sum() - 1).abs() < ROUNDING
            return torch.where(averages, cohort.weight, alike) @ rows, memory
        before = memory.mean(0)
        change = decoded.sum(0) / memory.shape[0]
        return before + change, self.follow(decoded, memory, cohort)[1]


PREDICTORS: dict[str, Predictor] = {
    "none": NoPrediction(),
    "aggregate": Aggregate(),
    "ef21": EF21(),
    "ef21_p": EF21(starts_at_model=True),
}
"""The short names that `compressor.predictor=<name>` takes; any other part is given by its `_target_`."""
