"""Imports run one way, in the order that `docs/architecture.md` writes down; some libraries stay at the edges."""

import ast
import functools
import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedcomp
from tests.outside import write_files

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "fedcomp"
LOOSE = {"__init__", "__main__"}

CONTRACTS_ONLY = {
    "algorithm": ("contract",),
    "participation": ("contract", "cohorts"),
    "model": ("contract", "tunable", "chunking", "loss", "lora"),
}
"""Rooms of which `simulation` may import these files alone: it names no method and no model's class."""

EDGES = {"hydra": ("cli/", "config/"), "wandb": ("tracking/wandb.py",)}
"""Libraries, and where alone they may be imported."""
OPTIONAL = {"pandas", "polars", "safetensors", "IPython", "triton", "wandb_workspaces", "pyarrow"}
OPTIONAL |= {"datasets", "transformers"}
"""Imported where they are installed; fedcomp works without them."""
OTHERWISE = {"yaml": "pyyaml", "sklearn": "scikit-learn", "PIL": "pillow", "hydra": "hydra-core"}
OTHERWISE |= {"llvmlite": "numba", "sqlalchemy": "optuna", "scipy": "scikit-learn"}
"""Packages with another name than what they bring, alone or with another one."""


def _floors() -> dict[str, int]:
    """{room: floor} as the table in docs/architecture.md has it."""
    rows = re.findall(r"^\| (\d+) \| ([^|]*) \|", (ROOT / "docs" / "architecture.md").read_text(), flags=re.M)
    return {room: int(floor) for floor, rooms in rows for room in re.findall(r"`(\w+)`", rooms)}


def _files(package: Path) -> dict[str, Path]:
    """{full name of the module: its file}."""
    return {_name(path, package): path for path in sorted(package.rglob("*.py"))}


def _name(path: Path, package: Path) -> str:
    words = (package.name, *path.relative_to(package).with_suffix("").parts)
    return ".".join(words).removesuffix(".__init__")


@functools.cache
def _nodes(text: str) -> list[ast.AST]:
    """A file and all its statements, which are the same for all tests."""
    tree = ast.parse(text)
    return [tree, *_statements(tree)]


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield child
            yield from _statements(child)


