#!/usr/bin/env python
"""Puts a method of your own into the table of docs/results/same_bits.md.

    python scripts/compare.py digits --config-dir mine compressor=two_means compressor.feedback=error

The overrides make the method from FedAvg, or from what `--like` names; the task says what is learnt, by how many
clients, with how many bits. Its learning rate and its number of local steps are searched as those of the other methods
were, from the rate that the overrides have; then it runs with three seeds. Ctrl-C stops it, and the same command goes
on. `launcher=joblib` gives each core of a CPU a run, which pays where runs take longer than to start them, as those on
Fashion-MNIST.
"""

import argparse
import hashlib
import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from omegaconf import OmegaConf

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedcomp.config import schema
from fedcomp.config.compose import compose
from fedcomp.config.effects import check_effects
from fedcomp.config.factory import build_simulation
from fedcomp.provenance.code import code_parts
from fedcomp.records.run_folder import WITHOUT_EFFECT
from fedcomp.runtime.command import exit_status
from scripts.reproduce.experiment import Ended, pass_on_signals, run
from scripts.reproduce.markdown import spread
from scripts.reproduce.records import Folder, Records, Run
from scripts.reproduce.same_bits import SEARCHES, choice_columns, choices, of_choices, trials_table
from scripts.reproduce.same_bits_picture import draw_curves
from scripts.reproduce.same_bits_rows import LADDER, METHOD, ROWS, Row, alike
from scripts.reproduce.same_bits_search import COMMITTED, Search, last_accuracy
from scripts.reproduce.same_bits_tables import leaders, results

TASKS = {search.task.name: search for search in SEARCHES if len(COMMITTED[search].values("label")) > 1}
LIKE = {row.words[0].removeprefix(f"{METHOD}="): row for row in ROWS}
OWN = "own"
"""The label of its runs, whatever name it has in the table."""
SAME_FOR_ALL = (
    *("dataset", "model", "partition", "participation", "num_clients", "experiment"),
    *("seed", "repeats", "rounds", "max_bits", "eval_every", "name", "label"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, run, and print the table. Returns 0 if the method has its row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS, help="of the table")
    parser.add_argument("overrides", nargs="*", metavar="override", help="as of fedcomp; together they make the method")
    parser.add_argument("--config-dir", help="folder of your own configs and Python files")
    parser.add_argument("--label", default="ours", help="its name in the table (ours)")
    like = "the file of conf/experiment/neighbours/method that it begins with (fedavg)"
    parser.add_argument("--like", default="fedavg", choices=LIKE, metavar="METHOD", help=like)
    parser.add_argument("--rate", help="its option for the learning rate (that of METHOD: client.lr)")
    parser.add_argument("--steps", help="its option for the local steps (that of METHOD: client.steps)")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="where runs lie (outputs)")
    given = parser.parse_intermixed_args(arguments)
    return exit_status(lambda: _compare(given))


def _compare(given: argparse.Namespace) -> int:
    others = TASKS[given.task]
    if given.label in COMMITTED[others].values("label"):
        raise ValueError(f"--label {given.label}: the table has a row of that name: choose another")
    base = LIKE[given.like]
    began = replace(base, rate=given.rate or base.rate, steps=given.steps or base.steps)
    row, method = own_row(others, began, given.overrides, given.config_dir)
    name = f"compare_{given.task}_{method}"
    row = replace(row, words=[*row.words, f"name={name}", f"output_root={given.outputs}"])
    place = given.outputs / name / "compare"
    search = replace(
        others,
        name=name,
        options=[*dict.fromkeys([*others.options, row.rate, row.steps])],
        records=lambda search: Folder(place)[search],
    )
    for command in search.commands_of(row):
        try:
            ended = run(command, math.inf)
        except KeyboardInterrupt:
            ended = Ended.STOPPED
        Folder(place).update(search, given.outputs / name)
        if ended is Ended.STOPPED:
            over = len(Folder(place)[search].where(state="finished"))
            raise ValueError(f"stopped with {over} runs at their end; the same command goes on")
    records = Folder(place)[search]
    tried = trials_table([(replace(row, label=given.label), records)])
    runs = of_choices(search, records, [row])
    if not runs:
        raise ValueError(_why_no_row(search, row, records, given.label) + f"\n\n{tried}" * bool(records))
    steps, rate = choices(search, records, [row])[row.label] or (0, 0.0)  # there is one, or there were no runs
    accuracy = spread([last_accuracy(one) for one in runs], "{:.1f}".format, 100)
    found = f"{accuracy} % with {row.rate}={rate:g} {row.steps}={row.value(steps)}, of {len(records)} runs."
    text = f"{given.label}: {found}\n\n{_tables(others, runs, given.label, (steps, rate))}"
    (place / "compare.md").write_text(f"{text}\n\n{tried}\n", encoding="utf-8")
    draw_curves(_with_others(others, runs, given.label), others.task, place / "compare.png", given.label)
    print(f"{text}\n\nThe same with its trials: {place / 'compare.md'}, and the picture: {place / 'compare.png'}")
    return 0


