"""What is published: versions that agree, a wheel that needs no repository."""

import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

import fedcomp

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_versions_agree() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == fedcomp.__version__
    headings = re.findall(r"^## (.*)", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    assert next(one for one in headings if one != "Unreleased") == fedcomp.__version__
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


def test_the_pythons_agree() -> None:
    """What may be installed, what is promised, and what CI looks for."""
    prefix = "Programming Language :: Python :: 3."
    minors = [int(one.removeprefix(prefix)) for one in PROJECT["classifiers"] if one.startswith(prefix)]
    assert minors == list(range(minors[0], minors[-1] + 1))
    first, last = minors[0], minors[-1]
    assert PROJECT["requires-python"] == f">=3.{first},<3.{last + 1}"
    assert f"Python 3.{first} to 3.{last}" in (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    assert f"(3, {first}) <= v < (3, {last + 1})" in makefile
    assert f"needs Python 3.{first} to 3.{last}" in makefile
    assert f"NEWEST_PYTHON ?= python3.{last}\n" in makefile
    if (ROOT / ".ci").exists():  # it is not published
        assert f"in {' '.join(f'3.{one}' for one in reversed(minors))}; do" in (ROOT / ".ci" / "run").read_text()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], check=True, capture_output=True)
    return folder


@pytest.mark.slow
def test_contents(built: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    assert wheel.name.startswith(f"fedcomp-{fedcomp.__version__}-")
    names = set(zipfile.ZipFile(wheel).namelist())
    data = {"py.typed", "conf/train.yaml", "conf/experiment/quickstart.yaml", "reporting/page.css", "reporting/page.js"}
    assert {f"fedcomp/{name}" for name in data} <= names
    tops = {name.split("/")[0] for name in names}
    assert tops == {"fedcomp", "hydra_plugins", f"fedcomp-{fedcomp.__version__}.dist-info"}
    assert {name for name in names if name.endswith(".yaml")} == {
        f"fedcomp/{path.relative_to(ROOT)}" for path in (ROOT / "conf").rglob("*.yaml")
    }
    with tarfile.open(sdist) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    assert {"CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "constraints.txt", "tests/test_packaging.py"} <= found


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment of its own with the wheel, which sees this one's torch, but not the repository."""
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    script = "import site; print(site.getsitepackages()[0])"
    site = subprocess.run([python, "-c", script], check=True, capture_output=True, text=True).stdout.strip()
    here = next(path for path in sys.path if path.endswith("site-packages"))
    (Path(site) / "shared.pth").write_text(here + "\n")
    (wheel,) = built.glob("*.whl")
    install = ["-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", str(wheel)]
    subprocess.run([python, *install], check=True)
    return folder / "bin"


def _run(command: list[str | Path], folder: Path) -> str:
    """What a command prints in a folder, without this repository in its environment."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, command)), cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_quickstart_runs_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    """`scripts/quickstart.py` and, as a user would, the command line, Python, report, status and evaluation."""
    python = installed / "python"
    where = _run([python, "-c", "import fedcomp; print(fedcomp.__file__)"], tmp_path)
    assert str(installed.parent) in where
    script = tmp_path / "quickstart.py"
    script.write_text((ROOT / "scripts" / "quickstart.py").read_text())
    assert "top 3 %, error feedback" in _run([python, script], tmp_path)
    script.unlink()
    assert "18 runs: 18 done" in _run([installed / "fedcomp-status"], tmp_path)
    assert (tmp_path / "outputs" / "quickstart" / "report" / "report.html").is_file()
    run = next((tmp_path / "outputs" / "quickstart").rglob("config.yaml")).parent
    assert "by client (20 clients)" in _run([installed / "fedcomp-evaluate", run], tmp_path)
    code = "import fedcomp; print(len(fedcomp.load_runs('outputs')))"
    assert _run([python, "-c", code], tmp_path).strip() == "18"
    _run([python, "-m", "fedcomp", "rounds=2", "quiet=true"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROJECT["scripts"])
def test_every_script_starts(installed: Path, tmp_path: Path, name: str) -> None:
    assert "usage:" in _run([installed / name, "--help"], tmp_path)


@pytest.mark.slow
def test_types_reach_the_user(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import fedcomp\nfedcomp.run(3)\n")
    command = [installed / "python", "-m", "mypy", "--follow-imports=silent", "mine.py"]
    done = subprocess.run(list(map(str, command)), cwd=tmp_path, capture_output=True, text=True, env={"PATH": ""})
    assert 'Argument 1 to "run" has incompatible type "int"' in done.stdout, done.stdout + done.stderr
