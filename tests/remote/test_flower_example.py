"""The example under Flower takes from fedcomp what is there; Flower itself needs an environment of its own."""

import ast
import importlib

from tests.docs.pages import ROOT


def test_the_example_imports_what_is_there() -> None:
    files = sorted((ROOT / "examples" / "flower").rglob("*.py"))
    taken = [
        (node.module, name.name)
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedcomp.")
        for name in node.names
    ]
    assert len(taken) > 10
    missing = [(module, name) for module, name in taken if not hasattr(importlib.import_module(module), name)]
    assert not missing
