"""The convolutional networks of BiCompFL (arXiv 2502.00206), every layer with a bias, ReLU after every hidden one.

Sizes from its Tables 5 to 12; parameter counts for ten outputs: lenet5 61,706 and cnn4 1,933,258 on 1x28x28, cnn6
2,262,602 on 3x32x32.
"""

from collections.abc import Sequence

from torch import nn


def lenet5(input_shape: Sequence[int], num_outputs: int) -> nn.Sequential:
    """Two 5x5 convolutions (6, 16 channels) with average pooling, then 120 and 84 units."""
    channels, height, width = image_shape("lenet5", input_shape, smallest=12)
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        *_head(16 * ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2), (120, 84), num_outputs),
    )


def cnn4(input_shape: Sequence[int], num_outputs: int) -> nn.Sequential:
    """3x3 convolutions 64, 64, pool, 128, 128, pool, then 256 and 256 units."""
    return _blocks("cnn4", input_shape, num_outputs, (64, 128))


def cnn6(input_shape: Sequence[int], num_outputs: int) -> nn.Sequential:
    """3x3 convolutions 64, 64, pool, 128, 128, pool, 256, 256, pool, then 256 and 256 units."""
    return _blocks("cnn6", input_shape, num_outputs, (64, 128, 256))


def image_shape(name: str, input_shape: Sequence[int], smallest: int) -> tuple[int, int, int]:
    """(C, H, W); ValueError unless samples are images of at least `smallest` pixels a side."""
    if len(input_shape) != 3 or min(input_shape[1:]) < smallest:
        raise ValueError(
            f"model={name} takes images [C, H, W] of at least {smallest}x{smallest} pixels, the dataset gives "
            f"{tuple(input_shape)}; choose model=mlp or a dataset of such images"
        )
    return input_shape[0], input_shape[1], input_shape[2]


def _blocks(name: str, input_shape: Sequence[int], num_outputs: int, widths: Sequence[int]) -> nn.Sequential:
    """For each width two convolutions and a max-pool; then the head of two layers of 256."""
    channels, height, width = image_shape(name, input_shape, smallest=2 ** len(widths))
    layers: list[nn.Module] = []
    for out in widths:
        layers += [nn.Conv2d(channels, out, 3, padding=1), nn.ReLU(), nn.Conv2d(out, out, 3, padding=1), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
        channels, height, width = out, height // 2, width // 2
    return nn.Sequential(*layers, nn.Flatten(), *_head(channels * height * width, (256, 256), num_outputs))


def _head(num_in: int, hidden: Sequence[int], num_outputs: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(num_in, width), nn.ReLU()]
        num_in = width
    return [*layers, nn.Linear(num_in, num_outputs)]
