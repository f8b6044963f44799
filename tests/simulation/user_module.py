"""Networks as a user may bring them."""

from __future__ import annotations

from torch import Tensor, nn

from tests.conformance import world


class Residual(nn.Module):
    """No chain of known layers, so run by `torch.func`; BatchNorm counts its batches in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(world.NUM_FEATURES, 3), nn.BatchNorm1d(3)

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
