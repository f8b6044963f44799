"""A run's folder from somebody else: it runs no code, writes nowhere else, and what was changed in it is noticed."""

import json
import shutil
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from PIL import Image

from fedcomp.api import Run, load_runs, run
from fedcomp.api.evaluate import main as evaluate
from fedcomp.api.export import main as export
from fedcomp.provenance.code import source
from fedcomp.records.reader import RunFiles, read_run
from fedcomp.replay.__main__ import main as replay

OPTIONS = ["num_clients=4", "rounds=2", "pictures=false", "quiet=true", "device=cpu", "record_traffic=true"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run([*OPTIONS, f"output_root={tmp_path_factory.mktemp('run')}"]).folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "given" / "seed=0"))


def _change(folder: Path, **values: Any) -> None:
    config = OmegaConf.load(folder / "config.yaml")
    for key, value in values.items():
        OmegaConf.update(config, key.replace("__", "."), value, merge=False, force_add=True)
    OmegaConf.save(config, folder / "config.yaml")


def _one_line(call: Callable[[list[str]], int], words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert call(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


PARTS = [
    {"model": {"_target_": "os.system", "command": "touch {proof}"}},
    {"model__init": {"_target_": "os.mknod", "_args_": ["{proof}"]}},
    {"dataset": {"_target_": "joblib.load", "filename": "{folder}/evil.pkl"}},
    {"client": {"_target_": "torch.load", "f": "{folder}/evil.pkl", "weights_only": False}},
    {"algorithm__sends": {"_target_": "numpy.load", "file": "{folder}/evil.pkl", "allow_pickle": True}},
    {"model": {"_target_": "fedcomp.model.networks.module.own", "_partial_": True, "path": "evil.Net"}},
]


@pytest.mark.parametrize("part", PARTS, ids=[str(next(iter(part.values()))["_target_"]) for part in PARTS])
def test_code_that_is_not_fedcomp_s_is_not_run(folder: Path, tmp_path: Path, part, capsys, monkeypatch) -> None:
    proof = tmp_path / "proof"
    (tmp_path / "evil.py").write_text(f"import pathlib; pathlib.Path({str(proof)!r}).touch()")
    monkeypatch.chdir(tmp_path)
    text = json.dumps(part).replace("{proof}", str(proof)).replace("{folder}", str(folder))
    _change(folder, **json.loads(text))
    for call, words in ((evaluate, []), (evaluate, ["dataset.split_seed=1"]), (export, [str(tmp_path / "model.pt")])):
        line = _one_line(call, [str(folder), *words], capsys)
        assert "names code that is not fedcomp's" in line
        assert "--trust-code" in line
    with pytest.raises(ValueError, match="names code that is not fedcomp's"):
        Run(folder).model()
    assert not proof.exists()


@pytest.mark.parametrize("target", ["fedcomp.core.first_line.first_line", "fedcomp.partition.of_another_version.IID"])
def test_a_name_of_fedcomp_that_is_no_part_of_it_is_not_called(folder: Path, target: str, capsys) -> None:
    _change(folder, partition={"_target_": target, "error": "not called"})
    line = _one_line(evaluate, [str(folder)], capsys)
    assert f"names {target}, which is no part of this version of fedcomp: take the version that made the run" in line


def test_a_reference_stands_for_no_code(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proof = tmp_path / "proof"
    part = f"{{_target_:os.mknod,_args_:['{proof}']}}"
    for reference in (f"${{oc.create:{part}}}", f'${{oc.create:${{oc.decode:"{part}"}}}}', "${oc.create:{a=}}"):
        config = {**OmegaConf.load(folder / "config.yaml"), "evaluation": reference}
        (folder / "config.yaml").write_text(json.dumps(config, default=OmegaConf.to_container))
        assert "a run writes no reference, ${...}" in _one_line(evaluate, [str(folder), "--trust-code"], capsys)
        assert not proof.exists()


def test_the_user_s_own_code_runs_where_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    code = "from torch import nn\nclass Small(nn.Linear):\n    def __init__(self): super().__init__(64, 10)\n"
    (tmp_path / "small_net.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    done = run([*OPTIONS, f"output_root={tmp_path}", "model=module", "model.path=small_net.Small"])
    with pytest.raises(ValueError, match=r"module.own of path=small_net.Small\).*trust_code=True"):
        done.model()
    assert done.model(trust_code=True).weight.shape == (10, 64)
    assert evaluate([str(done.folder), "--trust-code"]) == 0
    assert "has changed" not in caplog.text
    (tmp_path / "small_net.py").write_text(f"{code}# another order of its parameters, say")
    source.cache_clear()  # as a new process would read it
    assert export([str(done.folder), str(tmp_path / "model.pt"), "--trust-code"]) == 0
    assert "the code has changed since the run: small_net.py has changed; its weights lie in the order" in caplog.text


@pytest.mark.parametrize("flags", [[], ["--config-dir", "mine"]], ids=["current folder", "config folder"])
def test_a_model_of_ones_own_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str]) -> None:
    name = f"net_of_{len(flags)}"
    code = "from torch import nn\nclass Small(nn.Linear):\n    def __init__(self): super().__init__(64, 10)\n"
    (tmp_path / "mine").mkdir()
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.chdir(tmp_path)
    (tmp_path.joinpath(*flags[1:]) / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path.joinpath(*flags[1:]))
    done = run([*OPTIONS, f"output_root={tmp_path}", "model=module", f"model.path={name}.Small"])
    sys.path.remove(str(tmp_path.joinpath(*flags[1:])))
    sys.modules.pop(name)
    assert export([str(done.folder), "model.pt", "--trust-code", *flags]) == 0


def test_names_do_not_lead_elsewhere(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for key in ("name", "seed"):
        kept = (folder / "config.yaml").read_text()
        _change(folder, **{key: "../../evil"})
        assert replay([str(folder), "network=lte", "--out", str(tmp_path / "out")]) == 1
        assert "left out: " in (said := capsys.readouterr().err)
        assert "../../evil" in said
        (folder / "config.yaml").write_text(kept)
    table = tmp_path / "t.csv"
    table.write_text("x,y\n" + "".join(f"{n},{n % 2}\n" for n in range(20)))
    _change(folder, dataset={"_target_": "fedcomp.dataset.tables.csv.load", "path": str(table), "target": "y"})
    _change(folder, dataset__name="../../../evil")
    assert "dataset.name='../../../evil' must be a folder's name" in _one_line(evaluate, [str(folder)], capsys)
    assert not list(tmp_path.glob("**/evil*"))


BOMB = "a: &a [1]\n" + "".join(f"{name}: &{name} [*{last}, *{last}]\n" for last, name in pairwise("abcdefgh"))
NO_CONFIG = {
    None: "has no config.yaml",
    "- 1\n- 2\n": "is no config: it must be a mapping",
    "model: 3\n": "is no config of a run",
    "rounds: many\n": "is no config of a run",
    "rounds: 0\n": "rounds is 0, but must be a whole number of 1 or more",
    f"rounds: {2**63}\n": "but must be a whole number of 1 or more, below 2^63",
    BOMB: "is no YAML of a run: it has an alias, *a",
    "a: &a [*a]\n": "is no YAML of a run: it has an alias, *a",
    f"a: {'[' * 3_000}{']' * 3_000}\n": "is no YAML of a run: it is nested too deeply",
    f"a: {'[' * 100_000}": "is no YAML of a run: it is nested too deeply",  # a parser in C would run out of stack
}


@pytest.mark.parametrize("content", NO_CONFIG)
def test_a_config_that_is_none_is_one_line(folder: Path, content: str | None, capsys) -> None:
    path = folder / "config.yaml"
    path.unlink() if content is None else path.write_text(content)
    assert NO_CONFIG[content] in _one_line(evaluate, [str(folder)], capsys)
    assert NO_CONFIG[content] in _one_line(export, [str(folder), str(folder / "model.pt")], capsys)


def test_a_config_that_was_changed_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    momentum = {"_target_": "fedcomp.server.sgd.Sgd", "lr": 1.0, "momentum": 0.9, "nesterov": False}
    for said, change in (
        ("checkpoint.pt does not fit: state 'optimizer", {"server": momentum}),
        ("model=3 is no part of a run", {"model": 3}),
        ("is no config of a run: Key 'colour' not in 'RunConfig'", {"colour": "blue"}),
    ):
        _change(folder, **change)
        assert said in _one_line(evaluate, [str(folder)], capsys)


def test_a_record_that_was_changed_is_no_result(folder: Path) -> None:
    path = folder / "metrics.jsonl"
    content = path.read_bytes()
    assert read_run(RunFiles(folder)).finished
    place = content.rindex(b'"test/loss": ') + len(b'"test/loss": ') + 2
    path.write_bytes(content[:place] + bytes([b"0123456789"[(content[place] - 47) % 10]]) + content[place + 1 :])
    (recorded,) = load_runs(folder)
    assert recorded.state == "unreadable"
    with pytest.raises(ValueError, match=r"metrics\.jsonl is not what the run wrote \(its checksum differs\)"):
        _ = recorded.lines


@pytest.mark.thorough
def test_formulas_of_class_names_are_escaped(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for name, grey in (("=1+1", 0), ("fine", 200)):
            (tmp_path / "images" / split / name).mkdir(parents=True)
            for number in range(2):
                pixels = np.full((8, 8), grey + number, np.uint8)
                Image.fromarray(pixels).save(tmp_path / "images" / split / name / f"{number}.png")
    words = [f"output_root={tmp_path / 'out'}", "dataset=image_folder", f"dataset.folder={tmp_path / 'images'}"]
    done = run([*OPTIONS, *words, "model=logistic", "num_clients=2", "partition=iid"])
    assert evaluate([str(done.folder)]) == 0
    (table,) = done.folder.rglob("classes.csv")
    assert [row.split(",")[0] for row in table.read_text().splitlines()[1:]] == ["'=1+1", "fine"]
