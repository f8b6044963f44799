"""What a user meets: a run and its files, one clear line for wrong input, the record kept when a run fails."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedcomp.cli.arguments import parse
from fedcomp.config.compose import compose
from fedcomp.config.overrides import quote
from fedcomp.core.choices import choices
from fedcomp.display import figure
from fedcomp.records.metrics_file import read_lines
from fedcomp.records.run_folder import owned
from fedcomp.simulation.divergence import has_diverged
from tests.left import folder_of, record, status_of
from tests.looped import looped
from tests.outside import write_files

QUICK = ("rounds=4", "num_clients=5", "client.batch_size=40")


def test_a_run_without_matplotlib_says_so_once(fedcomp_with_pictures, tmp_path: Path, capsys, monkeypatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # an import of it fails
    monkeypatch.setattr(figure, "find_spec", lambda name: None)
    assert fedcomp_with_pictures(*QUICK) == 0
    shown = capsys.readouterr().err
    assert shown.count("no pictures: matplotlib is not installed") == 1
    assert "record in" in shown
    assert list(tmp_path.rglob("metrics.jsonl"))
    assert not list(tmp_path.rglob("*.png"))


def test_a_run_leaves_its_record(fedcomp_with_pictures, tmp_path: Path, capsys) -> None:
    assert fedcomp_with_pictures(*QUICK, "eval_every=3", "compressor=topk") == 0
    folder = folder_of(tmp_path)
    assert folder.name == "seed=0"
    assert folder.parent.parent == tmp_path / "fedcomp"
    names = {path.name for path in folder.iterdir()}
    assert names >= {"config.yaml", "metrics.jsonl", "status.json", "run.log", "checkpoint.pt"}
    assert names >= {"curve.png", "partition.png"}
    assert "mean label entropy of a client 2.2" in (folder / "run.log").read_text()  # of ln 10 = 2.303 at most
    status = json.loads((folder / "status.json").read_text())
    assert status.pop("record").keys() == {"metrics.jsonl"}
    assert status == {"state": "finished", "round": 4, "error": None}
    lines = read_lines(folder / "metrics.jsonl")
    assert [line["round"] for line in lines] == [0, 3, 4]
    assert lines[0]["bits/total"] == 0
    wanted = {"test/accuracy", "test/loss", "train/loss", "seconds"}
    wanted |= {f"{kind}/{link}" for kind in ("bits", "bpp") for link in ("uplink", "downlink", "broadcast", "total")}
    assert wanted | {f"paper/{name}" for name in wanted if name[:3] in ("bit", "bpp")} <= lines[-1].keys()
    dim, kept = 2410, round(0.03 * 2410)
    assert lines[-1]["paper/bits/uplink"] == 4 * 5 * 32 * kept
    assert lines[-1]["bits/downlink"] == 4 * 5 * 32 * dim
    assert lines[-1]["bpp/broadcast"] == 32 / 5
    assert "record and pictures in" in capsys.readouterr().err


def test_pictures_are_named_where_there_are_some(fedcomp_with_pictures, tmp_path: Path, capsys) -> None:
    for options in (("pictures=false",), ()):  # the second finds a finished run
        assert fedcomp_with_pictures(*QUICK, *options) == 0
        assert f"record in {folder_of(tmp_path)}" in capsys.readouterr().err


def test_a_finished_run_returns_at_once_and_overwrite_redoes_it(fedcomp, tmp_path: Path, capsys) -> None:
    assert fedcomp(*QUICK) == 0
    record = folder_of(tmp_path) / "metrics.jsonl"
    before = record.stat().st_mtime_ns
    assert fedcomp(*QUICK) == 0
    assert "already finished: accuracy" in capsys.readouterr().err
    assert record.stat().st_mtime_ns == before
    assert fedcomp(*QUICK, "overwrite=true") == 0
    assert record.stat().st_mtime_ns > before


def test_empty_rounds_are_counted_cost_nothing_and_are_warned_of(fedcomp, tmp_path: Path, capsys) -> None:
    rare = (*QUICK, "participation=bernoulli", "participation.probability=1e-9")
    assert fedcomp(*rare) == 0
    said = "warning: nobody took part in any of the 4 rounds, so that nothing was learnt: see the options of participat"
    assert said in capsys.readouterr().err
    lines = record(tmp_path)
    assert lines[-1]["round"] == 4
    assert lines[-1]["bits/total"] == 0
    assert lines[-1]["test/loss"] == lines[0]["test/loss"]
    assert not any("train/loss" in line for line in lines)
    assert fedcomp(*rare, "participation.schedule={2: 1.0}") == 0
    assert "warning" not in capsys.readouterr().err


def test_the_downlinks_compressor_is_chosen_by_its_short_name() -> None:
    for word in ("downlink=sign", "compressor@downlink=sign"):
        assert compose([word, "downlink.feedback=error"]).downlink._target_.endswith("Sign")
    assert quote("downlink=sign,topk") == "compressor@downlink=sign,topk"
    assert quote("downlink=null") == "downlink=null"


def test_memory_that_does_not_fit(fedcomp, capsys, monkeypatch) -> None:
    monkeypatch.setattr("fedcomp.memory.check.free_bytes", lambda device: 100_000)
    assert fedcomp(*QUICK, "compressor=topk", "compressor.feedback=error") == 1
    shown = capsys.readouterr().err.strip()
    assert "the run needs more than" in shown
    assert "most of it uplink.sender" in shown
    assert "\n" not in shown


def test_a_diverging_run_stops_with_round_client_and_remedy(fedcomp, tmp_path: Path, capsys) -> None:
    assert fedcomp(*QUICK, "client.lr=1e30") == 1
    shown = capsys.readouterr().err
    assert "round 1: the loss of client" in shown
    assert "lower client.lr or server.lr, or set client.clip_norm" in shown
    status = status_of(tmp_path)
    assert status.state == "failed"
    assert "round 1" in str(status.error)
    assert [line["round"] for line in record(tmp_path)] == [0]


def test_values_of_later_rounds_that_an_own_codec_may_have_made(fedcomp, tmp_path: Path, capsys) -> None:
    code = (
        "from dataclasses import dataclass\n"
        "from fedcomp.compressor.dense import Dense\n"
        "@dataclass(frozen=True)\n"
        "class Falters(Dense):\n"
        "    def decode(self, payload, common):\n"
        "        return super().decode(payload, common) / (0 if 1 in common.key.path else 1)\n"
    )
    files = {"compressor/falters.yaml": "_target_: falters.Falters\n", "falters.py": code}
    mine, outputs = write_files(tmp_path / "mine", files), f"output_root={tmp_path / 'outputs'}"
    assert fedcomp("--config-dir", str(mine), *QUICK, "seed=7", "compressor=falters", outputs) == 1
    shown = capsys.readouterr().err.strip()
    assert "error: round 2: the " in shown
    assert shown.endswith("; or correct Falters, if a codec of your own makes them (fedcomp-check tries it by itself)")
    assert has_diverged(str(status_of(tmp_path / "outputs").error))


@pytest.mark.thorough
def test_flags_and_overrides_in_any_order(fedcomp, tmp_path: Path, capsys) -> None:
    choice = "defaults: [topk, _self_]\nfraction: 0.25\n"
    mine = write_files(tmp_path / "mine", {"compressor/quarter.yaml": choice})
    given = ("eval_every=2", "--config-dir", str(mine), "compressor=quarter")
    assert fedcomp(*given, "--cfg", "job", "name=cfg") == 0
    assert "fraction: 0.25" in capsys.readouterr().out
    out = f"output_root={tmp_path / 'outputs'}"
    assert fedcomp(*QUICK[1:], *given, "quiet=true", "-m", "rounds=2,3", out) == 0
    assert len(list((tmp_path / "outputs").rglob("metrics.jsonl"))) == 2


def test_a_folder_in_use_is_refused(fedcomp, tmp_path: Path, capsys) -> None:
    assert fedcomp(*QUICK) == 0
    with owned(folder_of(tmp_path)):
        assert fedcomp(*QUICK, "overwrite=true") == 1
    assert "is being written by " in capsys.readouterr().err


OWN = """from torch.nn import Flatten, Linear, Sequential
def net(input_shape, num_outputs, width):
    return Sequential(Flatten(), Linear(64, width), Linear(width, num_outputs))
