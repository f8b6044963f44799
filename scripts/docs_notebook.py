"""A hook of MkDocs: `docs/notebook.ipynb` as a page, its cells with the outputs that are kept in it."""

import base64
import json
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

NOTEBOOK = Path(__file__).resolve().parents[1] / "docs" / "notebook.ipynb"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Generate the page and its pictures, which exist only in the built site."""
    text, pictures = page(NOTEBOOK)
    files.append(File.generated(config, f"{NOTEBOOK.stem}.md", content=text))
    for name, content in pictures.items():
        files.append(File.generated(config, name, content=content))
    return files


def page(notebook: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by the names that the page has for them."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            png, words = _output(output)
            if png is not None:
                name = f"{notebook.stem}_{len(pictures)}.png"
                pictures[name] = png
                parts.append(f"![]({name})")
            elif words:
                parts.append(f"```text\n{words.rstrip()}\n```")
    return "\n\n".join(parts) + "\n", pictures


def _output(output: dict[str, Any]) -> tuple[bytes | None, str]:
    """(picture, text) of one output of a cell."""
    data = output.get("data", {})
    if "image/png" in data:
        return base64.b64decode("".join(data["image/png"])), ""
    return None, "".join(output.get("text", data.get("text/plain", "")))
