"""What `make bench` times: sizes of networks, operations of a round; all sides of a job run, and rivals are honest."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.simulation import fused_loop
from fedcomp.simulation.autotune import conv_autotune as plan
from fedcomp.simulation.cuda_graphs.capture import Capture, Work
from fedcomp.simulation.simulation import Simulation
from scripts.bench_jobs import CIFAR, JOBS, fedcomp_side, lean_side, naive_side, simple_cnn
from scripts.ceilings import least_bytes, measure, operations
from scripts.lean_loop import lean_rounds
from scripts.naive_loop import naive_round
from tests.looped import looped
from tests.simulation.fake_gpu import GPU, fake_gpu
from tests.thorough import thorough

CPU = torch.device("cpu")


def test_pfl_research_network() -> None:
    assert sum(parameter.numel() for parameter in simple_cnn(CIFAR, 10).parameters()) == 1_626_442


def test_operations_and_bytes_of_a_perceptron() -> None:
    job = JOBS["J1"]
    samples = job.clients * job.batch * job.steps
    assert operations(job) == 3 * 2 * (64 * 32 + 32 * 10) * samples
    activations = 64 + 64 + 32 + 32 + 10  # input, Flatten, Linear, ReLU, Linear
    assert least_bytes(job) == 4 * (2 * activations * samples + 6 * 2410 * job.clients * job.steps)


def test_ceilings_are_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.ceilings.SIDE", 64)  # of bfloat16, a processor without it multiplies 1,024 in 3 s
    found = measure(CPU, "bf16")
    assert 1e8 < found.copy < 1e13
    assert 1e8 < found.product < 1e15


@looped("side", [partial(fedcomp_side, precision="fp32"), naive_side, lean_side])
def test_all_sides_train_the_same_network(side) -> None:
    run = side(replace(JOBS["J1"], clients=2, batch=3, steps=2, rounds=2), device=CPU)
    first, second = (torch.cat([part.detach().flatten().clone() for part in run()]) for _ in range(2))
    assert first.shape == (64 * 32 + 32 + 32 * 10 + 10,)
    assert first.isfinite().all()
    assert second.isfinite().all()
    moved = (second - first).abs()
    assert 0 < moved.max() < 1
    assert (moved > 0).float().mean() > 0.5


@pytest.mark.parametrize("name", ["J1", *thorough(name for name in JOBS if name != "J1")])
def test_our_side_runs_on_a_gpu_as_far_as_it_can_without_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On fake tensors of a GPU: convolutions are measured, loops are recorded, and two rounds leave a model there."""
    measured, recorded = [], []

    class Recording(Capture):
        def capture(self, work: Work, changed: Sequence[Tensor]) -> Work:
            recorded.append(work)
            return super().capture(work, changed)

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 37, 1 << 37))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(Simulation, "expected_cohort", 2.0)  # the host's work, on numbers that are real
    monkeypatch.setattr(plan, "seconds_of", lambda work, device: measured.append(work) or work() or 1.0)
    monkeypatch.setattr(plan, "cached_timings", lambda question, measure, ignore_cache: measure())
    for module in (fused_loop, plan):
        monkeypatch.setattr(module, "CudaGraphs", lambda *_: Recording())
    job = replace(JOBS[name].on(GPU), clients=2, batch=3, steps=2, rounds=1)
    with fake_gpu():
        run = fedcomp_side(job, GPU, "fp32")
        run()
        (theta,) = run()
    assert theta.is_cuda
    assert theta.shape == (sum(part.numel() for part in job.factory(job.shape, 10).parameters()),)
    assert bool(measured) is (len(job.shape) == 3)
    assert recorded


def test_jobs_on_a_gpu_have_their_own_steps() -> None:
    job = JOBS["J3"]
    assert (job.on(CPU).steps, job.on(torch.device("cuda")).steps) == (1, 10)
    assert JOBS["J1"].on(torch.device("cuda")) == JOBS["J1"]


def _clients():
    """Six samples of each of three clients."""
    generator, three = torch.Generator().manual_seed(0), range(3)
    return [(torch.randn(6, 4, generator=generator), torch.randint(0, 3, (6,), generator=generator)) for _ in three]


def test_naive_round_is_the_mean_of_plain_descents():
    module, clients = nn.Sequential(nn.Linear(4, 3)), _clients()
    before = nn.utils.parameters_to_vector(module.parameters()).clone()
    got = naive_round(module, clients, batch_size=6, steps=2, lr=0.1)
    expected = []
    for x, y in clients:
        weight, bias = (value.detach().clone().requires_grad_() for value in module.parameters())
        for _ in range(2):
            grads = torch.autograd.grad(functional.cross_entropy(x @ weight.t() + bias, y), (weight, bias))
            weight, bias = ((v - 0.1 * g).detach().requires_grad_() for v, g in zip((weight, bias), grads))
        expected.append(weight.detach())
    torch.testing.assert_close(got["0.weight"], torch.stack(expected).mean(0))
    assert torch.equal(nn.utils.parameters_to_vector(module.parameters()), before)


def test_lean_rounds_are_naive_ones():
    clients = _clients()
    naive = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    lean = copy.deepcopy(naive)
    run = lean_rounds(lean, clients, batch_size=6, steps=2, lr=0.1)
    for _ in range(2):
        naive.load_state_dict(naive_round(naive, clients, batch_size=6, steps=2, lr=0.1))
        run()
    for name, value in naive.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(lean.state_dict()[name], value, msg=name)
