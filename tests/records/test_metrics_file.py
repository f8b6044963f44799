"""The record: what is logged comes back, and a kill costs at most the line that was being written."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from fedcomp.records.metrics_file import Record, read_lines
from tests.looped import looped


def test_lines_come_back_exactly(tmp_path: Path) -> None:
    record = Record(tmp_path / "outputs" / "run")
    first = {"round": 0, "test/loss": 0.1 + 0.2, "bits/total": 2**53 + 1}
    second = {"round": 5, "test/loss": np.float32(0.5), "bits/total": np.int64(7)}
    record.append(first)
    record.append(second)
    lines = read_lines(record.path)
    assert lines == [first, {"round": 5, "test/loss": 0.5, "bits/total": 7}]
    assert isinstance(lines[0]["bits/total"], int)


def test_the_file_is_valid_json_and_says_what_was_not_finite(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.append({"round": 1, "test/loss": math.nan, "train/loss": math.inf, "x": -math.inf})
    raw = json.loads(record.path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert raw["test/loss"] is None
    assert raw["nonfinite"] == {"test/loss": "nan", "train/loss": "inf", "x": "-inf"}
    (line,) = read_lines(record.path)
    assert math.isnan(line["test/loss"])
    assert (line["train/loss"], line["x"], sorted(line)) == (
        math.inf,
        -math.inf,
        ["round", "test/loss", "train/loss", "x"],
    )


def test_a_half_written_last_line_is_not_read_and_not_continued(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.append({"round": 0})
    with record.path.open("a") as file:
        file.write('{"round": 1, "test/acc')
    assert read_lines(record.path) == [{"round": 0}]
    Record(tmp_path).append({"round": 1})
    assert record.path.read_text() == '{"round": 0}\n{"round": 1}\n'


@pytest.mark.parametrize(("round", "kept"), [(-1, []), (0, [0]), (7, [0, 5]), (10, [0, 5, 10]), (99, [0, 5, 10])])
def test_truncate_after_the_checkpoint(tmp_path: Path, round: int, kept: list[int]) -> None:
    record = Record(tmp_path)
    for number in (0, 5, 10):
        record.append({"round": number, "test/loss": math.nan})
    with record.path.open("a") as file:
        file.write('{"round": 15')
    record.truncate_after(round)
    assert [line["round"] for line in read_lines(record.path)] == kept
    record.append({"round": 100})
    lines = read_lines(record.path)
    assert [line["round"] for line in lines] == [*kept, 100]
    assert all(math.isnan(line["test/loss"]) for line in lines[:-1])
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


@looped(
    "second, said",
    [
        ("rubbish", "is no record"),
        ('{"round": 5}', "is of round 5, after a line of round 5"),
        ('{"round": 2}', "is of round 2, after a line of round 5"),
    ],
)
def test_a_line_that_cannot_be_is_named(tmp_path: Path, second: str, said: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"round": 0}}\n{{"round": 5}}\n{second}\n{{"round": 10}}\n')
    with pytest.raises(ValueError, match=rf"metrics\.jsonl, line 3 {said}"):
        read_lines(path)


def test_a_file_that_others_touch_is_not_written_on(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.append({"round": 0})
    record.path.write_text('{"round": 0}\n{"round": 1}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl was changed by another process while the run was running"):
        record.append({"round": 1})
    record.path.unlink()
    with pytest.raises(ValueError, match=r"metrics\.jsonl was deleted while .*start anew with overwrite=true"):
        record.append({"round": 1})
    assert not record.path.exists()


def test_unreadable_file_and_unwritable_folder_are_one_line(tmp_path: Path) -> None:
    assert read_lines(tmp_path / "metrics.jsonl") == []
    with pytest.raises(ValueError, match="cannot read"):
        read_lines(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="choose another output folder") as caught:
        Record(tmp_path / "file" / "run")
    assert "\n" not in str(caught.value)
