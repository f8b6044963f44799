#!/usr/bin/env python
"""Real updates for `experiment=neighbours/quantisers`: what the clients of a run send in a late round, as `.npy` files.

    python -m scripts.record_updates --out outputs/updates dataset=mnist model=lenet5 partition=dirichlet num_clients=10

The run is FedAvg with `compressor=dense` and six rounds; further arguments are fedcomp's own. `updates_10.npy` are the
vectors of the last round [n, D], `updates_1.npy` is the first of them; each is scaled to length 1.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedcomp.config import schema
from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.runtime.command import exit_status
from fedcomp.wire import Ledger, Link, Payload


def main() -> None:
    """Train, and write the last round's updates."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    parser.add_argument("overrides", nargs="*", help="fedcomp's arguments, such as dataset=mnist")
    options = parser.parse_args()
    sys.exit(exit_status(lambda: record(options.overrides, options.out)))


def record(overrides: Sequence[str], out: Path) -> None:
    """Train as these arguments of fedcomp say. Raises ValueError: they are wrong, or nobody took part in the end."""
    config = compose(["rounds=6", *overrides, "algorithm=fedavg", "compressor=dense"])
    schema.check(config)
    simulation, _ = build_simulation(config, torch.device("cpu"))
    sent: list[torch.Tensor] = []

    class Recorder(Link):
        def up(self, payload: Payload) -> Payload:
            sent.append(next(iter(payload.fields.values())).data.clone())
            return super().up(payload)

    simulation = replace(simulation, link=Recorder)
    state = simulation.init()
    for index in range(config.rounds):
        sent.clear()
        state, _ = simulation.round(index, state, Ledger())
    if not sent:
        raise ValueError("nobody took part in the last round, which has the updates: give participation=full")
    updates = max(sent, key=lambda rows: rows.shape[1])
    updates = (updates / updates.norm(dim=1, keepdim=True)).numpy()
    out.mkdir(parents=True, exist_ok=True)
    for num in {1, len(updates)}:
        np.save(out / f"updates_{num}.npy", updates[:num])
    print(f"{out}/updates_{len(updates)}.npy: {updates.shape[0]} updates of {updates.shape[1]} entries")


if __name__ == "__main__":
    main()
