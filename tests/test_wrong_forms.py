"""Each accelerated form, replaced by one that computes something else: it is refused, and the run's numbers stay.

On a CPU, where a captured graph, a kernel or a side stream is stood in for. The forms of convolutions are tested with
their plan, draws with the keys.
"""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.bicompfl.bicompfl_gr import BiCompFLGR
from fedcomp.compressor.mrc import coder, cpu
from fedcomp.core.accelerated import Verdicts, judged_by
from fedcomp.core.pytree import flatten
from fedcomp.model.batched import functional
from fedcomp.model.batched.backward.compiled_network import CompiledNetwork
from fedcomp.model.contract import Batch, SgdSteps
from fedcomp.simulation import async_metrics
from fedcomp.simulation.async_metrics import MetricsReader, SideStreamReader
from fedcomp.simulation.cuda_graphs.capture import Capture
from fedcomp.simulation.cuda_graphs.graphed_loop import GraphedLoops
from fedcomp.simulation.fused_loop import FusedLoops
from tests.conformance import world
from tests.parts import Adam, Compressor, Dense, FedAvg, ServerSgd, Sgd
from tests.simulation.clocked_streams import Streams
from tests.simulation.user_module import Residual

SGD = Sgd(lr=0.1, batch_size=3, epochs=2)
FEDAVG = FedAvg(SGD, ServerSgd(), Compressor(Dense()), Compressor(Dense()))


def _state(runner, algorithm=FEDAVG, module=world.mlp, change: Callable[[object], None] | None = None):
    simulation = world.simulation(algorithm, module, rounds=4, participation=world.FULL)
    if change is not None:
        change(simulation.model)
    return flatten(world.run(replace(simulation, loop_runner=runner)))


def _same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def _refusals(caplog) -> list[str]:
    return [record.message for record in caplog.records if record.levelname == "WARNING" and record.note]


class Replays:
    """A capture whose replays do what `wrong` says. Implements `Capture`."""

    def __init__(self, wrong: str) -> None:
        self.wrong, self.recorded = wrong, 0

    def capture(self, work, changed):
        self.recorded += 1

        def replay() -> None:
            if self.wrong != "nothing":
                work()
            if self.wrong == "off by a bit":
                changed[0].view(torch.int32)[0, 0] ^= 1

        return replay


@pytest.mark.parametrize("wrong", ["nothing", "off by a bit", "right"])
def test_replays(caplog, wrong) -> None:
    """The first replay of each segment is made beside an eager run, from the same start."""
    capture = Replays(wrong)
    assert _same(_state(GraphedLoops(capture)), _state(GraphedLoops(Capture())))
    if wrong == "right":
        assert _refusals(caplog) == []
        return
    assert capture.recorded == 1  # the next segments are not recorded any more
    (line,) = _refusals(caplog)
    assert line.startswith("CUDA graphs are not used, but the same steps one by one instead: other results")


class Fused:
    """What trains clients in one call, as a model's `fused_sgd` gives it: by gradients of the model, or wrongly."""

    def __init__(self, model, wrong: str) -> None:
        self.model, self.wrong, self.calls = model, wrong, 0

    def __call__(self, x: Tensor, y: Tensor):
        def train(steps: SgdSteps):
            self.calls += 1
            theta, normalisation = steps.theta, steps.normalisation
            after, loss = theta.clone(), torch.zeros(len(theta))
            if self.wrong == "nothing":
                return after, loss
            for step, chosen in enumerate(steps.sample_indices):
                real = torch.from_numpy(steps.counts.of_steps[step])
                weight = (torch.arange(chosen.shape[1]) < real[:, None]).float()
                inputs = normalisation[0] + normalisation[1] * x[chosen].float()
                found = self.model.gradient(after, Batch(inputs, y[chosen], weight, theta[:, :0]))
                grad = found.grad.clone()
                if self.wrong == "one client's weights":
                    grad[0, 3] = 0
                after -= torch.where(real[:, None] > 0, steps.rate * (grad + steps.decay * after), 0.0)
                loss += torch.where(real > 0, found.loss, 0.0)
            return after, loss

        return train


