"""Progress in a notebook, on a stand-in for IPython's display."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from fedcomp.display.notebook import NotebookBar, in_notebook
from fedcomp.display.progress import Lines, _screen


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The HTML of each output; a redrawn one replaces what it showed."""
    outputs: list[str] = []

    class Handle:
        def __init__(self, place: int) -> None:
            self.place = place

        def update(self, content: str) -> None:
            outputs[self.place] = content

    def display(content: str, display_id: bool) -> Handle:
        outputs.append(content)
        return Handle(len(outputs) - 1)

    ipython, module = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    module.HTML, module.display = str, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return outputs


def test_one_output_is_redrawn(shown: list[str]) -> None:
    assert in_notebook()
    bar = _screen(sys.stderr)
    assert isinstance(bar, NotebookBar)
    bar.start(10)
    bar.draw(4, 10, "accuracy < 90 %", "1 m 01 s left")
    (text,) = shown
    assert 'value="4" max="10"' in text
    assert "round 4/10" in text
    assert "accuracy &lt; 90 %  1 m 01 s left" in text


def test_a_file_gets_lines_also_in_a_notebook(shown: list[str], tmp_path) -> None:
    with (tmp_path / "log").open("w") as stream:
        assert isinstance(_screen(stream), Lines)


def test_a_plain_process_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not in_notebook()
    assert isinstance(_screen(sys.stderr), Lines)
