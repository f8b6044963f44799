"""The README is short, every method is named, and links, files and questions of the pages lead somewhere."""

import re

from hydra.utils import instantiate

from fedcomp.core.choices import options
from tests.docs.pages import PAGES, ROOT, prose
from tests.looped import looped

SHAPES = {"mlp_digits_233": (64,), "lenet5": (1, 28, 28), "cnn4": (1, 28, 28), "cnn6": (3, 32, 32)}
"""Of one sample of the data sets that these networks are for."""


def test_parameter_counts() -> None:
    written = re.findall(r"`(\w+)` \(([\d,]+)", PAGES["docs/methods.md"])
    counts = {name: int(count.replace(",", "")) for name, count in written}
    for name, shape in SHAPES.items():
        factory = instantiate(options(ROOT / "conf" / "model" / f"{name}.yaml"))
        assert counts[name] == sum(part.numel() for part in factory(shape, 10).parameters()), name


def test_the_readme_is_short() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 75


def test_the_readme_counts_the_methods() -> None:
    codecs, algorithms = (len(list((ROOT / "conf" / group).glob("*.yaml"))) for group in ("compressor", "algorithm"))
    variants = 2  # sign_model and topk_index are options of sign and topk
    assert f"{codecs - variants} codecs and {algorithms} algorithms" in " ".join(PAGES["README.md"].split())
    assert f"| codecs | {codecs - variants}, in either direction |" in PAGES["docs/compare.md"]


@looped("group", ["algorithm", "compressor"])
def test_every_method_is_named(group: str) -> None:
    for path in (ROOT / "conf" / group).glob("*.yaml"):
        assert f"`{path.stem}`" in PAGES["docs/methods.md"]


@looped("page", PAGES)
def test_links_lead_to_files(page: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", prose(PAGES[page])):
        assert "://" in target or (ROOT / page).parent.joinpath(target).is_file(), target


@looped("page", PAGES)
def test_files_that_a_page_names_are_there(page: str) -> None:
    for path, test in re.findall(r"`([\w./*]+/[\w.*]+\.py)(?:::(\w+))?`", prose(PAGES[page])):
        found = [file for folder in (ROOT, ROOT / "fedcomp") for file in folder.glob(path)]
        assert found or path.startswith("mine/"), path
        assert not test or f"def {test}(" in found[0].read_text(encoding="utf-8"), f"{path}::{test}"


MOST_FILES = [5, 7, 4, 3, 5]
"""Of each question of "Where to look"."""


def test_a_question_leads_to_few_files_which_are_there() -> None:
    table = PAGES["docs/architecture.md"].split("## Where to look")[1].split("\n## ")[0]
    questions = re.findall(r"^\| .*\? \| (.*) \|$", table, flags=re.M)
    files = [re.findall(r"`([^`]*/[^`]*)`", answer) for answer in questions]
    assert [path for own in files for path in own if not (ROOT / path).is_file()] == []
    assert [len(own) for own in files] == MOST_FILES
