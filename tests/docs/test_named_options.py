"""What the tables of docs/methods.md name is there: options of each method, their values, the choices of each group."""

import re
from collections.abc import Iterator

from omegaconf import OmegaConf

from fedcomp.config.compose import compose
from fedcomp.config.schema import PARTS
from fedcomp.core.folders import CONF
from tests.docs.pages import PAGES
from tests.looped import looped

PAGE = PAGES["docs/methods.md"]


def _rows(heading: str) -> dict[str, list[str]]:
    """{the first cell's name: the other cells} of the table that begins so."""
    (table,) = re.findall(rf"^\| {re.escape(heading)} \|.*\n\|[-| :]*\n((?:\|.*\n)+)", PAGE, re.M)
    rows = [re.split(r" (?<!\\)\| ", line.strip("| \n")) for line in table.splitlines()]
    return {name.strip("`"): cells for key, *cells in rows for name in key.split(", ")}


METHODS = {name: cells[1] for name, cells in _rows("`algorithm=` | what is sent").items() if len(cells) == 2}


def _named(cell: str) -> Iterator[tuple[str, list[str]]]:
    """(option, values) of each `option=value|value` of a cell, of each `option`."""
    for text in re.findall(r"`([^`]+)`", cell):
        for word in text.split(" "):
            option, _, values = word.partition("=")
            if re.fullmatch(r"[\w.]+", option):
                yield option, [one for one in values.split("\\|") if one]


@looped("name, cell", METHODS.items())
def test_the_settings_of_a_method_are_its_options(name: str, cell: str) -> None:
    config = compose([f"algorithm={name}", *(["model=hf"] if "`model.trains" in cell else [])])
    comments = (CONF / "algorithm" / f"{name}.yaml").read_text()
    for option, values in _named(cell):
        if option in PARTS:
            for value in values:
                assert (CONF / option / f"{value}.yaml").is_file(), f"{name}: {option}={value}"
        elif option not in METHODS and not any((CONF / part / f"{option}.yaml").is_file() for part in PARTS):
            place = option if "." in option else f"algorithm.{option}"
            assert _has(config, place), f"{name} has no option {option}"
            if place.startswith("algorithm."):
                for value in values:
                    assert value in comments or not re.fullmatch("[a-z_]+", value), f"{name}: {option}={value}"


def _has(config, place: str) -> bool:
    part, _, option = place.rpartition(".")
    return option in (OmegaConf.select(config, part) or ())


NAMED = {group: cells[0] for groups, cells in _rows("group").items() for group in groups.split(", ")}


@looped("group", [group for group in PARTS if group not in ("algorithm", "compressor", "downlink")])
def test_every_choice_of_a_group_is_named(group: str) -> None:
    row = next(" ".join(cells) for name, cells in _rows("group").items() if name == group)
    named = set(re.findall(r"`(\w+)`", row))
    assert {path.stem for path in (CONF / group).glob("*.yaml")} - named == set()