def any_net(input_shape, num_outputs, **options):
    return net(input_shape, num_outputs, options["width"])
"""


@pytest.mark.parametrize("own", ["net", "any_net"])
def test_a_part_of_ones_own_has_the_keys_that_it_takes(fedcomp, capsys, tmp_path: Path, own: str) -> None:
    choice = f"_target_: own_nets.{own}\n_partial_: true\n"
    mine = write_files(tmp_path / "mine", {"own_nets.py": OWN, "model/own.yaml": choice})
    flags = "--config-dir", str(mine), "model=own", "+model.width=3"
    assert fedcomp(*flags, *QUICK) == 0
    if own == "net":
        assert fedcomp(*flags, *QUICK, "+model.wide=3") == 1
        assert "no option 'model.wide'; did you mean 'width'?" in capsys.readouterr().err


@looped(
    "line, sorted_line",
    [
        ("rounds=5 --config-dir mine compressor=quarter", "--config-dir=mine rounds=5 compressor=quarter"),
        ("rounds=5 -m", "--multirun rounds=5"),
        ("rounds=5 --cfg job", "--cfg=job rounds=5"),
        ("-m a=1 --config-dir mine b=2", "--multirun --config-dir=mine a=1 b=2"),
        ("a=1 -cd=mine b=2", "--config-dir=mine a=1 b=2"),
        ("a=1 --multi b=2", "--multirun a=1 b=2"),
        ("a=1 -i b=2", "--info=all a=1 b=2"),
        ("a=1 -i defaults b=2", "--info=defaults a=1 b=2"),
        ("a=1 -c job -p client --resolve", "--cfg=job --package=client --resolve a=1"),
        ("-m -- a=1", "--multirun a=1"),
        ("'~c' +d=1", "'~c' +d=1"),
        ("a=1 --safe -m", "--multirun a=1 safe=true"),
    ],
)
def test_flags_come_first(line: str, sorted_line: str) -> None:
    assert parse(line.split()).argv == sorted_line.split()


def test_the_config_folder() -> None:
    assert parse(["a=1", "--config-dir", "mine", "b=2"]).config_folder == Path("mine").resolve()
    assert parse(["a=1", "-cd=~"]).config_folder == Path.home()
    assert parse(["a=1"]).config_folder is None


@looped(
    "line, message",
    [
        ("a=1 --multirn", r"there is no flag --multirn; did you mean --multirun\?"),
        ("--config a=1", "there is no flag --config; did you mean --config-path or --config-name or --config-dir"),
        ("--rounds=5", "there is no flag --rounds: an option has no dashes before its name: rounds=VALUE"),
        ("--client.lr 0.1", "there is no flag --client.lr: an option has no dashes before its name: client.lr=VALUE"),
        ("a=1 -downlink=sign", "there is no flag -downlink: an option has no dashes"),
        ("a=1 --config-dir", "--config-dir needs a value"),
        ("--config-dir -m", "--config-dir needs a value"),
        ("--cfg compressor=topk", "--cfg needs one of job, hydra, all, not compressor=topk"),
        ("--multirun=true", "--multirun takes no value: leave =true out"),
        ("--config-dir a --config-dir b", "--config-dir is given twice: give one folder"),
    ],
)
def test_a_wrong_flag_is_one_line(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        parse(line.split())


RUN = """
import sys
from fedcomp.cli.entry_points import fedcomp
try:
    fedcomp()
