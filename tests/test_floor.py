"""`make floor` runs on the lowest version of every package that pyproject.toml admits."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PINS = ROOT / "constraints-floor.txt"

if not PINS.exists():
    pytest.skip("constraints-floor.txt is only in the project's own folder", allow_module_level=True)


def test_the_floor_is_the_lowest_that_is_admitted() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needs = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for extra in project["project"]["optional-dependencies"].values():
        needs += extra
    admitted = {}
    for need in map(Requirement, needs):
        if need.name != project["project"]["name"]:
            (lowest,) = [one.version for one in need.specifier if one.operator == ">="]
            admitted[need.name] = Version(lowest)
    pins = [line.split("==") for line in PINS.read_text().splitlines() if line and line[0] != "#"]
    assert {name: Version(version) for name, version in pins} == admitted
