"""Weighted sums of the clients' products B_k A_k, held as two thin matrices; their singular values without the sum.

Shape legend: M clients, o outputs, i inputs, r rank, R columns of a stack, q = min(R, o, i).
"""

import torch
from torch import Tensor

from fedcomp.core.lora_layout import Factors


def stacked(factors: Factors, weight: Tensor) -> Factors:
    """(SA [R, i], SB [o, R]) with SB SA = sum_k w_k B_k A_k of weights w [M]; R = M r.

    The weight is on A alone: on both factors each product would count by its square.
    """
    a, b = factors
    return (weight[:, None, None] * a).flatten(0, 1), b.movedim(0, 1).flatten(1)


def singular(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(U [o, q], S [q], V^T [q, i]) of b a for b [o, R], a [R, i]: in (o + i) R^2, by QR of both, never o x i."""
    left, right = torch.linalg.qr(b), torch.linalg.qr(a.mT)
    u, s, vt = torch.linalg.svd(left.R @ right.R.mT, full_matrices=False)
    return left.Q @ u, s, vt @ right.Q.mT


def product_norms(factors: Factors) -> Tensor:
    """[M] ||B_k A_k||_F, from the Gram matrices [r, r] of both."""
    a, b = factors
    return ((a @ a.mT) * (b.mT @ b)).sum((1, 2)).clamp(min=0).sqrt()
