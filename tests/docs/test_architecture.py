"""docs/architecture.md leads a reader to files that are there, and to few of them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_FILES = [5, 7, 4, 3, 5]
"""Of each question of "Where to look"."""


def test_a_question_leads_to_few_files_which_are_there() -> None:
    table = (ROOT / "docs" / "architecture.md").read_text().split("## Where to look")[1].split("\n## ")[0]
    questions = re.findall(r"^\| .*\? \| (.*) \|$", table, flags=re.M)
    files = [re.findall(r"`([^`]*/[^`]*)`", answer) for answer in questions]
    assert [path for own in files for path in own if not (ROOT / path).is_file()] == []
    assert [len(own) for own in files] == MOST_FILES