def _imports(path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """Everything that the file imports, in functions and for type checkers too; modules of the package by full name."""
    for node in _nodes(path.read_text()):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by the full name"
            names = [f"{node.module}.{one.name}" for one in node.names]
            yield from (name if name in modules else str(node.module) for name in names)


def wrong_imports(package: Path, floors: dict[str, int]) -> list[str]:
    """One line for every import of a room that is not on a lower floor, and for every file that lies in no room."""
    modules = _files(package)
    found = []
    for name, path in modules.items():
        room = name.split(".")[1] if name.count(".") else ""
        if name.count(".") < 2 and path.name != "__init__.py":  # loose files: the package's own entry
            if path.stem not in LOOSE:
                found.append(f"{path.name} lies in no room")
            continue
        if not room:
            continue
        if room not in floors:
            found.append(f"{room} is no room of docs/architecture.md")
            continue
        for other in _imports(path, modules):
            words = other.split(".")
            if words[0] != package.name or len(words) < 2 or words[1] == room:
                continue
            if words[1] not in floors or floors[words[1]] >= floors[room]:
                found.append(f"{name} imports {other}")
    return found


def circles(package: Path) -> list[str]:
    """Every circle of imports that a walk through the modules meets, as `a -> b -> a`."""
    modules = _files(package)
    graph = {
        name: sorted({one for one in _imports(path, modules) if one in modules and not name.startswith(f"{one}.")})
        for name, path in modules.items()
    }
    done: set[str] = set()
    found = []

    def visit(name: str, trail: list[str]) -> None:
        if name in trail:
            found.append(" -> ".join([*trail[trail.index(name) :], name]))
        elif name not in done:
            for other in graph[name]:
                visit(other, [*trail, name])
            done.add(name)

    for name in graph:
        visit(name, [])
    return found


def test_the_table_names_every_room() -> None:
    assert set(_floors()) == {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name[0] != "_"}


def test_imports_run_down() -> None:
    assert wrong_imports(PACKAGE, _floors()) == []


def test_there_is_no_circle() -> None:
    assert circles(PACKAGE) == []


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A package of three rooms without a fault."""
    package = tmp_path / "house"
    files = {
        "__init__.py": "",
        "low/__init__.py": "",
        "low/a.py": "import math\n",
        "mid/__init__.py": "",
        "mid/b.py": "from house.low import a\n",
        "top/__init__.py": "",
        "top/c.py": "from house.mid.b import a\nfrom house.low.a import math\n",
    }
    return write_files(package, files)


HOUSE = {"low": 0, "mid": 1, "top": 2}


def test_a_planted_fault_is_found(planted) -> None:
    assert wrong_imports(planted, HOUSE) == circles(planted) == []
    (planted / "low" / "a.py").write_text("def f():\n    from house.top import c\n")
    assert wrong_imports(planted, HOUSE) == ["house.low.a imports house.top.c"]
    assert "house.low.a -> house.top.c -> house.low.a" in circles(planted)


def test_a_planted_loose_file_and_a_room_without_a_name_are_found(planted) -> None:
    (planted / "loose.py").write_text("")
    (planted / "attic").mkdir()
    (planted / "attic" / "d.py").write_text("")
    found = wrong_imports(planted, HOUSE)
    assert "loose.py lies in no room" in found
    assert "attic is no room of docs/architecture.md" in found


def test_a_planted_circle_within_a_room_is_found(planted) -> None:
    (planted / "low" / "a.py").write_text("from house.low import e\n")
    for_types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import house.low.a\n"
    (planted / "low" / "e.py").write_text(for_types)
    assert circles(planted) == ["house.low.a -> house.low.e -> house.low.a"]


def test_simulation_names_no_method_and_no_model() -> None:
    modules = _files(PACKAGE)
    for name, path in modules.items():
        if name.startswith("fedcomp.simulation"):
            for other in _imports(path, modules):
                words = other.split(".")
                if words[0] == "fedcomp" and words[1] in CONTRACTS_ONLY:
                    assert words[2] in CONTRACTS_ONLY[words[1]], f"{name} imports {other}"


def test_edges() -> None:
    modules = _files(PACKAGE)
    for path in modules.values():
        imported = {name.split(".")[0] for name in _imports(path, modules)}
        for library, places in EDGES.items():
            if library in imported:
                assert str(path.relative_to(PACKAGE)).startswith(places), f"{path} imports {library}"


def test_no_global_seed() -> None:
    for path in _files(PACKAGE).values():
        for call in ("torch.manual_seed(", "np.random.seed(", "random.seed(", "torch.cuda.manual_seed("):
            assert call not in path.read_text(), f"{path} seeds a global generator"


def test_no_file_is_two_concepts_long() -> None:
    for path in _files(PACKAGE).values():
        assert len(path.read_text().splitlines()) <= 330, path


def test_no_two_classes_have_one_name() -> None:
    """But for the optimisers, which have the same names at clients and at the server."""
    found: dict[str, list[str]] = {}
    for name, path in _files(PACKAGE).items():
        for node in _nodes(path.read_text())[0].body:  # type: ignore[attr-defined]
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(name)
    several = {name: modules for name, modules in found.items() if len(modules) > 1}
    allowed = [["fedcomp.client.adam", "fedcomp.server.adam"], ["fedcomp.client.sgd", "fedcomp.server.sgd"]]
    assert all(modules in allowed for modules in several.values()), several


def test_windows_is_refused_in_one_line(monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ImportError, match="run it in WSL"):
        importlib.reload(fedcomp)


def test_what_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["grids"]]
    packages = {re.split(r"[<>=\[;]", one)[0].strip().lower() for one in declared}
    files = [path for folder in (PACKAGE, ROOT / "hydra_plugins") for path in folder.rglob("*.py")]
    names = {name.split(".")[0] for path in files for name in _imports(path, {})}
    for name in names - {*sys.stdlib_module_names, *OPTIONAL, "fedcomp", "hydra_plugins"}:
        assert OTHERWISE.get(name, name) in packages, f"{name} is imported, but is no dependency"
