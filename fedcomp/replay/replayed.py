"""A recorded run as it would have been under another network."""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import yaml

from fedcomp.config.placement import claim, run_folder
from fedcomp.display.figure import can_draw
from fedcomp.display.slowest_plot import plot_slowest
from fedcomp.network.clock import Clock
from fedcomp.network.retime import retime
from fedcomp.network.traffic.file import FILE, save
from fedcomp.network.traffic.segments import read_traffic
from fedcomp.provenance.check import check_model
from fedcomp.random.keys import Key
from fedcomp.records.atomic_write import write_atomically
from fedcomp.records.metrics_file import FILE as RECORD
from fedcomp.records.metrics_file import REPETITIONS, encode
from fedcomp.records.provenance import FILE as PROVENANCE
from fedcomp.records.reader import RecordedRun, RunFiles
from fedcomp.records.run_folder import CONFIG, SLOWEST
from fedcomp.records.status import Status, write_status
from fedcomp.replay.networks import NamedNetwork
from fedcomp.simulation.monte_carlo.study import repetition_key


def replayed(run: RecordedRun, named: NamedNetwork, partial: bool = False) -> tuple[RecordedRun, list[Clock]]:
    """The run with the times of another network, exactly those of a run made under it; and the clocks at its end.

    Its folder is where such a run would be; its state is that of the run.

    Args:
        partial: take unfinished runs, up to the last round that was recorded.
    Raises:
        ValueError: it is unfinished, recorded no traffic, had a deadline, its config lacks something, the model's files
            are others now, or the network has too few clients.
    """
    if run.state == "unreadable":
        raise ValueError(f"{run.folder}: {run.error}")
    if not run.lines:
        raise ValueError(f"{run.folder} has no record: {RECORD} is missing or empty")
    if not run.finished and not partial:
        raise ValueError(f"{run.folder} is {run.state}: finish it first, or give --partial for the rounds so far")
    if lacking := [key for key in ("model", "seed") if key not in run.config]:
        raise ValueError(f"{run.folder / CONFIG} is no config of a run: {lacking[0]} is missing")
    options = run.files.written_config()["model"]
    if str(options.get("_target_")).startswith("fedcomp."):  # what others name is not imported
        check_model(run.folder, options, {})
    traffic = read_traffic(run.folder)
    if traffic.deadline is not None:
        raise ValueError(
            f"{run.folder} had network.deadline={traffic.deadline}, which changed who learnt: it has no other times"
        )
    key = Key(("run", run.config["seed"]))
    keys = [repetition_key(key, number) for number in range(len(traffic.rounds))]
    times, clocks = retime(traffic, named.network, keys, [int(line["round"]) for line in run.lines])
    lines = []
    for line in run.lines:
        if int(line["round"]) in times:
            kept = {name: value for name, value in line.items() if not name.startswith("time/") and name != "seconds"}
            lines.append({**kept, **times[int(line["round"])], "seconds": line["seconds"]})
    config = {**run.config, "network": named.node}
    return replace(run, folder=run_folder(config), config=config, lines=lines), clocks


def destination(run: RecordedRun, source: Path, root: Path) -> Path:
    """Where a run of this config with `output_root` at `root` would be.

    Args:
        source: folder of the run that was replayed.
    Raises:
        ValueError: that is this folder, or another run that was trained lies there.
    """
    folder = run_folder({**run.config, "output_root": str(root)})
    if folder.resolve() == source.resolve() or (folder / PROVENANCE).exists():
        raise ValueError(f"{folder} is a run that a replay would replace: give another folder to --out")
    return folder


def write(run: RecordedRun, source: Path, clocks: list[Clock], root: Path) -> Path:
    """Write a replayed run to its `destination`, which it returns; arguments as there.

    That of an unfinished run is written as one that was interrupted after its last line.

    Raises ValueError: it cannot be written, or as `destination`.
    """
    written = RunFiles(source).written_config()  # classes with their rooms, as a run writes them
    config = {**written, "network": run.config["network"], "output_root": str(root)}
    folder = destination(run, source, root)
    folder.mkdir(parents=True, exist_ok=True)
    claim(folder, config)
    write_atomically(folder / CONFIG, yaml.safe_dump(config, sort_keys=False, allow_unicode=True).encode())
    write_atomically(folder / RECORD, b"".join(encode(line) for line in run.lines))
    save(folder / FILE, read_traffic(source))
    if (source / REPETITIONS).exists():
        shutil.copyfile(source / REPETITIONS, folder / REPETITIONS)
    files = [path for path in (folder / RECORD, folder / REPETITIONS) if path.exists()]
    record = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    done = int(run.lines[-1]["round"])
    write_status(folder, Status("finished", done, record=record) if run.finished else Status("interrupted", done))
    if config.get("pictures", True) and can_draw():
        title = str(config.get("label") or config["name"])
        plot_slowest(sum(clock.critical for clock in clocks[1:]) + clocks[0].critical, folder / SLOWEST, title)
    return folder
