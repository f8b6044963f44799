"""BiSeNetV2: a network for segmentation with a branch for detail and one for meaning.

C. Yu et al., "BiSeNet V2: bilateral network with guided aggregation for real-time semantic segmentation", 2020
(arXiv:2004.02147); layers as in `CoinCheung/BiSeNet`, which has a ReLU after the depth-wise convolutions of a
gather-and-expand layer that the paper's figure lacks. 5,236,265 parameters with booster heads for 21 classes, 3,360,677
without. Its dropout of 0.1 in the heads is `model.dropout=0.1`.

Shape legend: B batch, C channels, H, W size of the input, K classes, A outputs in training.
"""

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.core.ranges import Within, checked
from fedcomp.model.networks.cnn import image_shape

STRIDE = 32
"""The sides of the input are multiples of it."""
_BOOSTER_WIDTHS = (16, 64, 256, 1024)


class BiSeNetV2(nn.Module):
    """Logits [B, K, H, W]; in training with boosters [B, 5, K, H, W], those of the four booster heads last.

    Args:
        channels: of the input. num_classes: K.
        width: every number of channels is multiplied by it, then rounded to a multiple of 8, at least 8.
        boosters: whether there are booster heads, which only training uses.
        dropout: probability that an input of a head's last part is 0 in training; 0: no dropout.
    """

    def __init__(self, channels: int, num_classes: int, width: float, boosters: bool, dropout: float = 0.0) -> None:
        super().__init__()
        stem, three, four, detail, wide = (_scaled(base, width) for base in (16, 32, 64, 128, 1024))
        detailed = _scaled(64, width)
        self.detail = nn.Sequential(
            _conv(channels, detailed, stride=2),
            _conv(detailed, detailed),
            _conv(detailed, detailed, stride=2),
            _conv(detailed, detailed),
            _conv(detailed, detailed),
            _conv(detailed, detail, stride=2),
            _conv(detail, detail),
            _conv(detail, detail),
        )
        self.stem = Stem(channels, stem)
        self.stage3 = nn.Sequential(ExpandDown(stem, three), Expand(three))
        self.stage4 = nn.Sequential(ExpandDown(three, four), Expand(four))
        self.stage5 = nn.Sequential(ExpandDown(four, detail), *(Expand(detail) for _ in range(3)))
        self.context = ContextEmbedding(detail)
        self.aggregation = Aggregation(detail)
        self.head = nn.Sequential(_conv(detail, wide), *_dropout(dropout), nn.Conv2d(wide, num_classes, 1))
        widths = zip((stem, three, four, detail), _BOOSTER_WIDTHS)
        self.boosters = nn.ModuleList(
            Booster(at, detail, inner, num_classes, dropout) for at, inner in (widths if boosters else ())
        )
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out")
                if part.bias is not None:
                    nn.init.zeros_(part.bias)
            elif isinstance(part, Expand | ExpandDown):
                nn.init.zeros_(part.last.weight)

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, C, H, W]."""
        stages = [self.stem(x)]
        for stage in (self.stage3, self.stage4, self.stage5):
            stages.append(stage(stages[-1]))
        both = self.aggregation(self.detail(x), self.context(stages[-1]))
        size = x.shape[2:]
        logits = _enlarged(self.head(both), size)
        if not self.training or not len(self.boosters):
            return logits
        return torch.stack([logits, *(_enlarged(head(at), size) for head, at in zip(self.boosters, stages))], 1)


class Stem(nn.Module):
    """To 1/4 of the size, by a convolution and by max-pooling side by side."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.first = _conv(channels, out, stride=2)
        self.left = nn.Sequential(_conv(out, out // 2, kernel=1), _conv(out // 2, out, stride=2))
        self.right = nn.MaxPool2d(3, 2, 1)
        self.last = _conv(2 * out, out)

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, C, H, W]; returns [B, out, H/4, W/4]."""
        x = self.first(x)
        return self.last(torch.cat([self.left(x), self.right(x)], 1))


class Expand(nn.Module):
    """Gather-and-expand layer of stride 1. Its branch starts at 0."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        expanded = 6 * channels
        self.branch = nn.Sequential(
            _conv(channels, channels),
            _conv(channels, expanded, groups=channels),
            nn.Conv2d(expanded, channels, 1, bias=False),
        )
        self.last = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, C, H, W], as the result."""
        return torch.relu(x + self.last(self.branch(x)))


class ExpandDown(nn.Module):
    """Gather-and-expand layer of stride 2. Its main branch starts at 0."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        expanded = 6 * channels
        self.branch = nn.Sequential(
            _conv(channels, channels),
            _conv(channels, expanded, stride=2, groups=channels, relu=False),
            _conv(expanded, expanded, groups=expanded),
            nn.Conv2d(expanded, out, 1, bias=False),
        )
        self.last = nn.BatchNorm2d(out)
        self.shortcut = nn.Sequential(
            _conv(channels, channels, stride=2, groups=channels, relu=False), _conv(channels, out, kernel=1, relu=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, C, H, W]; returns [B, out, H/2, W/2]."""
        return torch.relu(self.shortcut(x) + self.last(self.branch(x)))


class ContextEmbedding(nn.Module):
    """Adds what the whole picture has in the mean."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.inner = _conv(channels, channels, kernel=1)
        self.last = _conv(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, C, H, W], as the result."""
        return self.last(x + self.inner(self.norm(x.mean((2, 3), keepdim=True))))


class Aggregation(nn.Module):
    """Bilateral guided aggregation: each branch is gated by the other, at both sizes."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.detail = nn.Sequential(
            _conv(channels, channels, groups=channels, relu=False), nn.Conv2d(channels, channels, 1, bias=False)
        )
        self.detail_down = nn.Sequential(_conv(channels, channels, stride=2, relu=False), nn.AvgPool2d(3, 2, 1))
        self.semantic_up = nn.Sequential(_conv(channels, channels, relu=False), nn.Upsample(scale_factor=4))
        self.semantic = nn.Sequential(
            _conv(channels, channels, groups=channels, relu=False), nn.Conv2d(channels, channels, 1, bias=False)
        )
        self.up = nn.Upsample(scale_factor=4)
        self.last = _conv(channels, channels)

    def forward(self, detail: Tensor, semantic: Tensor) -> Tensor:
        """detail: [B, C, H/8, W/8]; semantic: [B, C, H/32, W/32]; returns the size of the former."""
        fine = self.detail(detail) * torch.sigmoid(self.semantic_up(semantic))
        coarse = self.detail_down(detail) * torch.sigmoid(self.semantic(semantic))
        return self.last(fine + self.up(coarse))


