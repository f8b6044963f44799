"""The cases of every test_conformance*.py in this folder and below, for the suites that run them on other devices."""

from importlib import import_module
from pathlib import Path

from tests.conformance.algorithm import AlgorithmCase

HERE = Path(__file__).parent


def _module(path: Path) -> str:
    return ".".join(["tests.algorithm", *path.relative_to(HERE).with_suffix("").parts])


CASES: list[AlgorithmCase] = [
    case for path in sorted(HERE.rglob("test_conformance*.py")) for case in import_module(_module(path)).CASES
]
