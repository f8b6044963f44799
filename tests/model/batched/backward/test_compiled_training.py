"""Small networks: whole local training in one call, dense layers of every size, clients by themselves."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedcomp.client.adam import Adam
from fedcomp.client.contract import LocalLoop, LocalResult
from fedcomp.client.minibatch import MinibatchSolver
from fedcomp.client.sgd import Sgd
from fedcomp.core.accelerated import Verdicts, judged_by
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.model.batched.backward.compiled_network import CompiledNetwork
from fedcomp.model.batched.compiled import dense_numba
from fedcomp.model.build import build
from fedcomp.model.contract import Batch
from fedcomp.random.keys import Key
from fedcomp.simulation.chunks.client_data import ClientChunk, ClientShards
from fedcomp.simulation.fused_loop import FusedLoops, loop_runner_on
from tests.looped import looped

pytestmark = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "NO AVX"), reason="the tensor code is used on this processor"
)


ALIKE, RAGGED = (20, 20, 20), (23, 17, 9, 1)


def _convolutional() -> nn.Module:
    layers = nn.Conv2d(2, 5, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(45, 7), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(7, 3))


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(17, 24, bias=False), nn.ReLU(), nn.Linear(24, 3))


def _perceptron_of_images() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(20, 3))


NETWORKS = {
    "images": (_convolutional, (9, 8, 2)),
    "features": (_perceptron, (17,)),
    "grey images": (_perceptron_of_images, (5, 4, 1)),
}


def _chunk(
    sizes: tuple[int, ...], task: Any = "classification", dtype: torch.dtype = torch.uint8, kind: str = "images"
) -> ClientChunk:
    """Clients with images of two channels, or with features, each normalised by itself."""
    random, num = torch.Generator().manual_seed(0), sum(sizes)
    network, shape = NETWORKS[kind]
    x = torch.randint(0, 17, (num, *shape), generator=random).to(dtype)
    y = torch.randint(0, 3, (num,), generator=random)
    y = y if task == "classification" else torch.randn(num, 3, generator=random)
    mean, std = (torch.rand(shape[-1], generator=random) + 3 for _ in range(2))
    data = Dataset(kind, Samples(x, y), Samples(x, y), task, 3, mean, std)
    model = build(network, Key(("fused",)), (shape[-1], *shape[:-1]), 3, task)
    assert isinstance(model, CompiledNetwork)
    shards = ClientShards.of(list(torch.arange(num).split(list(sizes))), torch.device("cpu"))
    return ClientChunk(torch.arange(len(sizes)), np.array(sizes), Key(("round",)), data, shards, model)


class Fused(FusedLoops):
    """Every loop must be made in one call."""

    def run(self, loop: LocalLoop) -> LocalResult:
        found = super().run(loop)
        assert found is not None
        return found


def trained(data: ClientChunk, solver: MinibatchSolver, runner: Any) -> tuple[LocalResult, list[int]]:
    """What the clients end with, each from parameters of its own, and the samples that were counted of each."""
    theta, stats = data.model.init(Key())
    rows = theta.expand(len(data.sizes), -1) * torch.linspace(0.5, 1, len(data.sizes))[:, None]
    data = replace(data, loop_runner=runner, computed=[])
    found = solver.run(data, rows, stats.expand(len(rows), -1), (0, 1))
    return found, np.broadcast_to(data.gradients_of_each(), len(data.sizes)).tolist()


@looped(
    "sizes, solver",
    [
        (ALIKE, Sgd(lr=0.1, batch_size=10)),
        (RAGGED, Sgd(lr=0.1, batch_size=4, weight_decay=0.1)),
        (RAGGED, Sgd(lr=0.1, batch_size=16, epochs=2)),
        (ALIKE, Sgd(lr=0.1, batch_size=3, steps=5, replacement=True)),
    ],
)
@looped("task", ["classification", "regression"])
@looped("dtype", [torch.uint8, torch.float32])
@looped("kind", NETWORKS)
def test_training_in_one_call_is_the_loop_of_gradients(sizes, solver, task, dtype, kind) -> None:
    data = _chunk(sizes, task, dtype, kind)
    (slow, counted), (fast, fused) = (trained(data, solver, runner) for runner in (None, Fused()))
    assert float((slow.value - fast.value).abs().max()) <= 1e-6  # torch need not round a normalised pixel once
    torch.testing.assert_close(slow.loss, fast.loss, rtol=1e-6, atol=0)
    assert counted == fused
    assert not torch.equal(fast.value[0], data.model.init(Key())[0])


def test_colour_images_of_a_perceptron_are_trained_step_by_step() -> None:
    """Raw images have their channels last, a perceptron's weights first."""
    model = build(lambda: nn.Sequential(nn.Flatten(), nn.Linear(60, 3)), Key(), (3, 5, 4), 3, "classification")
    assert isinstance(model, CompiledNetwork)
    assert model.fused_sgd(torch.zeros(2, 5, 4, 3), torch.zeros(2, dtype=torch.int64)) is None


class Signs(Sgd):
    """Sign SGD as a user writes it, from `Sgd`."""

    def update(self, theta, grad, slots, coefficients):
        super().update(theta, grad.sign(), slots, coefficients)


