"""What `make bench` times: the networks' sizes, the operations of a round, and both sides of a job run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from scripts.bench_jobs import CIFAR, JOBS, fedcomp_side, naive_side, simple_cnn
from scripts.ceilings import least_bytes, measure, operations

CPU = torch.device("cpu")


def test_pfl_research_network() -> None:
    assert sum(parameter.numel() for parameter in simple_cnn(CIFAR, 10).parameters()) == 1_626_442


def test_operations_and_bytes_of_a_perceptron() -> None:
    job = JOBS["J1"]
    samples = job.clients * job.batch * job.steps
    assert operations(job) == 3 * 2 * (64 * 32 + 32 * 10) * samples
    activations = 64 + 64 + 32 + 32 + 10  # input, Flatten, Linear, ReLU, Linear
    assert least_bytes(job) == 4 * (2 * activations * samples + 6 * 2410 * job.clients * job.steps)


def test_ceilings_are_rates() -> None:
    found = measure(CPU, "bf16")
    assert 1e8 < found.copy < 1e13
    assert 1e8 < found.product < 1e15


@pytest.mark.parametrize("side", [lambda job: fedcomp_side(job, CPU, "fp32"), lambda job: naive_side(job, CPU)])
def test_both_sides_run(side) -> None:
    run = side(replace(JOBS["J1"], clients=2, batch=3, steps=2, rounds=2))
    run()
    run()


def test_jobs_on_a_gpu_have_their_own_steps() -> None:
    job = JOBS["J3"]
    assert (job.on(CPU).steps, job.on(torch.device("cuda")).steps) == (1, 10)
    assert JOBS["J1"].on(torch.device("cuda")) == JOBS["J1"]
