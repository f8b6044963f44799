"""Networks as a user may bring them."""

import torch
from torch import Tensor, nn

from tests.conformance import world


class Residual(nn.Module):
    """No chain of known layers, so run by `torch.func`; BatchNorm counts its batches in a buffer.

    Its `eps` is large: in a batch of two samples the gradient through it is otherwise little more than rounding.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(world.NUM_FEATURES, 3), nn.BatchNorm1d(3, eps=0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return y + self.norm(y)


class Centred(nn.Module):
    """Looks at its whole batch, empty places and all."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(world.NUM_FEATURES, world.NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x - x.mean(0))


def dropping_chain() -> nn.Module:
    """A chain of known layers with dropout."""
    hidden = nn.Linear(world.NUM_FEATURES, 8)
    return nn.Sequential(hidden, nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, world.NUM_CLASSES))


class Dropping(nn.Module):
    """No chain; its dropout is torch's module."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(world.NUM_FEATURES, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.dropout = nn.Dropout(0.4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.dropout(torch.relu(self.first(x)))
        return self.last(y + self.dropout(torch.tanh(self.second(y))))


class Attending(nn.Module):
    """Dropout within attention, which is no module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(world.NUM_FEATURES, 16), nn.Linear(16, world.NUM_CLASSES)
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.first(x)).unflatten(1, (4, 4))
        return self.last((y + self.attention(y, y, y, need_weights=False)[0]).flatten(1))
