"""How far the product of mean adapters is from the mean of their products, as FedAvg of both factors has it.

With W_k = s B_k A_k, weights p_k and means B, A of the clients' factors,

    sum_k p_k W_k - s B A = s sum_k p_k (B_k - B) (A_k - A)

`adapter/bias` is the length of this over all adapted matrices, as a share of that of the exact step, sum_k p_k W_k -
s B_0 A_0 from the factors that the round began with. It needs the clients' true factors, which no server has where
messages are lossy: a figure of the simulation, not of the method. Products are never formed: for U = [U_1, ..., U_n]
and V = [V_1; ...; V_n], ||U V||^2 = <U^T U, V V^T>, in float64.

Shape legend: M clients of the cohort, D parameters, r rank, i inputs, o outputs of a matrix.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Metrics
from fedcomp.core.cohort import Cohort
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.core.parameter_layout import ParameterTensor

MOST_COMPONENTS = 1024
"""M r up to which it is logged: beyond, it would take a share of the training's time."""


def adapter_bias(start: Tensor, change: Tensor, cohort: Cohort, tensors: Sequence[ParameterTensor]) -> Metrics:
    """`adapter/bias`; {} for a model that does not train A and B of adapters.

    Args:
        start: [D] where the cohort began. change: [M, D] what each client adds to it.
    """
    if all(tensor.lora is None or tensor.lora.role != "A" for tensor in tensors):
        return {}
    layout = LoraLayout.of(tensors)
    if not layout.trains_a or change.shape[0] * max(one.rank for one in layout.matrices) > MOST_COMPONENTS:
        return {}
    weight = (cohort.weight / cohort.weight.sum()).double()[:, None, None]
    bias = exact = start.new_zeros((), dtype=torch.float64)
    changes, first = layout.factors(change.double()), layout.factors(start[None].double())
    for one, (da, db), (a0, b0) in zip(layout.matrices, changes, first, strict=True):
        mean_a, mean_b = (weight * da).sum(0), (weight * db).sum(0)
        bias = bias + one.scale**2 * _square(weight * (db - mean_b), da - mean_a)
        # sum_k p_k (B_k A_k - B_0 A_0) = sum_k p_k dB_k A_k + B_0 (sum_k p_k dA_k)
        left, right = torch.cat((weight * db, b0)), torch.cat((a0 + da, mean_a[None]))
        exact = exact + one.scale**2 * _square(left, right)
    return {"adapter/bias": (bias / exact.clamp(min=torch.finfo(torch.float64).tiny)).sqrt().to(start.dtype)}


def _square(b: Tensor, a: Tensor) -> Tensor:
    """||sum_k b_k a_k||^2 for b [n, o, r] and a [n, r, i]."""
    left, right = b.transpose(0, 1).flatten(1), a.flatten(0, 1)
    return ((left.T @ left) * (right @ right.T)).sum().clamp(min=0)
