#!/usr/bin/env python
"""`make bench`: a round of FedAvg on adapters of a Llama, relative to a plain loop over clients with PEFT.

Both sides train the same clients, LoRA of rank 4 on all linear layers, with the same sizes of batches, steps and Adam,
each in its own process, in turn; a ratio is the median over turns. The plain loop has torch's defaults and Hugging
Face's modules: for each client it copies the adapter in, makes an optimiser, trains, and adds the adapter up. MiB are
peaks of the process.
"""

import argparse
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.client.adam import Adam
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.model.build import build
from fedcomp.model.chunking import chunk_size
from fedcomp.model.hf.hf import network
from fedcomp.participation.full import Full
from fedcomp.random.keys import Key
from fedcomp.runtime.cores import num_cores
from fedcomp.runtime.process_settings import keep_freed_memory
from fedcomp.runtime.workers import Workers
from fedcomp.server.sgd import Sgd as ServerSgd
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger, Link
from scripts.arguments import one_of, positive
from scripts.turns import in_turn

SIDES = ("PEFT", "fedcomp")
CLIENTS, LENGTH, VOCAB, RANK, ALPHA, LR = 10, 128, 259, 4, 8, 1e-3
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass(frozen=True)
class Job:
    """One comparison.

    Attributes:
        what: shown. width, inner, layers: of the Llama. batch, steps: of a client's round.
        goal: the ratio that the project wants at least.
    """

    what: str
    width: int
    inner: int
    layers: int
    batch: int
    steps: int
    goal: float

    @property
    def config(self) -> dict[str, object]:
        """The network's, as transformers has it."""
        sizes = {"hidden_size": self.width, "intermediate_size": self.inner, "num_hidden_layers": self.layers}
        tokens = {"vocab_size": VOCAB, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
        heads = {"num_attention_heads": self.width // 32, "max_position_embeddings": LENGTH}
        return {"model_type": "llama", **sizes, **tokens, **heads}

    def data(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and those after them, [n, L] each, for all clients."""
        tokens = torch.randint(3, VOCAB, (CLIENTS * self.batch * self.steps, LENGTH + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


JOBS = {
    "1M": Job("Llama of 1.1 million", 128, 512, 4, 4, 2, 1.2),
    "10M": Job("Llama of 10.8 million", 384, 1024, 6, 2, 1, 1.0),
}


def peft_side(job: Job) -> Callable[[], object]:
    """A function that runs a round as most people would write it."""
    import peft
    from transformers import AutoConfig, AutoModelForCausalLM

    base = AutoModelForCausalLM.from_config(AutoConfig.for_model(**job.config))
    lora = peft.LoraConfig(task_type="CAUSAL_LM", r=RANK, lora_alpha=ALPHA, target_modules=TARGETS)
    model = peft.get_peft_model(base, lora).train()
    x, y = job.data()
    clients = [TensorDataset(*own) for own in zip(x.split(job.batch * job.steps), y.split(job.batch * job.steps))]

    def run() -> dict[str, torch.Tensor]:
        start = {name: one.clone() for name, one in peft.get_peft_model_state_dict(model).items()}
        total: dict[str, torch.Tensor] = {}
        for own in clients:
            peft.set_peft_model_state_dict(model, start)
            optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr=LR)
            for tokens, targets in DataLoader(own, batch_size=job.batch, shuffle=True):
                optimizer.zero_grad()
                logits = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False).logits
                torch.nn.functional.cross_entropy(logits.mT, targets).backward()
                optimizer.step()
            for name, one in peft.get_peft_model_state_dict(model).items():
                total[name] = total.get(name, 0) + one.detach() / CLIENTS
        peft.set_peft_model_state_dict(model, total)
        return total

    return run


def fedcomp_side(job: Job, at_once: int | None) -> Callable[[], object]:
    """A function that runs complete rounds; `at_once`: clients in a batch, None: as a run has it."""
    keep_freed_memory()
    torch.set_num_threads(1)  # as a run does: threads share the clients
    key, cpu = Key(("bench",)), torch.device("cpu")

    def factory(input_shape, num_outputs, task, target_shape, vocab_size):
        options = {"initial": "random", "config": job.config, "rank": RANK, "alpha": ALPHA, "targets": TARGETS}
        return network(input_shape, num_outputs, task, target_shape, vocab_size, **options)

    x, y = job.data()
    model = build(factory, key, (LENGTH,), VOCAB, "next_token", target_shape=(LENGTH,), vocab_size=VOCAB)
    simulation = Simulation(
        algorithm=FedAvg(
            Adam(lr=LR, batch_size=job.batch, steps=job.steps), ServerSgd(), Compressor(Dense()), Compressor(Dense())
        ),
        dataset=Dataset("bench", Samples(x, y), Samples(x[:1], y[:1]), "next_token", VOCAB, vocab_size=VOCAB),
        shards=ClientShards.of(list(torch.arange(len(y)).split(job.batch * job.steps)), cpu),
        model=model,
        participation=Full(),
        key=key,
        rounds=1,
        chunk_size=at_once or chunk_size(model, cpu, (LENGTH,), job.batch, torch.int64),
        link=Link,
        workers=Workers(num_cores()),
    )
    state, ledger, index = simulation.init(), Ledger(), 0

    def run() -> object:
        nonlocal state, index
        state, _ = simulation.round(index, state, ledger)
        index += 1
        return state

    return run


def serve(job: Job, side: str, at_once: int | None) -> None:
    """Time a round for every line on standard input; at its end print peak MiB."""
    run = peft_side(job) if side == "PEFT" else fedcomp_side(job, at_once)
    for _ in sys.stdin:
        began = time.perf_counter()
        run()
        print(time.perf_counter() - began, flush=True)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def compare(name: str, repeats: int, at_once: int | None) -> str:
    """One row of the table."""
    options = ["--at-once", str(at_once)] if at_once else []
    commands = {side: [sys.executable, __file__, "--serve", name, side, *options] for side in SIDES}
    (theirs, (their_peak,)), (own, (own_peak,)) = in_turn(commands, repeats).values()
    ratio = statistics.median(slow / fast for slow, fast in zip(theirs, own))
    plain, ours = statistics.median(theirs), statistics.median(own)
    job = JOBS[name]
    what = f"{job.what}, {CLIENTS} clients, batch {job.batch} x {LENGTH}, {job.steps} steps"
    return (
        f"{what:60s} {1e3 * plain:8.0f} {1e3 * ours:8.0f} {ratio:6.2f} {job.goal:5} {their_peak:9.0f} {own_peak:9.0f}"
    )


def main() -> None:
    """Print the table, or serve one side of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", type=one_of(JOBS), default=list(JOBS), help=f"of {' '.join(JOBS)}")
    parser.add_argument("--repeats", type=positive, default=5, help="rounds of each side that count")
    parser.add_argument("--at-once", type=positive, help="clients of fedcomp's that go through the network at once")
    parser.add_argument("--serve", nargs=2, metavar=("JOB", "SIDE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(JOBS[given.serve[0]], given.serve[1], given.at_once)
        return
    missing = [name for name in ("transformers", "peft") if find_spec(name) is None]
    if missing:
        print(f"adapters beside a PEFT loop: not timed, no {' and '.join(missing)}: pip install 'fedcomp[hf]' peft")
        return
    print(f"adapters, {num_cores()} cores, load {os.getloadavg()[0]:.1f}, medians of {given.repeats} turns")
    print(f"{'a round of':60s} {'PEFT ms':>8} {'ours ms':>8} {'ratio':>6} {'goal':>5} {'PEFT MiB':>9} {'ours MiB':>9}")
    for name in given.jobs:
        print(compare(name, given.repeats, given.at_once), flush=True)


if __name__ == "__main__":
    main()