def own_row(search: Search, base: Row, overrides: Sequence[str], config_dir: str | None) -> tuple[Row, str]:
    """The method that these overrides make of another, and a fingerprint of its options and its code.

    Raises ValueError: they change what is the same for all methods, or a run would refuse them.
    """
    for word in overrides:
        if _part(word) in SAME_FOR_ALL:
            raise ValueError(f"{word}: {_part(word)} is the same for all methods of the table: leave it out")
        if _part(word) == "output_root":
            raise ValueError(f"{word}: give {word.replace('output_root=', '--outputs ')} instead")
    config = compose([*search.commands[0].split(), base.words[0], *overrides], config_dir)
    for option, what in ((base.rate, "--rate"), (base.steps, "--steps")):
        if not isinstance(OmegaConf.select(config, option), int | float):
            raise ValueError(f"{what} {option} is no number of this method: give {what} the name of the option it has")
    began = float(OmegaConf.select(config, base.rate))
    if began <= 0:
        raise ValueError(f"{base.rate}={began:g}, from which the search begins, must be above 0")
    schema.check(config)
    check_effects(config)
    build_simulation(config, torch.device("cpu"))  # what a run would refuse is refused before there are eighteen
    middle = min(LADDER[1:-1], key=lambda one: abs(math.log(one / began)))
    searched = tuple(f"{option}=" for option in (base.rate, base.steps))
    words = [word for word in overrides if not word.startswith(searched)]
    own = ["--config-dir", str(Path(config_dir).expanduser().resolve())] if config_dir else []
    more = [*alike(config.algorithm), f"label={OWN}"]
    row = replace(base, label=OWN, words=[*own, base.words[0], *words, *more], middle=middle)
    without_effect = {*WITHOUT_EFFECT, "device"}
    options = {key: value for key, value in OmegaConf.to_container(config).items() if key not in without_effect}
    method = json.dumps([options, base.rate, base.steps, code_parts(options)], sort_keys=True, default=str)
    return row, hashlib.sha256(method.encode()).hexdigest()[:6]


def _part(override: str) -> str:
    """What an override is about: `compressor` of `compressor.fraction=0.1`, of `compressor@downlink=sign`."""
    return re.split(r"[=.@]", override.lstrip("+~"))[0]


def _why_no_row(search: Search, row: Row, records: Records, label: str) -> str:
    """Why it has no row, and what to do."""
    if not records:
        return "no run came to its first test; what is said above says why"
    if choices(search, records, [row])[row.label] is None:
        return f"{label} has no row: its best trials diverged, are near chance, or at the edge of the rates tried"
    return f"{label} has no row: not all its runs came to their end; the same command tries them again"


def _with_others(others: Search, runs: Records, label: str) -> Records:
    """The table's runs, and these under the name that they have in it."""
    own = [Run({**one.about, "label": label}, one.lines) for one in runs]
    return replace(runs, runs=[*of_choices(others, COMMITTED[others]), *own])


def _tables(others: Search, runs: Records, label: str, choice: tuple[int, float]) -> str:
    """The page's tables, with these runs in bold; `choice`: their local steps and rate."""
    whole, task = _with_others(others, runs, label), others.task
    columns = choice_columns({**choices(others, COMMITTED[others]), label: choice})
    table = results(whole, task, columns).replace(f"| {label} |", f"| **{label}** |")
    both = leaders(whole, task, "in both directions", "bits/total", 1.0)
    return "\n\n".join([table, both, leaders(whole, task, "up", "bits/uplink", 0.1)])


if __name__ == "__main__":
    pass_on_signals()
    sys.exit(main())
