"""The plain modules: what each client's own module computes by autograd, one client after another."""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.model.contract import Batch, Gradient
from fedcomp.model.flat import statistics_of, trained_parameters
from fedcomp.model.loss import Loss


def loaded(module: nn.Module, theta_D: Tensor, stats_C: Tensor) -> nn.Module:
    """A float64 copy of `module` with these parameters and float buffers."""
    twin = copy.deepcopy(module).double()
    floats = list(statistics_of(twin).values())
    with torch.no_grad():
        nn.utils.vector_to_parameters(theta_D, trained_parameters(twin))
        for buffer, value in zip(floats, stats_C.split([buffer.numel() for buffer in floats])):
            buffer.copy_(value.view(buffer.shape))
    return twin


def plain_gradient(
    module: nn.Module, loss: Loss, theta: Tensor, stats: Tensor, x: Tensor, y: Tensor, weight: Tensor | None
) -> Gradient:
    """`Model.gradient` by a loop over clients, each on its real samples only."""
    grads, losses, news = [], [], []
    for client in range(theta.shape[0]):
        real = slice(None) if weight is None else weight[client] > 0
        x_B, y_B = x[client][real], y[client][real]
        if len(x_B) == 0:
            grads.append(torch.zeros_like(theta[client]))
            losses.append(theta.new_zeros(()))
            news.append(stats[client])
            continue
        twin = loaded(module, theta[client], stats[client]).train()
        value = loss(twin(x_B)[None], y_B[None]).mean()
        grads.append(torch.cat([grad.flatten() for grad in torch.autograd.grad(value, trained_parameters(twin))]))
        losses.append(value.detach())
        floats = [buffer.flatten() for buffer in statistics_of(twin).values()]
        news.append(torch.cat([*floats, theta.new_empty(0)]))
    return Gradient(torch.stack(grads), torch.stack(losses), torch.stack(news))


def pixels(outputs: Tensor, y: Tensor) -> Tensor:
    """The mean over a client's pixels [1, B, K, H, W], but for those of class 255."""
    return functional.cross_entropy(outputs[0], y[0].long(), ignore_index=255)


def assert_gradient(model, loss: Loss, theta: Tensor, batch: Batch, tolerance: float = 1e-12) -> Gradient:
    """The model's gradients and losses are those of its plain module; returns what was found."""
    found = model.gradient(theta, batch)
    plain = plain_gradient(model.module, loss, theta, batch.stats, batch.x, batch.y, batch.weight)
    assert_close(found.grad, plain.grad, tolerance)
    assert_close(found.loss, plain.loss, tolerance)
    return found


def plain_outputs(module: nn.Module, theta_D: Tensor, stats_C: Tensor, x: Tensor) -> Tensor:
    """`Model.outputs` by the module itself."""
    with torch.no_grad():
        return loaded(module, theta_D, stats_C).eval()(x)


def rows(model, num_clients: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Different float64 parameters [M, D] and statistics [M, C] (positive, as variances are) for each client."""
    flat = torch.cat([parameter.detach().flatten() for parameter in trained_parameters(model.module)]).double()
    noise = torch.randn(num_clients, model.dim, generator=generator, dtype=torch.float64)
    stats = torch.rand(num_clients, model.num_stats, generator=generator, dtype=torch.float64) + 0.5
    return flat + 0.05 * noise, stats


def batch(
    num_clients: int, size: int, shape: tuple[int, ...], num_outputs: int, task: str, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Inputs [M, B, ...] (images channels last in memory) and classes [M, B] or targets [M, B, O]."""
    if len(shape) == 3:
        channels, height, width = shape
        x = torch.randn(num_clients, size, height, width, channels, generator=generator, dtype=torch.float64)
        x = x.movedim(-1, -3)
    else:
        x = torch.randn(num_clients, size, *shape, generator=generator, dtype=torch.float64)
    if task == "classification":
        return x, torch.randint(0, num_outputs, (num_clients, size), generator=generator)
    return x, torch.randn(num_clients, size, num_outputs, generator=generator, dtype=torch.float64)


def assert_close(got: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    """Same shape, and equal row by row up to `tolerance` of the row's norm."""
    assert got.shape == expected.shape
    error = (got - expected).flatten(1).norm(dim=1) if got.dim() > 1 else (got - expected).abs()
    scale = expected.flatten(1).norm(dim=1) if got.dim() > 1 else expected.abs()
    assert bool((error <= tolerance * scale.clamp(min=1e-3)).all()), f"relative error {(error / scale).max():.2e}"