class Booster(nn.Module):
    """A head on a stage of the semantic branch."""

    def __init__(self, channels: int, middle: int, inner: int, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            _conv(channels, middle),
            *_dropout(dropout),
            nn.Upsample(scale_factor=2),
            _conv(middle, inner),
            nn.Conv2d(inner, num_classes, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, C, h, w]; returns logits [B, K, 2 h, 2 w]."""
        return self.layers(x)


@checked("model.")
def bisenetv2(
    input_shape: tuple[int, ...],
    num_outputs: int,
    task: str,
    width: Annotated[float, Within("(0, 16]", "the channels of every layer as a multiple of the paper's")] = 1.0,
    boosters: bool = True,
    dropout: Annotated[float, Within("[0, 1)", "a probability")] = 0.0,
) -> BiSeNetV2:
    """`BiSeNetV2` for a dataset of pictures whose every pixel has a class.

    Raises ValueError: another task, sides that are not multiples of 32, or an option out of range.
    """
    if task != "segmentation":
        raise ValueError(
            f"model=bisenetv2 is for segmentation, the dataset's task is {task}: take dataset=shapes or another model"
        )
    channels, *sides = image_shape("bisenetv2", input_shape, smallest=1)
    if any(side % STRIDE for side in sides):
        further = "x".join(str(-(-side // STRIDE) * STRIDE) for side in sides)
        raise ValueError(
            f"model=bisenetv2 takes images whose sides are multiples of {STRIDE}, the dataset gives "
            f"{sides[0]}x{sides[1]}: take {further}"
        )
    return BiSeNetV2(channels, num_outputs, width, boosters, dropout)


def _scaled(base: int, width: float) -> int:
    return max(8, 8 * round(base * width / 8))


def _dropout(p: float) -> list[nn.Module]:
    return [nn.Dropout(p)] if p else []


def _conv(
    channels: int, out: int, kernel: int = 3, stride: int = 1, groups: int = 1, relu: bool = True
) -> nn.Sequential:
    """Convolution without bias, BatchNorm and, with `relu`, ReLU."""
    layers: list[nn.Module] = [
        nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out),
    ]
    return nn.Sequential(*layers, *([nn.ReLU()] if relu else []))


def _enlarged(logits: Tensor, size: torch.Size) -> Tensor:
    return functional.interpolate(logits, size=size, mode="bilinear", align_corners=False)
