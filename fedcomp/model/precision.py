"""In which floating-point numbers convolutions and matrix products are computed; everything else stays float32.

    fp32  products of float32 numbers.
    tf32  a GPU's TensorFloat-32: factors rounded to 10 bits of mantissa, sums in float32; in cuBLAS and cuDNN alike.
    bf16  factors and results are bfloat16 (7 bits), and so are the activations between products.

Under bf16 parameters, optimizer memories, updates and messages are float32 (master weights), and so are BatchNorm's
statistics, the loss, and gradients once they are joined to rows; a sum over a batch or over pixels is accumulated in
float32. Evaluation is in fp32 after training in bf16, but in tf32 after tf32, which is a setting of the process.
"""

import torch

from fedcomp.core.validate import check_choice
from fedcomp.model.contract import AnyModel, TaskModel

PRECISIONS = ("fp32", "tf32", "bf16")


def product_type(precision: str) -> torch.dtype | None:
    """What factors are cast to; None: they stay what they are. Raises ValueError: no such precision."""
    check_choice("precision", precision, PRECISIONS)
    return torch.bfloat16 if precision == "bf16" else None


def check_dtype(dtype: str, precision: str, model: AnyModel) -> None:
    """Raise ValueError unless what clients compute in float64 is a network, whose products are not rounded."""
    if dtype == "float64" and precision != "fp32":
        raise ValueError(f"dtype=float64 contradicts precision={precision}: take precision=fp32")
    if dtype == "float64" and isinstance(model, TaskModel):
        raise ValueError(f"dtype=float64 is for networks, not for model={model.kind}: take dtype=float32")


def set_tf32(precision: str, device: torch.device) -> None:
    """Switch TensorFloat-32 on or off, for matrix products and for convolutions.

    Raises:
        ValueError: the device has no TensorFloat-32; or is a GPU without products of bfloat16, and `precision` is that.
    """
    wanted = precision == "tf32"
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise ValueError(
            f"precision=bf16: {torch.cuda.get_device_name(device)} has no products of bfloat16 (NVIDIA's have them "
            "from compute capability 8.0 on): take precision=fp32"
        )
    nvidia = device.type == "cuda" and torch.version.hip is None  # AMD's have other numbers of the same name
    if wanted and not (nvidia and torch.cuda.get_device_capability(device) >= (8, 0)):
        raise ValueError(
            f"precision=tf32 needs an NVIDIA GPU of compute capability 8.0 or more, and device is {device}: take "
            f"precision=fp32 or bf16"
        )
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = wanted
