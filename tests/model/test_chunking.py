"""Clients at once: sizes that fit, and the same gradients from threads over chunks."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from fedcomp.model.batched.functional import Functional
from fedcomp.model.build import build
from fedcomp.model.chunking import CACHE_BYTES, chunk_size, client_bytes, num_activations
from fedcomp.model.contract import Batch
from fedcomp.model.networks.cnn import lenet5
from fedcomp.model.networks.mlp import mlp
from fedcomp.random.keys import Key
from fedcomp.runtime.process_settings import keep_freed_memory
from tests.model.plain_modules import assert_close, batch, rows

CPU = torch.device("cpu")
KEY = Key(("chunking",))


def test_activations_are_those_of_one_sample():
    model = build(mlp, KEY, (64,), 10, "classification")
    assert num_activations(model, (64,)) == 64 + 64 + 32 + 32 + 10  # input, Flatten, Linear, ReLU, Linear
    assert client_bytes(model, (64,), 10) == 4 * (6 * 2_410 + 3 * 10 * 202)


def test_chunk_size_on_a_cpu():
    lenet = build(lenet5, KEY, (1, 28, 28), 10, "classification")
    assert chunk_size(lenet, CPU, (1, 28, 28), 64) == 1
    perceptron = build(mlp, KEY, (64,), 10, "classification")
    size = chunk_size(perceptron, CPU, (64,), 10)
    assert size == CACHE_BYTES // (4 * (2_410 + 2_020))
    assert chunk_size(perceptron, CPU, (64,), 10**9) == 1


@pytest.mark.parametrize("kind", [None, Functional])
def test_threads_over_chunks_give_the_same_gradients(kind):
    model = build(lenet5, KEY, (1, 28, 28), 10, "classification")
    if kind is not None:
        model = kind(model.module, model.loss)
    generator = torch.Generator().manual_seed(5)
    theta, stats = rows(model, 6, generator)
    x, y = batch(6, 2, (1, 28, 28), 10, "classification", generator)

    def one(client: int) -> torch.Tensor:
        at = slice(client, client + 1)
        return model.gradient(theta[at], Batch(x[at], y[at], None, stats[at])).grad

    with ThreadPoolExecutor(2, initializer=lambda: torch.set_num_threads(1)) as pool:
        threaded = torch.cat(list(pool.map(one, range(6))))
    assert_close(threaded, torch.cat([one(client) for client in range(6)]))


def test_allocator_answers():
    assert isinstance(keep_freed_memory(), bool)
