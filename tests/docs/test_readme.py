"""What the README and the pages show works as written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedcomp.records.metrics_file import read_lines
from tests.conformance.codec import CHECKS, CodecCase
from tests.docs.pages import PAGES, ROOT, block, prose


@pytest.mark.parametrize("page", ["README.md", "docs/extending.md"])
def test_own_compressor(fedcomp, tmp_path: Path, monkeypatch, page: str) -> None:
    mine = tmp_path / "mine"
    (mine / "compressor").mkdir(parents=True)
    (mine / "quarter.py").write_text(block(page, "python", "class Quarter"))
    (mine / "compressor" / "quarter.yaml").write_text(block(page, "yaml", "quarter.Quarter"))
    command = block(page, "", "compressor=quarter").split()[1:]
    monkeypatch.chdir(tmp_path)
    assert fedcomp(*command, "rounds=3", f"output_root={tmp_path / 'outputs'}") == 0
    (record,) = (tmp_path / "outputs").rglob("metrics.jsonl")
    first, *_, line = read_lines(record)
    assert line["test/loss"] < first["test/loss"]
    assert line["bpp/uplink"] == 32 * round(0.25 * 2410) / 2410

    import quarter  # type: ignore[import-not-found]  # lies in --config-dir, which the command put on the path

    case = CodecCase("quarter", quarter.Quarter(), lambda layers: 32 * max(1, round(0.25 * sum(layers))))
    for check in CHECKS:
        check(case)


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
