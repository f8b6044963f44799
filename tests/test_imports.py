"""Imports run one way, and the libraries of the edges stay at the edges."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "fedcomp"

CORE = {"keys", "philox", "philox_numba", "compiled", "cohort", "state", "row_update", "tensors", "numeric"}
CORE |= {"naming", "nearest", "free_memory"}
ALLOWED = {
    "wire": CORE,
    "model": CORE,
    "dataset": CORE,
    "partition": CORE,
    "participation": CORE,
    "tracking": set(),
    "report": {"tracking", "run_folder", "leave", "naming", "nearest"},
    "objective": {"tracking"},
    "sweeper": {"objective", "run_folder"},
    "launcher": {"tracking", "assemble", "simulation", "stop"},
    "status": {"tracking", "run_folder", "report", "launcher", "leave"},
    "provenance": {"tracking", "run_folder", "dataset", "__version__"},
    "server": CORE,
    "client": CORE | {"model"},
    "compressor": CORE | {"wire"},
    "algorithm": CORE | {"wire", "compressor", "client", "server"},
    "simulation": CORE | {"wire", "client", "algorithm", "dataset", "model", "participation", "tracking"},
}
"""What each folder may import beside itself."""

CONTRACTS_ONLY = {"client": {"model"}, "simulation": {"algorithm", "participation", "tracking"}}
"""Folders of which only the contract may be imported (tracking: files, which are no method either)."""

EDGES = {
    "hydra": {"cli.py", "quoting.py", "config_errors.py", "assemble.py", "schema.py"},
    "wandb": {"tracking/wandb.py"},
}


def _imports(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by the full name"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def _modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE), _imports(path)


def test_imports_run_one_way() -> None:
    for path, imports in _modules():
        if len(path.parts) == 1:
            continue
        room = path.parts[0]
        for name in imports:
            parts = name.split(".")
            if parts[0] == "fedcomp" and parts[1] != room:
                assert parts[1] in ALLOWED[room], f"{path} imports {name}"


def test_simulation_names_no_method() -> None:
    for path, imports in _modules():
        for other in CONTRACTS_ONLY.get(path.parts[0], ()):
            for name in imports:
                if name.startswith(f"fedcomp.{other}.") and other != "tracking":
                    assert name.split(".")[2] == "contract", f"{path} imports {name}"


def test_edges() -> None:
    for path, imports in _modules():
        for library, places in EDGES.items():
            if any(name.split(".")[0] == library for name in imports):
                assert str(path) in places, f"{path} imports {library}"


def test_no_global_seed() -> None:
    for path, _ in _modules():
        text = (PACKAGE / path).read_text()
        for call in ("torch.manual_seed", "np.random.seed", "random.seed(", "torch.cuda.manual_seed"):
            assert call not in text, f"{path} seeds a global generator"


def test_no_file_is_two_concepts_long() -> None:
    for path, _ in _modules():
        assert len((PACKAGE / path).read_text().splitlines()) <= 300, path
