"""What a round keeps for the backward pass, with and without checkpointing, held against a process's memory."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("transformers", reason="pip install 'fedcomp[hf]'")

MEASURED = """
import ctypes, json, sys
from pathlib import Path

import torch

from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.client.sgd import Sgd
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.model.build import build
from fedcomp.model.chunking import client_bytes, num_activations
from fedcomp.model.hf.hf import network
from fedcomp.participation.full import Full
from fedcomp.random.keys import Key
from fedcomp.runtime.process_settings import keep_freed_memory
from fedcomp.server.sgd import Sgd as ServerSgd
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger, Link

L, V, CLIENTS, BATCH, CPU, KEY = 128, 259, 2, 4, torch.device("cpu"), Key(("test",))
LLAMA = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4}
SIZES = LLAMA | {"num_attention_heads": 4, "max_position_embeddings": L, "pad_token_id": 0}
torch.set_num_threads(1)
tokens = torch.randint(3, V, (CLIENTS * BATCH, L + 1), generator=torch.Generator().manual_seed(0))
data = Samples(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())


def mib(field):
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field)]
    return int(line.split()[1]) / 1024


def made(checkpointing):
    def factory(input_shape, num_outputs, task, target_shape, vocab_size):
        options = {"initial": "random", "config": SIZES, "rank": 4, "checkpointing": checkpointing}
        return network(input_shape, num_outputs, task, target_shape, vocab_size, **options)

    model = build(factory, KEY, (L,), V, "next_token", target_shape=(L,), vocab_size=V)
    dense = Compressor(Dense())
    return Simulation(
        algorithm=FedAvg(Sgd(lr=0.1, batch_size=BATCH, steps=1), ServerSgd(), dense, dense),
        dataset=Dataset("test", data, data, "next_token", V, vocab_size=V),
        shards=ClientShards.of(list(torch.arange(CLIENTS * BATCH).split(BATCH)), CPU),
        model=model, participation=Full(), key=KEY, rounds=2, chunk_size=CLIENTS, link=Link,
    )  # fmt: skip


def peak(simulation, index):
    state = simulation.init()
    before, _ = mib("VmRSS"), Path("/proc/self/clear_refs").write_text("5")
    simulation.attempt(index, state, simulation.cohort(index), Ledger())
    return mib("VmHWM") - before


found = {}
for checkpointing in (False, True):
    simulation = made(checkpointing)
    model = simulation.model
    peak(simulation, 0)  # loads code, and forms prove themselves
    found[str(checkpointing)] = {
        "trained and frozen": sum(one.numel() for one in model.module.parameters()),
        "activations": CLIENTS * BATCH * 4 * num_activations(model, (L,), torch.int64) / 2**20,
        "estimate": CLIENTS * client_bytes(model, (L,), BATCH, torch.int64) / 2**20,
        "measured": peak(simulation, 1),
    }
keep_freed_memory()  # as in a run
found["True"]["in a run"] = peak(simulation, 1)
print(json.dumps(found))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_activations_are_what_a_round_takes() -> None:
    """Of a Llama of 2.8 million parameters and two clients at once.

    glibc is told to give every freed tensor back, so that resident memory is that of tensors. What is no output of a
    part (sums with the residual, rotated halves, products of SwiGLU, gradients on their way) comes to 30 % beside those
    that are counted, hence 1 to 1.6 times (measured 1.31 and 1.39); the layer that is computed again forgotten it would
    be 2.8, with the layers counted that are not kept .5. A run keeps glibc's heap, which layers that are computed again
    cut up: the estimate covers that too (.83 and .95 of it were measured).
    """
    given = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    shown = subprocess.run([sys.executable, "-c", MEASURED], env=given, check=True, capture_output=True, text=True)
    plain, checkpointed = json.loads(shown.stdout.splitlines()[-1]).values()
    for one in (plain, checkpointed):
        assert one["trained and frozen"] > 2.5e6
        assert 1 < one["measured"] / one["activations"] < 1.6, (plain, checkpointed)
        assert one["measured"] < one["estimate"] < plain["estimate"] + 1
    assert checkpointed["measured"] < 0.5 * plain["measured"]
    assert 0.4 < checkpointed["in a run"] / checkpointed["estimate"] < 1.2, checkpointed
