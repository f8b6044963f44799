"""The notebook runs from an empty folder, and the page made of it shows its cells and its picture.

After a change write its outputs anew: python -m tests.docs.test_notebook
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from scripts.docs_notebook import page
from tests.docs.pages import ROOT

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
KEPT = ("stream", "display_data", "execute_result")


def executed(folder: Path) -> dict[str, Any]:
    """The notebook with the outputs of running it in `folder`. Raises CellExecutionError: a cell fails."""
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return json.loads(nbformat.writes(notebook))


def _joined(outputs: list[Any]) -> list[Any]:
    """The outputs with what a kernel printed in several parts as one."""
    found: list[Any] = []
    for output in outputs:
        if found and output["output_type"] == found[-1]["output_type"] == "stream":
            found[-1]["text"] += output["text"]
        else:
            found.append(output)
    return found


def _kinds(notebook: dict[str, Any]) -> list[list[str]]:
    """What each cell of code puts out: the kinds of its outputs, and of what is shown."""
    return [
        [kind for output in cell["outputs"] for kind in (output["output_type"], *sorted(output.get("data", {})))]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


@pytest.mark.slow
def test_every_cell_runs_and_puts_out_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    again = executed(tmp_path)
    assert _kinds(again) == _kinds(json.loads(NOTEBOOK.read_text()))


def test_outputs_are_kept_and_small() -> None:
    kinds = _kinds(json.loads(NOTEBOOK.read_text()))
    assert sum("image/png" in cell for cell in kinds) == 1
    assert all(kind in (*KEPT, "image/png", "text/plain") for cell in kinds for kind in cell), "no error, no HTML"
    assert NOTEBOOK.stat().st_size < 200_000


def test_the_page_shows_cells_outputs_and_the_picture() -> None:
    text, pictures = page(NOTEBOOK)
    assert text.startswith("# A notebook")
    assert "```python\nimport fedcomp\n" in text
    assert "```text\nfinished outputs/fedcomp/" in text
    assert list(pictures) == ["notebook_0.png"]
    assert "![](notebook_0.png)" in text
    assert pictures["notebook_0.png"].startswith(b"\x89PNG")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        NOTEBOOK.write_text(json.dumps(executed(Path(place)), indent=1, ensure_ascii=False) + "\n")