@pytest.mark.parametrize("wrong", ["nothing", "one client's weights", "right"])
def test_local_steps_in_one_call(caplog, wrong) -> None:
    made: list[Fused] = []

    def change(model) -> None:
        made.append(Fused(model, wrong))
        model.fused_sgd = made[-1]

    found, plain = _state(FusedLoops(), change=change), _state(None)
    if wrong == "right":
        assert made[0].calls > 4
        assert all(torch.allclose(found[name], plain[name], atol=1e-6) for name in plain)
        assert _refusals(caplog) == []
        return
    assert made[0].calls == 2  # the round, whose result is dropped, and the trial
    assert _same(found, plain)
    assert _refusals(caplog)[0].startswith("local steps in one call are not used, but steps one by one instead: other")


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "NO AVX"), reason="the tensor code is used on this processor"
)
@pytest.mark.parametrize("wrong", ["gradient", "outputs"])
def test_networks_that_numba_compiles(monkeypatch, caplog, wrong) -> None:
    """Kernels that leave what they should write as it is, which is zero."""
    from fedcomp.model.batched.compiled import network_numba

    simulation = world.simulation(FEDAVG, world.mlp, rounds=4, participation=world.FULL)
    assert isinstance(simulation.model, CompiledNetwork)

    def numbers() -> dict[str, Tensor]:
        state = simulation.init() if wrong == "outputs" else world.run(simulation)
        return flatten(state) | dict(simulation.test_metrics(4, state))

    with judged_by(Verdicts(safe=True)):
        plain = numbers()

    def nothing(*given) -> bool:
        for out in given[-2:] if wrong == "gradient" else given[-1:]:
            out[:] = 0
        return True

    monkeypatch.setattr(network_numba, wrong, nothing)
    assert _same(numbers(), plain)
    (line,) = _refusals(caplog)
    assert line.startswith("compiled networks are not used, but tensor operations instead: other results")


@pytest.mark.parametrize("wrong", ["zeros", "the last client's", "right"])
def test_clients_of_any_network_all_at_once(monkeypatch, caplog, wrong) -> None:
    real = functional.vmap

    def vmap(function, **options):
        def call(*rows):
            grad, rest = real(function, **options)(*rows)
            if wrong == "right":
                return grad, rest
            return (torch.zeros_like(grad) if wrong == "zeros" else grad.roll(1, 0)), rest

        return call

    with judged_by(Verdicts(safe=True)):
        plain = _state(None, module=Residual)
    monkeypatch.setattr(functional, "vmap", vmap)
    found = _state(None, module=Residual)
    if wrong == "right":
        assert all(torch.allclose(found[name], plain[name], atol=1e-6) for name in plain)
    else:
        assert _same(found, plain)
    lines = ["clients of a network all at once are not used, but one after another instead"] * (wrong != "right")
    assert [line.split(":")[0] for line in _refusals(caplog)] == lines


@pytest.mark.parametrize("wrong", ["encode", "decode", "raises"])
def test_kernels_of_minimal_random_coding(monkeypatch, caplog, wrong) -> None:
    """As a Triton that returns zeros, or that does nothing, or whose compiler fails."""
    algorithm = BiCompFLGR(client=Adam(lr=0.1, batch_size=4), block=16)
    with judged_by(Verdicts(safe=True)):
        plain = _state(None, algorithm)
    called: list[str] = []

    def encode(*given):
        called.append("encode")
        if wrong == "raises":
            raise RuntimeError("PTXAS error: Internal Triton PTX codegen error")
        return cpu.encode(*given) * (wrong != "encode")

    def decode(*given) -> None:
        called.append("decode")
        if wrong != "decode":
            cpu.decode(*given)

    monkeypatch.setattr(coder, "kernels_on", lambda device: SimpleNamespace(encode=encode, decode=decode))
    assert _same(_state(None, algorithm), plain)
    assert len(_refusals(caplog)) == 1
    assert _refusals(caplog)[0].startswith("kernels of minimal random coding are not used, but tensor operations")
    assert called.count("decode" if wrong == "decode" else "encode") == 1


@pytest.mark.parametrize("wrong", [True, False])
def test_evaluations_on_a_side_stream(monkeypatch, caplog, wrong) -> None:
    streams = Streams()
    streams.install(monkeypatch)
    monkeypatch.setattr(async_metrics, "_pinned", lambda shape: torch.empty(shape, dtype=torch.int64))
    real, aside = SideStreamReader._launch, []

    def launch(self, work):
        result = real(self, work)
        aside.append(result)
        if wrong:
            result.copied.synchronize()
            result.host[0] ^= 1
        return result

    monkeypatch.setattr(SideStreamReader, "_launch", launch)
    values = np.array([0.1, 0.2, 0.3])
    with streams:
        reader = SideStreamReader(torch.device("cpu"))
        for value in values:
            work = lambda value=value: ({"loss": torch.tensor(value)}, {"num": 3})  # noqa: E731
            assert reader.read(work)() == MetricsReader().read(work)()
    assert len(aside) == (1 if wrong else 3)
    lines = ["evaluations on a side stream are not used, but those on the main stream instead"] * wrong
    assert [line.split(":")[0] for line in _refusals(caplog)] == lines
