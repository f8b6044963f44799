"""Any module over batches with empty places: BatchNorm that leaves them out, and a test that nothing else reads them.

Shape legend: C running statistics or channels, B batch, O outputs.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.model.batched.batch_norm import by_real_samples, channels

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)

Call = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor]]
"""Outputs [B, O] and new statistics [C] of samples [B, ...], of which the [B] that are 1 are real (None: all)."""


@dataclass
class Places:
    """Which places of a batch hold a sample: [B] of 0 and 1, or None where all do. The module's BatchNorms read it."""

    real: Tensor | None = None


def leave_out(module: nn.Module, places: Places) -> None:
    """From now on the module's BatchNorms take statistics of the real samples only.

    In training one value a channel counts as variance 0 (torch refuses it), and none changes nothing, as in stacked
    layers. Those that are not torch's own, keep no running statistics or average all batches alike stay as they are.
    """
    for part in module.modules():
        if not isinstance(part, _BATCH_NORMS) or type(part) not in _BATCH_NORMS:
            continue
        if part.running_mean is None or part.momentum is None or part._forward_hooks or part._forward_pre_hooks:
            continue
        vars(part)["forward"] = functools.partial(_batch_norm, part, places)  # before the class's own


def random_inputs(
    num: int, input_shape: tuple[int, ...], vocab_size: int | None, generator: torch.Generator, scale: float = 1.0
) -> Tensor:
    """[num, *input_shape] normal draws of this scale, or tokens below `vocab_size`: inputs to try a module on."""
    if vocab_size is None:
        return scale * torch.randn(num, *input_shape, generator=generator)
    return torch.randint(vocab_size, (num, *input_shape), generator=generator)


def reads_real_samples_only(call: Call, input_shape: tuple[int, ...], vocab_size: int | None) -> bool:
    """Whether the contents of an empty place of a batch leave the results of the real samples unchanged."""
    generator = torch.Generator().manual_seed(0)
    x = random_inputs(4, input_shape, vocab_size, generator)
    other = torch.cat([x[:3], random_inputs(1, input_shape, vocab_size, generator, 100)])
    real = torch.tensor([1.0, 1.0, 1.0, 0.0])
    try:
        alone, one, two = call(x[:3], None), call(x, real), call(other, real)
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):
        return False
    same = torch.equal(one[0][:3], two[0][:3]) and torch.equal(one[1], two[1])
    return same and all(torch.allclose(a, b[: len(a)], rtol=1e-3, atol=1e-5) for a, b in zip(alone, one, strict=True))


def _batch_norm(norm: nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d, places: Places, x: Tensor) -> Tensor:
    """x: [B, C, ...]."""
    mean, var = norm.running_mean, norm.running_var
    assert mean is not None
    assert var is not None
    assert norm.momentum is not None
    if not norm.training or (places.real is None and x.numel() > x.shape[1]):
        return functional.batch_norm(x, mean, var, norm.weight, norm.bias, norm.training, norm.momentum, norm.eps)
    weight = None if places.real is None else places.real[None]
    y, new_mean, new_var = by_real_samples(x.to(mean.dtype), mean, var, weight, norm.eps, norm.momentum)
    mean.copy_(new_mean)
    var.copy_(new_var)
    if norm.affine:
        y = y * channels(norm.weight, x) + channels(norm.bias, x)
    return y.to(x.dtype)
