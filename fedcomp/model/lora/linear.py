"""A linear layer with a low-rank adapter: y = W x + b + s B (A x), W and b frozen.

E. J. Hu et al., "LoRA: low-rank adaptation of large language models", ICLR 2022. First values: A uniform on
+-1/sqrt(i), as Kaiming's uniform with a = sqrt(5), B = 0; so the first outputs are those of the frozen layer.

Shape legend: M clients, B batch, i inputs, o outputs, r rank.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.core.parameter_layout import LoraFactor


class LoraLinear(nn.Module):
    """A frozen layer x -> W x + b with its adapter.

    Where `lora_A` and `lora_B` hold one adapter a client, [M, r, i] and [M, o, r], the leading axis of inputs is M B,
    client after client: the products with W are then one for all of them, those with A and B are batched.

    Attributes:
        base: the frozen layer. inputs, outputs: i, o.
        lora_A: [r, i] float32. lora_B: [o, r] float32.
        scale: s.
    """

    def __init__(
        self,
        base: nn.Module,
        inputs: int,
        outputs: int,
        rank: int,
        scale: float,
        dropout: float = 0.0,
        trains: str = "both",
        a_init: str = "uniform",
    ) -> None:
        """`trains`: "both", or "b": A is frozen at its first value. `a_init`: "uniform" or "orthonormal".

        With "orthonormal" the rows of A are orthogonal (where r <= i) and of norm sqrt(1/3), the mean of the uniform's.
        """
        super().__init__()
        self.base = base.requires_grad_(False)
        self.inputs, self.outputs, self.rank, self.scale, self.a_init = inputs, outputs, rank, scale, a_init
        self.lora_A = nn.Parameter(torch.empty(rank, inputs))
        self.lora_B = nn.Parameter(torch.empty(outputs, rank))
        self.dropout = nn.Dropout(dropout) if dropout else None
        self.reset_parameters()
        self.lora_A.requires_grad_(trains == "both")

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw A, unless it is frozen, and set B to 0; the base stays."""
        if self.lora_A.requires_grad:
            if self.a_init == "orthonormal":
                nn.init.orthogonal_(self.lora_A, math.sqrt(max(1.0, self.rank / self.inputs) / 3))
            else:
                nn.init.uniform_(self.lora_A, -1 / math.sqrt(self.inputs), 1 / math.sqrt(self.inputs))
        self.lora_B.zero_()

    def factors(self, matrix: int) -> Iterator[tuple[Tensor, LoraFactor]]:
        """A and B with what each is; `matrix`: the number of this layer among the adapted ones."""
        for role, tensor in (("A", self.lora_A), ("B", self.lora_B)):
            yield tensor, LoraFactor(matrix, role, self.rank, self.inputs, self.outputs, self.scale)

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., i]; with an adapter a client [M B, ..., i]. Returns [..., o] in the base's type."""
        y = self.base(x)
        low = (x if self.dropout is None else self.dropout(x)).to(self.lora_A.dtype)
        change = by_client(by_client(low, self.lora_A), self.lora_B)
        return (y + self.scale * change).to(y.dtype)


class TrainedLinear(nn.Linear):
    """A linear layer that is trained as it is: float32 over a base of any type, one weight for all or one a client.

    With a weight [M, o, i] a client the leading axis of inputs is M B, as in `LoraLinear`.
    """

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., i]. Returns [..., o]."""
        return by_client(x.to(self.weight.dtype), self.weight, self.bias)


def train_as_head(module: nn.Module, names: Sequence[str], tied: bool) -> None:
    """Makes the linear layers in these parts of the module `TrainedLinear`, with the same weights as float32.

    ValueError: the head's weights are also those of the embedding (`tied`).
    """
    if names and tied:
        raise ValueError("model.train_head=true: the last layer's weights are the embedding's too; take false")
    for name in names:
        for own, part in list(module.get_submodule(name).named_modules()):
            if isinstance(part, nn.Linear):
                twin = TrainedLinear(part.in_features, part.out_features, part.bias is not None, device="meta")
                twin.weight = nn.Parameter(part.weight.detach().float())
                twin.bias = None if part.bias is None else nn.Parameter(part.bias.detach().float())
                module.set_submodule(f"{name}.{own}" if own else name, twin)


def by_client(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b, with one weight [o, i] for all of x [..., i], or one a client, [M, o, i], for x [M B, ..., i]."""
    if weight.dim() == 2:
        return functional.linear(x, weight, bias)
    rows = x.reshape(len(weight), -1, x.shape[-1])
    product = torch.bmm(rows, weight.mT) if bias is None else torch.baddbmm(bias[:, None], rows, weight.mT)
    return product.view(*x.shape[:-1], weight.shape[1])
