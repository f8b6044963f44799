"""A memory of errors that outgrows the updates: what is recorded, what is said, and that EF21 stays bounded."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from fedcomp.simulation.divergence import MemoryGrowthMonitor
from tests.left import folder_of, record

DATA = ("num_clients=20", "partition=dirichlet", "partition.alpha=0.1")
CASE = ("algorithm=bicompfl_cfl", *DATA, "rounds=40", "eval_every=10", "pictures=false", "device=cpu")
"""Updates of length 0.9 whose messages, signs of 0.005, have length 0.25."""


def _line(memory: float, update: float, suffix: str = "") -> dict[str, float]:
    return {f"memory/norm{suffix}": memory, f"update/norm{suffix}": update, "test/loss": 1.0}


def test_each_memory_is_named_once() -> None:
    growth = MemoryGrowthMonitor()
    assert growth.check(0, {"test/loss": 1.0}) == []
    assert growth.check(1, _line(9.9, 1.0)) == growth.check(2, _line(0.0, 0.0)) == []
    (said,) = growth.check(3, _line(21.0, 2.0))
    assert said.startswith("round 3: the memory of errors of the clients is 10.5 times as long as the longest update")
    assert "(memory/norm 21, update/norm at most 2)" in said
    assert said.endswith("or take EF21, which stays bounded (algorithm=bicompfl_cfl algorithm.ef21=true)")
    assert "\n" not in said
    assert growth.check(4, _line(100.0, 1.0)) == []
    (other,) = growth.check(5, _line(100.0, 1.0) | _line(3.0, 0.2, "_down"))
    assert "memory of errors of the server is 15 times as long" in other
    assert growth.check(6, _line(100.0, 1.0) | _line(3.0, 0.2, "_down")) == []


def test_a_memory_that_stays_while_updates_shrink_is_not_reported() -> None:
    growth = MemoryGrowthMonitor()
    assert growth.check(1, _line(4.0, 1.0)) == growth.check(2, _line(4.0, 0.01)) == []
    assert len(growth.check(3, _line(10.1, 0.01))) == 1


def test_lines_before_a_resume_count_and_are_not_reported_again() -> None:
    assert MemoryGrowthMonitor([_line(4.0, 1.0)]).check(2, _line(4.0, 0.01)) == []
    assert MemoryGrowthMonitor([_line(11.0, 1.0)]).check(2, _line(12.0, 1.0)) == []


def _run(fedcomp: Callable[..., int], folder: Path, *more: str) -> tuple[list[dict[str, float]], str]:
    """The record and the log of the stated case."""
    assert fedcomp(*CASE, f"output_root={folder}", *more) == 0
    return record(folder), (folder_of(folder) / "run.log").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("more", [(), ("repeats=2", "rounds=20")], ids=["once", "study"])
def test_error_feedback_outgrows_messages_of_a_fixed_size(fedcomp, tmp_path: Path, capsys, more) -> None:
    lines, log = _run(fedcomp, tmp_path, "compressor.feedback=error", *more)
    found = [line["memory/norm"] for line in lines[1:]]
    steps = [later - earlier for earlier, later in pairwise(found)]
    assert all(step > 5 for step in steps), found  # 0.9 a round, and no end
    assert log.count("memory of errors of the clients") == 1
    assert capsys.readouterr().err.count("memory of errors of the clients") == 1


def test_ef21_stays_bounded_in_the_same_case(fedcomp, tmp_path: Path, capsys) -> None:
    lines, log = _run(fedcomp, tmp_path, "algorithm.ef21=true")
    assert all(line["memory/norm"] < 1 for line in lines[1:])
    assert lines[-1]["test/accuracy"] > 0.5
    assert "memory of errors" not in log + capsys.readouterr().err
