"""Flags and overrides in any order, and one line for a flag that cannot be."""

from pathlib import Path

import pytest

from fedcomp.cli.arguments import parse
from tests.looped import looped


@looped(
    "line, sorted_line",
    [
        ("rounds=5 --config-dir mine compressor=quarter", "--config-dir=mine rounds=5 compressor=quarter"),
        ("rounds=5 -m", "--multirun rounds=5"),
        ("rounds=5 --cfg job", "--cfg=job rounds=5"),
        ("-m a=1 --config-dir mine b=2", "--multirun --config-dir=mine a=1 b=2"),
        ("a=1 -cd=mine b=2", "--config-dir=mine a=1 b=2"),
        ("a=1 --multi b=2", "--multirun a=1 b=2"),
        ("a=1 -i b=2", "--info=all a=1 b=2"),
        ("a=1 -i defaults b=2", "--info=defaults a=1 b=2"),
        ("a=1 -c job -p client --resolve", "--cfg=job --package=client --resolve a=1"),
        ("-m -- a=1", "--multirun a=1"),
        ("'~c' +d=1", "'~c' +d=1"),
        ("a=1 --safe -m", "--multirun a=1 safe=true"),
    ],
)
def test_flags_come_first(line: str, sorted_line: str) -> None:
    assert parse(line.split()).argv == sorted_line.split()


def test_the_config_folder() -> None:
    assert parse(["a=1", "--config-dir", "mine", "b=2"]).config_folders == [Path("mine").resolve()]
    assert parse(["a=1", "-cd=~"]).config_folders == [Path.home()]
    assert parse(["a=1"]).config_folders == []


@looped(
    "line, message",
    [
        ("a=1 --multirn", r"there is no flag --multirn; did you mean --multirun\?"),
        ("--config a=1", "there is no flag --config; did you mean --config-path or --config-name or --config-dir"),
        ("a=1 --config-dir", "--config-dir needs a value"),
        ("--config-dir -m", "--config-dir needs a value"),
        ("--cfg compressor=topk", "--cfg needs one of job, hydra, all, not compressor=topk"),
        ("--multirun=true", "--multirun takes no value: leave =true out"),
        ("--config-dir a --config-dir b", "--config-dir is given twice: give one folder"),
    ],
)
def test_a_wrong_flag_is_one_line(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        parse(line.split())
