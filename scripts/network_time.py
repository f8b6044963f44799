#!/usr/bin/env python
"""The picture and the table of docs/results/network.md: accuracy against seconds on three networks, for two speeds.

fedcomp experiment=network/asymmetric
python scripts/network_time.py outputs/network_asymmetric docs/results/network_time.png
"""

import argparse
from pathlib import Path

from fedcomp.display import figure, units
from fedcomp.records.reader import RecordedRun, read_runs
from fedcomp.replay.networks import networks
from fedcomp.replay.replayed import replayed

NETWORKS = {"symmetric_10": "10 : 10 Mbit/s", "asymmetric_10": "100 : 10 Mbit/s", "cell_20": "one cell of 20 Mbit/s up"}
SPEEDS = {0.0: "gradients take no time", 1e-3: "1 ms a gradient"}
TARGET = 0.9


def main() -> None:
    """Draw, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    runs = sorted((run for run in read_runs([given.runs]) if run.finished), key=_label)
    picture = figure.new_figure(11, 6)
    table: dict[str, list[str]] = {_label(run): [_shown(run, "bits/total")] for run in runs}
    for row, (seconds, speed) in enumerate(SPEEDS.items()):
        for column, (name, title) in enumerate(NETWORKS.items()):
            (named,) = networks([f"network={name}", f"network.seconds_per_gradient={seconds}"])
            axes = picture.add_subplot(len(SPEEDS), len(NETWORKS), 1 + row * len(NETWORKS) + column)
            for number, run in enumerate(runs):
                again, _ = replayed(run, named)
                points = [(line["time/total"], 100 * line["test/accuracy"]) for line in again.lines if line["round"]]
                colour = figure.COLOURS[number % len(figure.COLOURS)]
                dashes = "-" if number < len(figure.COLOURS) else (0, (3, 1))
                axes.plot(*zip(*points), color=colour, linestyle=dashes, linewidth=1.5, label=_label(run))
                table[_label(run)].append(_shown(again, "time/total"))
            axes.axhline(100 * TARGET, color="#999999", linewidth=0.8, linestyle=(0, (1, 2)))
            axes.set_xscale("log")
            axes.set_ylim(60, 98)
            figure.style(axes, "seconds" if row else "", "test accuracy (%)" if not column else "")
            axes.set_title(f"{title}, {speed}", fontsize=8, color=figure.INK, loc="left")
    handles, labels = picture.axes[0].get_legend_handles_labels()
    picture.legend(handles, labels, ncols=4, fontsize=8, frameon=False, loc="outside upper center")
    figure.save(picture, given.picture)
    print("| method | bits |" + "".join(f" {name} |" for _ in SPEEDS for name in NETWORKS))
    print("| --- | ---: |" + " ---: |" * (len(SPEEDS) * len(NETWORKS)))
    for label, cells in table.items():
        print(f"| {label} | " + " | ".join(cells) + " |")


def _label(run: RecordedRun) -> str:
    return str(run.config.get("label") or run.folder)


def _shown(run: RecordedRun, key: str) -> str:
    """Bits or seconds until the target; a dash where it is not reached."""
    found = next((line[key] for line in run.lines if line.get("test/accuracy", 0) >= TARGET), None)
    if found is None:
        return "–"
    return units.bits(found) if key.startswith("bits/") else units.duration(found)


if __name__ == "__main__":
    main()
