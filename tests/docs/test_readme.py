"""The README is short, every method is named, and links lead somewhere."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import PAGES, ROOT, prose


def test_parameter_counts_in_the_readme() -> None:
    for name, count in (("lenet5", "61,706"), ("cnn4", "1,933,258"), ("cnn6", "2,262,602")):
        assert f"`{name}` ({count})" in PAGES["docs/methods.md"]


def test_the_readme_is_short() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 150


@pytest.mark.parametrize("group", ["algorithm", "compressor"])
@pytest.mark.parametrize("page", ["README.md", "docs/methods.md"])
def test_every_method_is_named(page: str, group: str) -> None:
    variants = {"sign_model", "topk_index"} if page == "README.md" else set()
    for path in (ROOT / "conf" / group).glob("*.yaml"):
        assert f"`{path.stem}`" in PAGES[page] or path.stem in variants


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", prose(PAGES[page])):
        assert "://" in target or (ROOT / page).parent.joinpath(target).is_file(), target
