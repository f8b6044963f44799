"""Which files are a user's own code: found by reading, nothing is executed."""

import sys
from pathlib import Path

import pytest

from fedcomp.provenance import code
from fedcomp.provenance.code import code_files, code_parts


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    code.source.cache_clear()
    content = {
        "quarter_.py": "import beside_, torch, json\nraise SystemExit('nothing is executed')\n",
        "beside_.py": "from lab_.deep import tools\nimport missing_\n",
        **dict.fromkeys(("unused_.py", "lab_/__init__.py", "lab_/shared.py", "lab_/other.py"), ""),
        "lab_/deep/__init__.py": "from .. import shared\n",
        "lab_/deep/tools.py": "from .more import thing\nfrom ..shared import thing\nfrom fedcomp.wire import Link\n",
        "lab_/deep/more.py": "import beside_\nthing = 1\n",
        "space_/one.py": "from space_ import two\n",
        "space_/two.py": "this is no Python",
    }
    for name, text in content.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


LAB = ["beside_.py", "lab_/__init__.py", "lab_/deep/__init__.py", "lab_/deep/more.py", "lab_/deep/tools.py"]


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("quarter_.Quarter", [*LAB, "lab_/shared.py", "quarter_.py"]),
        ("lab_.shared.Thing.make", ["lab_/__init__.py", "lab_/shared.py"]),
        ("space_.one.f", ["space_/one.py", "space_/two.py"]),
        *((name, []) for name in ("missing_.f", "torch.nn.Linear", "PIL.Image.open", "collections.OrderedDict")),
        ("fedcomp.compressor.sparsifiers.topk.TopK", []),
    ],
)
def test_own_files(files: Path, target: str, names: list[str]) -> None:
    nested = {"compressor": {"inner": [{"_target_": target}]}}
    assert list(code_parts(nested)) == sorted(names)
    assert all(path.is_relative_to(files) for path in code_files(nested).values())
    assert code_parts({"tracker": {"_target_": target}}) == {}, "a view of a run changes no number"


def test_a_package_installed_anywhere_is_not_the_users(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by `pip install --target`, into a folder that PYTHONPATH names."""
    bought = files / "bought"
    for name, text in {"pack_/__init__.py": "", "pack_-1.0.dist-info/METADATA": "Name: pack_\nVersion: 1.0\n"}.items():
        (bought / name).parent.mkdir(parents=True, exist_ok=True)
        (bought / name).write_text(text)
    (bought / "loose_.py").write_text("import pack_\n")
    monkeypatch.syspath_prepend(str(bought))
    asked = []
    monkeypatch.setattr(code.sysconfig, "get_path", lambda name: asked.append(name) or "/nowhere")
    config = {"model": [{"_target_": "pack_.Net"}, {"_target_": "loose_.Net"}, {"_target_": "quarter_.Quarter"}]}
    assert sorted(code_parts(config)) == sorted([*LAB, "lab_/shared.py", "loose_.py", "quarter_.py"])
    assert len(asked) == 4, "once for each of Python's folders"


def test_a_process_has_the_code_that_it_began_with(files: Path) -> None:
    config = {"model": {"_target_": "lab_.shared.f"}}
    before = code_parts(config)
    (files / "lab_" / "shared.py").write_text("# edited\n")
    assert code_parts(config) == before
    code.source.cache_clear()
    assert code_parts(config) != before
