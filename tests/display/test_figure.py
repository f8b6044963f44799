"""Characters that no font has are said once, in one line."""

from pathlib import Path

import pytest

from fedcomp.display import figure


def test_missing_glyphs_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.png", "b.pdf"):
        drawn = figure.new_figure(1, 1)
        drawn.suptitle("a\ue0a1\ue0a2")  # private use: in no font
        figure.save(drawn, tmp_path / name)
    assert capsys.readouterr().err == "pictures show boxes for \ue0a1\ue0a2: matplotlib has no font with them\n"
