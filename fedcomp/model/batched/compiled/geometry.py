"""The sizes of a convolutional block. Shape legend: O output channels, B batch."""

from typing import NamedTuple


class Geometry(NamedTuple):
    """Sizes of one block: convolution of stride 1, ReLU or none, pooling of windows side by side or none.

    Attributes:
        channels, height, width: of the input. pad: rows and columns of zeros on each side of it.
        out: O. kernel_h, kernel_w: of the convolution.
        pool_h, pool_w: 1 for none. maximum: 1 for the largest of a window, 0 for its mean. relu: 1 where there is one.
        margin: rows and columns of zeros around the block's output: the `pad` of the next block.
        batch: B.
    """

    channels: int
    height: int
    width: int
    pad: int
    out: int
    kernel_h: int
    kernel_w: int
    pool_h: int
    pool_w: int
    maximum: int
    relu: int
    margin: int
    batch: int