def test_what_is_trained_in_one_call() -> None:
    data = _chunk(ALIKE)
    theta, stats = data.model.init(Key())
    rows = theta.expand(3, -1), stats.expand(3, -1)
    model, dataset = data.model, data.dataset
    doubles = Samples(dataset.train.x.double(), dataset.train.y)
    stepwise = [
        (data, Sgd(lr=0.1, momentum=0.9), rows[0], None),
        (data, Sgd(lr=0.1, clip_norm=1.0), rows[0], None),
        (data, Adam(lr=0.1), rows[0], None),
        (data, Signs(lr=0.1), rows[0], None),
        (data, Sgd(lr=0.1), rows[0], lambda *_: None),
        (data, Sgd(lr=0.1), rows[0].double(), None),
        (replace(data, dataset=replace(dataset, flip=True)), Sgd(lr=0.1), rows[0], None),
        (replace(data, dataset=replace(dataset, train=doubles)), Sgd(lr=0.1), rows[0], None),
    ]
    for chunk, solver, start, hook in stepwise:
        assert FusedLoops().run(LocalLoop(solver, chunk, start, rows[1], 0.1, hook)) is None
    model.set_conv_algorithms(["looped"])
    assert FusedLoops().run(LocalLoop(Sgd(lr=0.1), data, *rows, 0.1)) is None
    assert isinstance(loop_runner_on(torch.device("cpu"), graphs=False), FusedLoops)


@looped("wrong", [3, -1])
@looped("kind", ["images", "features"])
def test_a_class_that_is_no_output_is_refused(wrong: int, kind: str) -> None:
    data = _chunk(ALIKE, kind=kind)
    data.dataset.train.y[7] = wrong
    for runner, safe in ((None, False), (Fused(), False), (None, True)):
        with judged_by(Verdicts(safe=safe)), pytest.raises(ValueError, match="none of the model's 3 outputs"):
            trained(data, Sgd(lr=0.1), runner)


def test_a_client_has_the_same_bits_in_any_company() -> None:
    """Places without samples, wherever they are, are left out; so no bit depends on how clients are put together."""
    model, random = _chunk(ALIKE).model, torch.Generator().manual_seed(1)
    theta, stats = model.init(Key())
    x, y = torch.randn(3, 20, 2, 9, 8, generator=random), torch.randint(0, 3, (3, 20), generator=random)
    weight = (torch.rand(3, 20, generator=random) < torch.tensor([0.5, 2.0, -1.0])[:, None]).float()
    together = model.gradient(theta.expand(3, -1), Batch(x, y, weight, stats.expand(3, -1)))
    for row in range(2):
        real = weight[row] > 0
        alone = model.gradient(theta[None], Batch(x[row : row + 1, real], y[row : row + 1, real], None, stats[None]))
        assert torch.equal(alone.grad[0], together.grad[row])
        assert torch.equal(alone.loss[0], together.loss[row])
    assert not together.grad[2].any()
    assert not together.loss[2]


@looped("sizes", [(1, 1), (3, 2), (17, 5, 1), (45, 120, 33, 10), (16, 4, 70)])
@looped("batch", [1, 7, 16, 64, 70])
@looped("for_inputs", [True, False])
def test_dense_layers_of_every_size_are_products(sizes: tuple[int, ...], batch: int, for_inputs: bool) -> None:
    random, places = torch.Generator().manual_seed(batch), -(-batch // 16) * 16
    shapes = list(zip(sizes[1:], sizes[:-1]))
    starts = np.cumsum([0, *[num_out * (num_in + 1) for num_out, num_in in shapes]])
    layers = np.array(
        [(i, o, at, at + o * i if at % 2 == 0 else -1, at > 0) for (o, i), at in zip(shapes, starts)], np.int64
    )
    theta = torch.randn(int(starts[-1]), generator=random)
    x, g = torch.randn(batch, sizes[0], generator=random), torch.randn(batch, sizes[-1], generator=random)
    leaf, inputs = theta.double().requires_grad_(), x.double().requires_grad_()
    value = inputs
    for num_in, num_out, weight, bias, relu in layers.tolist():
        value = value @ leaf[weight : weight + num_in * num_out].view(num_out, num_in).T
        value = value + leaf[bias : bias + num_out] if bias >= 0 else value
        last = num_out == sizes[-1]
        value = value.relu() if relu and not last else value
    layers[-1, 4] = 0
    expected, of_inputs = torch.autograd.grad(value, (leaf, inputs), g.double())

    def rows(values: Tensor, room: int) -> np.ndarray:
        """[room * P] with values [B, n] transposed at its front, 0 beyond the batch and NaN after it."""
        held = torch.full((room, places), torch.nan)
        held[: values.shape[1]] = 0
        held[: values.shape[1], :batch] = values.T
        return held.flatten().numpy()

    held, z = rows(x, int(layers[:, 0].sum())), rows(g[:, :0], sizes[-1])
    dense_numba._forward(theta.numpy(), layers, held, z, places)
    torch.testing.assert_close(
        torch.from_numpy(z).view(-1, places)[:, :batch].T.double(), value.detach(), rtol=1e-5, atol=1e-4
    )
    above, spare, turned = rows(g, max(sizes)), rows(g[:, :0], max(sizes)), np.full(max(sizes) * places + 16, np.nan)
    grad = torch.full_like(theta, torch.nan)
    given = np.empty(0, np.float32) if for_inputs else torch.cat([x.flatten(), torch.zeros(16)]).numpy()
    dense_numba._backward(
        theta.numpy(), layers, held, given, above, spare, turned.astype(np.float32), grad.numpy(), places, batch
    )
    written = torch.cat([torch.arange(o * i + o * (b >= 0)) + at for i, o, at, b, _ in layers.tolist()])
    torch.testing.assert_close(grad[written].double(), expected[written], rtol=1e-4, atol=1e-3)
    if for_inputs:
        found = torch.from_numpy(above).view(-1, places)[: sizes[0], :batch].T
        torch.testing.assert_close(found.double(), of_inputs, rtol=1e-4, atol=1e-3)
