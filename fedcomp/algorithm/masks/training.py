"""Local training of masks over frozen random weights, for FedPM and BiCompFL alike.

B. Isik et al., "Sparse random networks for communication-efficient federated learning" (FedPM), ICLR 2023, algorithm 1;
M. Egger et al., "BiCompFL", 2025 (arXiv:2502.00206), algorithm 3 (which subtracts from s^(0) in every step, a slip).

A client turns probabilities theta into scores s = logit(theta). Every local step draws a mask m ~ Bernoulli(sigma(s)),
takes the gradient at the weights w * m, and passes it to the scores straight through the draw:

    identity    dloss/ds = dloss/dm theta (1 - theta)
    p_weighted  dloss/ds = dloss/dm theta^2 (1 - theta), as FedPM's code does (its Bernoulli multiplies by theta)

What comes back is q = sigma(s) after the last step. Columns that are not masked (scale and shift of normalisation
layers) stay as they are, or are trained as weights beside the scores.

Shape legend: M clients of the cohort, A of them at work, D parameters, C running statistics.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Models
from fedcomp.algorithm.updates.local_training import train_cohort
from fedcomp.client import Batch, Gradient, Hook, LocalData, LocalResult, LocalSolver, Reads
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import ParameterSubset, ParameterTensor, is_normalisation
from fedcomp.core.ranges import CheckedOptions, Within
from fedcomp.random.keys import Key

Ste = Literal["identity", "p_weighted"]
TestedMask = Literal["sample", "expected", "threshold"]
STEEP = 2.0**60
"""Differences of a draw (a multiple of 2^-24) and a float32 probability are 0 or far above 2^-60."""


@dataclass(frozen=True)
class MaskTraining(CheckedOptions):
    """How masks are trained; `clamp` is c.

    Probabilities are kept in [c, 1 - c] where their logarithm is taken, so that no score is infinite.
    """

    client: LocalSolver
    ste: Ste = "identity"
    clamp: Annotated[float, Within("(0, 0.5)", "probabilities keep that far from 0 and 1")] = 0.01
    batchnorm_training: Literal["frozen", "trained"] = "frozen"
    prefix = "algorithm."

    def train_masks(
        self,
        weights: Tensor,
        theta: Tensor,
        stats: Tensor,
        part: ParameterSubset,
        cohort: Cohort,
        ctx: Context,
        memory: tuple[Tensor, ...] = (),
    ) -> tuple[LocalResult, Tensor]:
        """Train the cohort's masks.

        Args:
            weights: [D] frozen weights, and the values of the columns that are not masked.
            theta: [M, D] or [1, D] probabilities; those outside the part are not used.
            stats: [C] running statistics. part: the columns that are masked.
            memory: the solver's persistent optimizer state, one row for each of the N clients; (): fresh state.
        Returns:
            q [M, D] as `value`, with the values after training in the other columns, losses and memory; and the mean
            statistics [C], which the clients send.
        """

        def train(data: LocalData, theta: Tensor, stats: Tensor, *memory: Tensor) -> LocalResult:
            rest = weights.to(theta.dtype).expand(theta.shape)  # in what the clients compute in
            scores = part.put(rest, torch.logit(part.take(theta).clamp(self.clamp, 1 - self.clamp)))
            key = ctx.sender_key("masks")
            hook = self._hook(data, weights, part, key)
            local = self.client.run(data, scores, stats, ctx.progress, hook, memory)
            return replace(local, value=part.put(local.value, torch.sigmoid(part.take(local.value))))

        return train_cohort(train, theta, stats, cohort, ctx, memory)

    def _hook(self, data: LocalData, weights: Tensor, part: ParameterSubset, key: Key) -> Hook:
        trains_rest = self.batchnorm_training == "trained"

        def gradient(variables: Tensor, batch: Batch, reads: Reads) -> Gradient:
            (ids,), (frozen,) = reads.rows, reads.shared
            theta = torch.sigmoid(part.take(variables))
            draws = reads.draws.uniform(ids[: batch.num_rows], part.size)
            masked = bernoulli(theta, draws).mul_(frozen)
            plain = data.gradient(part.put(variables, masked), batch, reads.step)
            slope = (1.0 - theta).mul_(theta).mul_(frozen)
            if self.ste == "p_weighted":
                slope.mul_(theta)
            rest = plain.grad if trains_rest else torch.zeros_like(plain.grad)
            return Gradient(part.put(rest, slope.mul_(part.take(plain.grad))), plain.loss, plain.stats)

        return Hook(gradient, (self, part), (data.ids,), (part.take(weights),), key)


def masked_part(tensors: tuple[ParameterTensor, ...], name: str) -> ParameterSubset:
    """The columns that are masked: all but those of normalisation layers. Raises ValueError: there are none."""
    part = ParameterSubset.of(tensors, lambda tensor: not is_normalisation(tensor))
    if not part.size:
        raise ValueError(f"algorithm={name} masks weights and biases, and this model has none: choose another model")
    return part


def masked_models(
    weights: Tensor, theta: Tensor, stats: Tensor, key: Key, test: str, num_samples: int
) -> dict[str, Models]:
    """The models that probabilities theta [D] stand for; the one called `test` is logged as "test".

    sample: `num_samples` drawn masks, whose metrics are averaged; expected: w * theta; threshold: w * [theta > 1/2].
    """
    rows = torch.arange(num_samples, device=theta.device)
    thetas = {
        "sample": torch.where(key.fold_in("mask").uniform(rows, theta.shape[0]) < theta, weights, 0.0),
        "expected": (weights * theta)[None],
        "threshold": torch.where(theta > 0.5, weights, 0.0)[None],
    }
    models = {name: Models(rows, stats.expand(rows.shape[0], -1)) for name, rows in thetas.items()}
    return {"test": models.pop(test), **models}


def bernoulli(probability: Tensor, draws: Tensor) -> Tensor:
    """1.0 where draws < probability, 0.0 elsewhere, exactly, as a new float32 tensor.

    By arithmetic alone: on a CPU a comparison with `torch.where` takes ten times as long.

    Args:
        probability: any finite floats below 10^18; at most 0 is never, at least 1 always.
        draws: uniform in [0, 1), as `Key.uniform` gives them.
    """
    return (probability - draws).mul_(STEEP).clamp_(0.0, 1.0)