finally:
    print(*{name.partition(".")[0] for name in sys.modules})
"""
ALWAYS = {"IPython", "pandas", "plotly", "sklearn", "wandb"}
TRAINING = {"matplotlib", "numba", "torchvision", "triton"}
"""What training needs in some cases: pictures, long draws and compiled models, photographs, GPUs."""


def _imported(tmp_path: Path, *arguments: str) -> set[str]:
    """The packages that a command imports in a process of its own."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", RUN, *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.thorough
def test_a_run_imports_what_it_needs(tmp_path: Path) -> None:
    first = _imported(tmp_path, "rounds=1", "pictures=false")
    assert "torch" in first
    assert not first & (ALWAYS | TRAINING - {"numba"})  # which compiles perceptrons


def test_what_runs_nothing_needs_no_torch(fedcomp: Callable[..., int], tmp_path: Path) -> None:
    done = ("rounds=1", "pictures=false", f"output_root={tmp_path}")
    assert fedcomp(*done) == 0
    assert not _imported(tmp_path, *done) & (ALWAYS | TRAINING | {"torch", "numpy"})
    assert not _imported(tmp_path, *done, "launcher=joblib") & {"torch", "numpy"}
    assert not _imported(tmp_path, "--help", "compressor") & {"torch", "numpy", "matplotlib"}


def test_no_data_set_needs_torch_to_name_its_files() -> None:
    """A finished run's data are compared with what they were, before torch is imported."""
    targets = sorted({str(choice["_target_"]) for choice in choices("dataset").values()})
    lines = [f"import sys\nfrom {target.rpartition('.')[0]} import data_files" for target in targets]
    code = "\n".join([*lines, "print('torch' in sys.modules)"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
