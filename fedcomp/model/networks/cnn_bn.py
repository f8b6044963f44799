"""The convolutional networks with BatchNorm of FedMRN (its official program).

3x3 convolutions of padding 1 without bias, each followed by BatchNorm and ReLU, a max-pool after every block, and one
linear layer without bias. Convolution and linear weights start as N(0, 0.01^2), BatchNorm as 1 and 0. Parameters
with ten outputs: cnn4_bn 390,880 on 1x28x28 and 399,136 on 3x32x32; cnn8_bn 1,183,456 on 3x32x32 (1,275,616 with 100).
"""

from collections.abc import Sequence

from torch import nn

from fedcomp.model.networks.cnn import image_shape

_WIDTHS = (32, 64, 128, 256)


def cnn4_bn(input_shape: Sequence[int], num_outputs: int, std: float = 0.01) -> nn.Sequential:
    """32, 64, 128, 256 channels, one convolution a block."""
    return _network("cnn4_bn", input_shape, num_outputs, 1, std)


def cnn8_bn(input_shape: Sequence[int], num_outputs: int, std: float = 0.01) -> nn.Sequential:
    """32, 64, 128, 256 channels, two convolutions a block."""
    return _network("cnn8_bn", input_shape, num_outputs, 2, std)


def _network(name: str, input_shape: Sequence[int], num_outputs: int, depth: int, std: float) -> nn.Sequential:
    channels, height, width = image_shape(name, input_shape, smallest=16)
    layers: list[nn.Module] = []
    for out in _WIDTHS:
        for _ in range(depth):
            layers += [nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
            channels = out
        layers.append(nn.MaxPool2d(2))
        height, width = height // 2, width // 2
    layers += [nn.Flatten(), nn.Linear(channels * height * width, num_outputs, bias=False)]
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.normal_(layer.weight, std=std)
    return nn.Sequential(*layers)
