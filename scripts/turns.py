"""Processes that are measured in turn: A B C A B C."""

import subprocess
from collections.abc import Mapping, Sequence


def in_turn(commands: Mapping[str, Sequence[str]], repeats: int) -> dict[str, tuple[list[float], list[float]]]:
    """{side: (its seconds in every turn but the first, which warms up, and the numbers that it prints at its end)}.

    Args:
        commands: {side: command of a process that prints the seconds of a measurement for each line that it reads}.
        repeats: turns that count.
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = {side: subprocess.Popen(command, **pipes) for side, command in commands.items()}
    seconds: dict[str, list[float]] = {side: [] for side in commands}
    for _ in range(repeats + 1):
        for side, process in processes.items():
            print(file=process.stdin, flush=True)
            seconds[side].append(float(process.stdout.readline()))
    ends = {side: process.communicate()[0].split() for side, process in processes.items()}
    return {side: (seconds[side][1:], [float(word) for word in ends[side]]) for side in commands}
