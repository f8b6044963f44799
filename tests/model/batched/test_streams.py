"""Convolutions on forked streams: the numbers of those one after another, and nothing that a GPU would not order."""

import pytest
import torch
from torch import nn

from fedcomp.model.batched import convolution
from fedcomp.model.batched.stacked import Stacked
from fedcomp.model.batched.streamed import MAX_STREAMS, can_fork, map_on_streams, side_streams
from fedcomp.model.contract import Batch
from fedcomp.model.loss import cross_entropy
from tests.simulation import clocked_streams
from tests.simulation.clocked_streams import Race, Streams

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")

CPU = torch.device("cpu")
CONVOLUTIONS = {
    "plain": lambda: (nn.Conv2d(2, 3, 3), nn.Conv2d(3, 4, 3, padding=1)),
    "strided, dilated, padded": lambda: (nn.Conv2d(2, 3, (3, 2), (2, 1), (1, 2), (1, 2)), nn.Conv2d(3, 4, 2)),
    "same, even kernel": lambda: (nn.Conv2d(2, 3, (2, 4), padding="same", bias=False), nn.Conv2d(3, 4, 1)),
    "groups, one channel": lambda: (nn.Conv2d(2, 4, 3, groups=2), nn.Conv2d(4, 1, 3)),
}


@pytest.fixture
def clock(monkeypatch) -> Streams:
    """A CPU with streams."""
    found = Streams()
    found.install(monkeypatch)
    monkeypatch.setattr(convolution, "can_fork", lambda device: True)
    side_streams.cache_clear()
    yield found
    side_streams.cache_clear()


def _model(name: str, precision: str = "fp32") -> Stacked:
    first, second = CONVOLUTIONS[name]()
    with torch.no_grad():
        size = nn.Sequential(first, second)(torch.zeros(1, 2, 8, 7)).numel()
    network = nn.Sequential(first, nn.ReLU(), second, nn.Tanh(), nn.Flatten(), nn.Linear(size, 3))
    return Stacked(network, cross_entropy, precision=precision)


def _gradient(model: Stacked, form: str, num_clients: int, dtype: torch.dtype = torch.float64):
    model.set_conv_algorithms([form] * 2)
    generator = torch.Generator().manual_seed(num_clients)
    theta = torch.randn(num_clients, model.dim, generator=generator, dtype=dtype) / 4
    x = torch.randn(num_clients, 5, 2, 8, 7, generator=generator, dtype=dtype)
    y = torch.arange(5).expand(num_clients, 5) % 3
    return model.gradient(theta, Batch(x, y, None, torch.zeros(num_clients, 0, dtype=dtype)))


@pytest.mark.parametrize("num_clients", [2, 3, 10])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_streamed_is_looped(clock, name, num_clients) -> None:
    model = _model(name)
    looped = _gradient(model, "looped", num_clients)
    with clock:
        streamed = _gradient(model, "streamed", num_clients)
    assert torch.equal(streamed.loss, looped.loss)
    assert torch.allclose(streamed.grad, looped.grad, rtol=1e-13, atol=1e-15)
    grouped = _gradient(model, "grouped", num_clients)
    assert torch.allclose(streamed.grad, grouped.grad, rtol=1e-10, atol=1e-12)


def test_streamed_in_bfloat16_is_looped(clock) -> None:
    model = _model("plain", "bf16")
    looped, streamed = (_gradient(model, form, 3, torch.float32) for form in ("looped", "streamed"))
    assert streamed.grad.dtype == torch.float32
    assert torch.allclose(streamed.grad, looped.grad, rtol=1e-2, atol=1e-3)


def test_forks_and_joins_in_order(clock) -> None:
    """Two convolutions there and back: each forks as many streams as it has clients, and gets all of them back."""
    with clock:
        _gradient(_model("plain"), "streamed", 3)
    sides = [side.name for side in side_streams(CPU)]
    assert len(sides) == MAX_STREAMS
    once = [f"{side} waits for main" for side in sides[:3]] + [f"main waits for {side}" for side in sides[:3]]
    assert clock.log == once * 4
    clock.log.clear()
    with clock:
        _gradient(_model("plain"), "streamed", 11)
    every = [f"{side} waits for main" for side in sides] + [f"main waits for {side}" for side in sides]
    assert clock.log == every * 4


@pytest.mark.parametrize("fault", ["fork", "join"])
def test_the_clock_finds_a_missing_wait(clock, monkeypatch, fault) -> None:
    plain = clocked_streams.Stream.wait_stream

    def wait(self, other) -> None:
        if (self.name == "main") != (fault == "join"):
            plain(self, other)

    monkeypatch.setattr(clocked_streams.Stream, "wait_stream", wait)
    with pytest.raises(Race), clock:
        _gradient(_model("plain"), "streamed", 3)


def test_pieces_take_turns_and_come_back_in_order(clock) -> None:
    def where(piece: int) -> tuple[int, str]:
        return piece, torch.cuda.current_stream().name

    sides = [side.name for side in side_streams(CPU)]
    assert map_on_streams(where, range(19), CPU) == [(piece, sides[piece % MAX_STREAMS]) for piece in range(19)]
    assert torch.cuda.current_stream().name == "main"


def test_all_streams_come_back_from_a_piece_that_fails(clock) -> None:
    """Else a CUDA graph could not even end its capture, and the reason would be lost."""

    def fails(piece: int) -> None:
        if piece == 1:
            raise RuntimeError("no such convolution")

    with pytest.raises(RuntimeError, match="no such convolution"):
        map_on_streams(fails, range(3), CPU)
    wanted = [f"main waits for {side.name}" for side in side_streams(CPU)[:3]]
    assert [line for line in clock.log if line.startswith("main waits")] == wanted
    assert torch.cuda.current_stream().name == "main"


def test_a_cpu_has_no_streams() -> None:
    model = _model("plain")
    assert not can_fork(CPU)
    assert torch.equal(_gradient(model, "streamed", 3).grad, _gradient(model, "looped", 3).grad)


@pytest.mark.gpu
def test_on_a_gpu_in_eager_mode_and_in_a_graph() -> None:
    from fedcomp.simulation.cuda_graphs.capture import CudaGraphs

    device = torch.device("cuda")
    model = _model("plain")
    theta = torch.randn(10, model.dim, device=device, dtype=torch.float64) / 4
    x = torch.randn(10, 5, 2, 8, 7, device=device, dtype=torch.float64)
    y, stats = (torch.arange(5, device=device) % 3).expand(10, 5).contiguous(), theta.new_zeros(10, 0)
    found = {}
    for form in ("looped", "streamed"):
        model.set_conv_algorithms([form] * 2)
        found[form] = model.gradient(theta, Batch(x, y, None, stats)).grad
    assert torch.allclose(found["looped"], found["streamed"], rtol=1e-10, atol=1e-12)
    moving = theta.clone()

    def work() -> None:
        for _ in range(5):
            moving.sub_(0.1 * model.gradient(moving, Batch(x, y, None, stats)).grad)

    capture = CudaGraphs(device)
    repeat = capture.capture(work, [moving])
    repeat()
    graphed = moving.clone()
    moving.copy_(theta)
    work()
    assert not capture._refused
    assert torch.allclose(moving, graphed, rtol=1e-10, atol=1e-12)  # cuDNN's sums need not come in one order
