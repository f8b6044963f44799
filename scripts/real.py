#!/usr/bin/env python
"""`make real`: a small run between processes on this machine, beside the same run as a simulation.

One server and five clients, each a process; only bytes cross. The table shows that accuracies and bits are the same,
how many bytes crossed, and milliseconds a round. Options are fedcomp's; both are made on one thread a process, and the
simulation one client after another, which is what gives the same bits.
"""

import argparse
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fedcomp.records.metrics_file import read_lines
from fedcomp.runtime.command import exit_status

METHODS = {
    "FedAvg": "",
    "top 3 %, error feedback": "compressor=topk compressor.feedback=error",
    "sign both ways": ("compressor=sign compressor@downlink=sign compressor.feedback=error downlink.feedback=error"),
    "PowerSGD": "algorithm=powersgd",
}


def main() -> None:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="NAME")
    parser.add_argument(
        "overrides", nargs="*", default=["experiment=quickstart", "rounds=20"], help="fedcomp's options"
    )
    given = parser.parse_args()
    print("| method | accuracy | real | bits / 8 up | bytes up | bits / 8 down | bytes down | ms a round | real |")
    print("| --- |" + " ---: |" * 8)
    with tempfile.TemporaryDirectory() as folder:
        for number, label in enumerate(given.methods):
            fixed = [f"num_clients={given.clients}", "pictures=false", "eval_every=20", "threads=1"]
            words = [*given.overrides, *METHODS[label].split(), *fixed]
            alone = simulated(words, Path(folder) / f"one_{number}")
            real, up, down = between_processes(words, given.clients, Path(folder) / f"real_{number}")
            same = [key for key in alone if key.startswith(("bits/", "test/")) and alone[key] != real[key]]
            if same:
                raise SystemExit(f"{label}: {same} differ between the simulation and the run between processes")
            cells = f"{100 * alone['test/accuracy']:.2f} % | {100 * real['test/accuracy']:.2f} %"
            bits = alone["bits/uplink"] / 8, alone["bits/downlink"] / 8
            took = " | ".join(f"{1000 * line['seconds'] / line['round']:,.0f}" for line in (alone, real))
            print(f"| {label} | {cells} | {bits[0]:,.0f} | {up} | {bits[1]:,.0f} | {down} | {took} |", flush=True)


def simulated(words: list[str], folder: Path) -> dict[str, Any]:
    """The last line of a simulation's record."""
    command = [sys.executable, "-m", "fedcomp", *words, "chunk_size=1", "quiet=true", f"output_root={folder}"]
    if subprocess.run(command).returncode:  # it has said why
        raise SystemExit(1)
    return _last(folder)


def between_processes(words: list[str], clients: int, folder: Path) -> tuple[dict[str, Any], str, str]:
    """The last line of a server's record, and the bytes up and down that it says."""
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    key = ["--key", str(folder / "key"), f"output_root={folder}"]
    serve = "import sys; from fedcomp.cli.serve import main; sys.exit(main(sys.argv[1:]))"
    server = subprocess.Popen(
        [sys.executable, "-c", serve, *words, *key, "--listen", address], stderr=subprocess.PIPE, text=True
    )
    while not (folder / "key").exists() and server.poll() is None:
        time.sleep(0.1)
    join = serve.replace("cli.serve", "cli.join")
    for client in range(clients):
        command = [sys.executable, "-c", join, *words, *key, "--client", str(client), "--server", address]
        subprocess.Popen(command, stderr=subprocess.DEVNULL)
    _, said = server.communicate()
    found = re.search(r"bytes of [\d,]+ messages: ([\d,]+) up, ([\d,]+) down", said)
    if server.returncode or found is None:
        raise SystemExit(said)
    return _last(folder), found[1], found[2]


def _last(folder: Path) -> dict[str, Any]:
    (record,) = folder.rglob("metrics.jsonl")
    return dict(read_lines(record)[-1])


if __name__ == "__main__":
    sys.exit(exit_status(main))
