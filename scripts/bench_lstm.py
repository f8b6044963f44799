#!/usr/bin/env python
"""Milliseconds of a gradient of M clients of the networks of characters, all at once and one client after another.

Both as they run in training on this device: on a GPU as a replayed CUDA graph, beside the same calls without one.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedcomp.model.batched.functional import Functional
from fedcomp.model.build import build
from fedcomp.model.contract import Batch
from fedcomp.model.networks.characters import char_lstm
from fedcomp.random.keys import Key
from fedcomp.runtime.process_settings import set_determinism
from fedcomp.simulation.autotune.timing_cache import seconds_of
from fedcomp.simulation.cuda_graphs.capture import CudaGraphs
from scripts.arguments import device_here, positive
from scripts.figures import keep

KEY, LENGTH, VOCAB = Key(("bench",)), 80, 80
NETWORKS = {"char_lstm_fedmrn": partial(char_lstm, layers=1, bias=False), "char_lstm": char_lstm}


def main(arguments: list[str] | None = None) -> None:
    """Print and keep a row for each network and form."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=device_here, default="cuda")
    parser.add_argument("--clients", type=positive, default=10)
    parser.add_argument("--batch", type=positive, default=10)
    parser.add_argument("--figures", type=Path, help="file to append figures to, as lines of JSON")
    options = parser.parse_args(arguments)
    device, size = torch.device(options.device), (options.clients, options.batch)
    set_determinism(True, device)
    for name, factory in NETWORKS.items():
        model = build(factory, KEY, (LENGTH,), VOCAB, "next_token", vocab_size=VOCAB)
        assert isinstance(model, Functional)
        model.slow_by_vmap = False  # on a CPU, too
        theta = torch.stack([model.init(KEY.fold_in(client))[0] for client in range(options.clients)]).to(device)
        generator = torch.Generator().manual_seed(0)
        x = torch.randint(VOCAB, (*size, LENGTH), generator=generator).to(device)
        y = torch.randint(VOCAB, size, generator=generator).to(device)
        work = partial(model.gradient, theta, Batch(x, y, None, theta[:, :0]))
        for form in ("all at once", "one after another"):
            model.vmap_refused = form == "one after another"
            work()  # all at once proves itself
            found = {"called": 1e3 * seconds_of(work, device)}
            if device.type == "cuda":
                found["replayed"] = 1e3 * seconds_of(CudaGraphs(device, form).capture(work, ()), device)
            times = ", ".join(f"{how} {milliseconds:.2f} ms" for how, milliseconds in found.items())
            print(f"{name:16} {form:17} {times}", flush=True)
            keep(options.figures, network=name, form=form, **found)


if __name__ == "__main__":
    main()
