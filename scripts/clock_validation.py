#!/usr/bin/env python
"""Is the clock of a network right? Real seconds of runs between processes behind slow links, beside `time/total`.

    python -m scripts.clock_validation

A server and five clients run on this machine over TCP. Every message carries the time at which a token bucket of its
client's link lets it through, and its receiver waits until then: max(now, the link is free) + bits / rate + half a
round trip. Clients wait out the seconds that their gradients cost. The links are those of the simulation's clock, with
`network.trailing=wait`, since a client reports at the end of a round.
"""

import argparse
import multiprocessing
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.config.instantiate import build
from fedcomp.network.links.contract import Links
from fedcomp.records.metrics_file import read_lines
from fedcomp.remote.client_end import ClientEnd, Hello
from fedcomp.remote.frames import Address
from fedcomp.remote.processes import follow
from fedcomp.remote.server_end import ServerEnd
from fedcomp.remote.simulation import OneRow, RemoteSimulation, ServerSimulation
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger

CLIENTS, ROUNDS, KEY, RUN = 5, 8, b"validation", "validation"
COMMON = (
    f"experiment=quickstart num_clients={CLIENTS} rounds={ROUNDS} eval_every={ROUNDS} chunk_size=1 threads=1 "
    "network=lognormal network.down_bps=4e5 network.up_bps=1e5 network.rtt_s=0.1 network.seconds_per_gradient=1e-3 "
    "network.spread_down=3 network.spread_up=3 network.trailing=wait pictures=false quiet=true"
).split()
METHODS = {
    "FedAvg": "",
    "top 3 %, error feedback": "compressor=topk compressor.feedback=error",
    "sign both ways, error feedback": (
        "compressor=sign compressor@downlink=sign compressor.feedback=error downlink.feedback=error"
    ),
    "PowerSGD, two exchanges": "algorithm=powersgd",
    "FedAvg, 16 bits both ways": "compressor.precision=float16 downlink.precision=float16",
}
STAMP = struct.Struct("<d")
context = multiprocessing.get_context("fork")


@dataclass
class Bucket:
    """One direction of a client's link: `rate` in bit/s, half a round trip in seconds, when it is free again."""

    rate: float
    half_trip: float
    free: float = 0.0

    def through(self, message: bytes) -> bytes:
        """The message with the time at which it arrives."""
        self.free = max(time.monotonic(), self.free) + 8 * len(message) / self.rate
        return STAMP.pack(self.free + self.half_trip) + message


def arrived(stamped: bytes) -> bytes:
    """The message, once it has arrived."""
    time.sleep(max(0.0, STAMP.unpack(stamped[: STAMP.size])[0] - time.monotonic()))
    return stamped[STAMP.size :]


class SlowServer(ServerEnd):
    """The server's end behind the links down."""

    buckets: list[Bucket]

    def send(self, client: int, message: bytes) -> None:
        super().send(client, self.buckets[client].through(message))

    def receive(self, client: int, most: int) -> bytes:
        return arrived(super().receive(client, most + STAMP.size))


class SlowClient(ClientEnd):
    """A client's end behind its link up."""

    bucket: Bucket

    def send(self, message: bytes) -> None:
        super().send(self.bucket.through(message))

    def receive(self, most: int) -> bytes:
        return arrived(super().receive(most + STAMP.size))


@dataclass(frozen=True, kw_only=True)
class SlowRow(OneRow):
    """Clients whose gradients take `work` seconds each."""

    ledger: Ledger
    work: float

    def map_clients(self, work: Any, cohort: Any, *rows: Any) -> Any:
        began, before = time.monotonic(), self.ledger.counters().get("gradients", 0)
        result = super().map_clients(work, cohort, *rows)
        gradients = self.ledger.counters().get("gradients", 0) - before
        time.sleep(max(0.0, began + self.work * gradients - time.monotonic()))
        return result


@dataclass(frozen=True, kw_only=True)
class SlowSimulation(RemoteSimulation):
    """A client's end with slow gradients."""

    work: float = 0.0

    def clients(self, key: Any, ledger: Ledger) -> Any:
        return SlowRow(**vars(super().clients(key, ledger)), ledger=ledger, work=self.work)


def client(number: int, address: Address, words: list[str], links: Links, folder: Path) -> None:
    """One client's process."""
    torch.set_num_threads(1)
    end = SlowClient(address, KEY, Hello(number, RUN))
    end.bucket = Bucket(links.up[number], links.rtt[number] / 2)
    simulation = SlowSimulation.of(simulation_of(words), end)
    object.__setattr__(simulation, "work", float(links.work[number]))
    follow(simulation, end, folder / f"{number}.pt", "validation")
    end.close()


def simulation_of(words: list[str]) -> Simulation:
    """The simulation of these options."""
    return build_simulation(compose(words), torch.device("cpu"))[0]


def measured(words: list[str], folder: Path) -> float:
    """Seconds of the rounds between processes."""
    links = build(compose(words).network).links(CLIENTS)
    first = simulation_of(words)
    for index in range(2):  # compiled and trusted before the clock starts
        first.round(index, first.init(), Ledger())
    end = SlowServer(Address("127.0.0.1", 0), KEY)
    end.buckets = [Bucket(rate, trip / 2) for rate, trip in zip(links.down, links.rtt)]
    processes = [
        context.Process(target=client, args=(number, end.address, words, links, folder)) for number in range(CLIENTS)
    ]
    for process in processes:
        process.start()
    end.gather(CLIENTS, RUN)
    simulation = ServerSimulation.of(first, end)
    state, ledger = simulation.init(), Ledger()
    began = time.monotonic()
    for index in range(ROUNDS):
        state, _ = simulation.round(index, state, ledger)
    seconds = time.monotonic() - began
    end.close(end=True)
    for process in processes:
        process.join(20)
    return seconds


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print("| method | `time/total` | real | a round more |")
    print("| --- | ---: | ---: | ---: |")
    for label, options in METHODS.items():
        words = [*COMMON, *options.split()]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "fedcomp", *words, f"output_root={folder}"], check=True)
            (record,) = Path(folder).rglob("metrics.jsonl")
            computed = float(read_lines(record)[-1]["time/total"])
            real = measured(words, Path(folder))
        print(f"| {label} | {computed:.2f} s | {real:.2f} s | {(real - computed) / ROUNDS:.3f} s |", flush=True)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()
