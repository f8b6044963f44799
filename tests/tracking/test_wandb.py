"""Offline W&B runs of the real entry point, read back from the files that they leave."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedcomp.tracking.contract import RunInfo
from fedcomp.tracking.wandb import Wandb, _run_id
from tests.interrupted import power_cut
from tests.raising import raising
from tests.tracking.wandb_pieces import lines_below, pieces

QUICK = ("tracker=wandb", "num_clients=5", "client.batch_size=40")

pytestmark = pytest.mark.usefixtures("without_account")


@pytest.mark.thorough
def test_an_offline_run_holds_everything(fedcomp_with_pictures, tmp_path: Path, capsys) -> None:
    options = ("rounds=40", "compressor=topk", "model=linear", "label=ours", "tracker.tags=[first]", "seed=3")
    names = ("tracker.project=bits", "tracker.job_type=sweep", "tracker.notes=hello")
    assert fedcomp_with_pictures(*QUICK, *options, *names) == 0
    assert "W&B: offline; `wandb sync " in capsys.readouterr().err
    (piece,) = pieces(tmp_path)
    lines = lines_below(tmp_path)
    run_folder = next(tmp_path.rglob("config.yaml")).parent
    assert piece.path.is_relative_to(run_folder / "wandb")

    assert [row["round"] for row in piece.evaluations] == list(range(41))
    for row, line in zip(piece.evaluations, lines, strict=True):
        assert line.items() <= row.items()
        for axis in ("uplink", "downlink", "round"):
            for metric in ("accuracy", "loss"):
                assert row[f"vs_{axis}/{metric}"] == line[f"test/{metric}"]

    assert {piece.axes[name] for name in ("test/accuracy", "test/loss", "train/loss")} == {"bits/total"}
    assert piece.axes["vs_uplink/accuracy"] == "bits/uplink"
    assert piece.axes["vs_downlink/loss"] == "bits/downlink"
    assert {piece.axes[name] for name in ("vs_round/accuracy", "bits/total", "paper/bits/uplink")} == {"round"}
    assert piece.aggregates["test/accuracy"] == {"max", "last"}

    best = max(line["test/accuracy"] for line in lines)
    assert piece.summary["max_accuracy"] == best
    assert piece.summary["max_accuracy_round"] == [line["test/accuracy"] for line in lines].index(best)
    assert piece.summary["min_loss"] == min(line["test/loss"] for line in lines)
    for name in ("bits/total", "bits/uplink", "paper/bits/uplink", "bpp/downlink", "seconds", "round"):
        assert piece.summary[name] == lines[-1][name]
    assert (piece.summary["state"], piece.exit_code, piece.preempted) == ("finished", 0, False)

    assert piece.group == run_folder.parent.name
    assert (piece.project, piece.job_type, piece.notes, piece.name) == ("bits", "sweep", "hello", "ours seed=3")
    assert set(piece.tags) == {"ours", "first", "fedavg", "topk", "downlink-dense", "digits", "linear"}
    assert piece.config["compressor"]["fraction"] == 0.03
    assert piece.config["num_params"] == 650
    assert piece.config["expected_participants"] == 5
    assert piece.config["config_hash"] == piece.group
    assert piece.pictures == {"partition", "curve"}


@pytest.mark.thorough
def test_a_grid_keeps_its_runs_apart_also_when_one_fails(fedcomp, tmp_path: Path) -> None:
    asked = ("tracker.artifacts=[config]", "tracker.group=ablation")
    assert fedcomp("-m", *QUICK, *asked, "rounds=4", "client.lr=0.1,1e30,0.2") == 1
    first, failed, last = pieces(tmp_path)
    assert {piece.group for piece in (first, failed, last)} == {"ablation"}
    assert [list(piece.artifacts) for piece in (first, failed, last)] == [["config"], [], ["config"]]
    assert len({piece.run_id for piece in (first, failed, last)}) == 3
    assert [row["round"] for row in first.evaluations] == [row["round"] for row in last.evaluations] == [0, 1, 2, 3, 4]
    assert [row["round"] for row in failed.evaluations] == [0]
    assert [piece.exit_code for piece in (first, failed, last)] == [0, 1, 0]
    assert [piece.summary["state"] for piece in (first, failed, last)] == ["finished", "failed", "finished"]
    assert [piece.config["client"]["lr"] for piece in (first, failed, last)] == [0.1, 1e30, 0.2]


def test_pieces_of_a_resumed_run_join(fedcomp, tmp_path: Path) -> None:
    """The run fails two rounds after its checkpoint; those two rounds are computed again but logged once."""
    options = (*QUICK, "rounds=12", "checkpoint_every=3")
    with power_cut(9):
        fedcomp(*options)
    assert fedcomp(*options) == 0
    first, second = pieces(tmp_path)
    assert first.run_id == second.run_id
    assert first.group == second.group
    assert [row["round"] for row in first.evaluations] == list(range(9))
    assert [row["round"] for row in second.evaluations] == list(range(9, 13))
    joined = [row["bits/total"] for piece in (first, second) for row in piece.evaluations]
    assert joined == [line["bits/total"] for line in lines_below(tmp_path)]
    assert first.summary["state"] == "failed"
    assert second.summary["max_accuracy"] == max(line["test/accuracy"] for line in lines_below(tmp_path))


@pytest.mark.thorough
def test_the_piece_of_a_killed_session_is_replaced(fedcomp, tmp_path: Path) -> None:
    """Its file ends in half a record, where `wandb sync` stops. The new piece holds its rounds; closed ones stay."""
    options = (*QUICK, "rounds=12", "checkpoint_every=2")
    with power_cut(5):
        fedcomp(*options)
    (closed,) = pieces(tmp_path)
    with power_cut(9):
        fedcomp(*options)
    (_, killed) = pieces(tmp_path)
    (noted,) = tmp_path.rglob("wandb_pieces.json")
    assert json.loads(noted.read_text()) == {closed.path.parent.name: 4, killed.path.parent.name: 8}
    noted.write_text(json.dumps({closed.path.parent.name: 4}))
    os.truncate(killed.path, killed.path.stat().st_size * 2 // 3)
    assert fedcomp(*options) == 0
    first, second = pieces(tmp_path)
    assert first.path == closed.path
    assert second.path != killed.path
    assert [row["round"] for row in first.evaluations] == list(range(5))
    assert [row["round"] for row in second.evaluations] == list(range(5, 13))


@pytest.mark.thorough
def test_overwriting_starts_another_run(fedcomp, tmp_path: Path) -> None:
    assert fedcomp(*QUICK, "rounds=1") == 0
    (first,) = pieces(tmp_path)
    assert fedcomp(*QUICK, "rounds=1", "overwrite=true") == 0
    (second,) = pieces(tmp_path)
    assert first.run_id != second.run_id
    assert [row["round"] for row in second.evaluations] == [0, 1]


def test_a_damaged_list_of_pieces_is_named_once_and_removes_none(tmp_path: Path, monkeypatch) -> None:
    opened = SimpleNamespace(id="x", offline=True, settings=SimpleNamespace(wandb_dir=tmp_path, sync_dir="new"))
    monkeypatch.setattr(Wandb, "_open", lambda self, mode: setattr(self, "_run", opened))
    (tmp_path / "offline-run-1-x").mkdir()
    for damage in (b"{half", b"[1]", b'{"a": "x"}', b"", b"\xff"):
        (tmp_path / "wandb_pieces.json").write_bytes(damage)
        said: list[str] = []
        Wandb().start(RunInfo(tmp_path, "demo", "abcd", 3, {}, note=said.append))
        (line,) = said
        assert line.endswith(f"come twice ({tmp_path}/wandb_pieces.json is damaged, and is written anew)")
        assert (tmp_path / "offline-run-1-x").exists()


def test_an_id_that_a_full_disk_left_empty_is_drawn_anew(tmp_path: Path) -> None:
    (tmp_path / "wandb_id").touch()
    assert Wandb().lacks(tmp_path)
    drawn = _run_id(RunInfo(tmp_path, "demo", "abcd", 3, {}))
    assert drawn.startswith("abcd-3-")
    assert _run_id(RunInfo(tmp_path, "demo", "abcd", 3, {})) == drawn
    assert not Wandb().lacks(tmp_path)


@pytest.mark.thorough
def test_agents_of_a_sweep_get_the_runs_that_they_asked_for(fedcomp, tmp_path: Path, monkeypatch, capsys) -> None:
    """The second agent comes upon a finished run, and W&B still shows it under the second agent's id."""
    monkeypatch.setenv("WANDB_SWEEP_ID", "sweep1")
    for number in (1, 2):
        monkeypatch.setenv("WANDB_RUN_ID", f"agent{number}")
        assert fedcomp(*QUICK, "rounds=3") == 0
        (noted,) = tmp_path.rglob("wandb_id")
        assert noted.read_text() == f"agent{number}\n"
        assert len(pieces(tmp_path)) == number  # and W&B reads the environment anew
    first, second = pieces(tmp_path)
    assert (first.run_id, second.run_id) == ("agent1", "agent2")
    lines = lines_below(tmp_path)
    for piece in (first, second):
        assert [row["round"] for row in piece.evaluations] == [0, 1, 2, 3]
        assert piece.summary["max_accuracy"] == max(line["test/accuracy"] for line in lines)
        assert (piece.summary["bits/total"], piece.exit_code) == (lines[-1]["bits/total"], 0)
    assert fedcomp(*QUICK, "rounds=3") == 0
    assert len(pieces(tmp_path)) == 2, "the same agent has it already"
    capsys.readouterr()
    assert fedcomp("-m", *QUICK, "seed=0,1") == 2
    assert "an agent of W&B starts one run at a time, not a grid" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_run_that_was_finished_without_wandb_is_shown(fedcomp, tmp_path: Path) -> None:
    assert fedcomp(*QUICK[1:], "rounds=2") == 0
    assert fedcomp(*QUICK, "rounds=2", "tracker.mode=disabled") == 0
    assert not pieces(tmp_path)
    for _ in range(2):
        assert fedcomp(*QUICK, "rounds=2") == 0
    (piece,) = pieces(tmp_path)
    assert [row["round"] for row in piece.evaluations] == [0, 1, 2]
    assert piece.summary["state"] == "finished"


@pytest.mark.parametrize(
    ("options", "name", "tags"),
    [
        (["compressor=rand_proj_spatial"], "fedavg rand_proj_spatial/dense", {"rand_proj_spatial", "downlink-dense"}),
        (["algorithm=fedmrn"], "fedmrn downlink-dense", {"downlink-dense"}),
        (["algorithm=dasha"], "dasha randk", {"randk"}),
    ],
)
def test_a_name_has_the_compressors_that_the_method_uses(fedcomp, tmp_path: Path, options, name, tags) -> None:
    assert fedcomp(*QUICK, "rounds=1", *options) == 0
    (piece,) = pieces(tmp_path)
    assert piece.name == f"{name} seed=0"
    assert set(piece.tags) - {"digits", "mlp", "linear"} == {name.split()[0], *tags}


def test_a_grid_of_finished_runs_is_shown(fedcomp, tmp_path: Path) -> None:
    assert fedcomp(*QUICK[1:], "rounds=1") == 0
    assert fedcomp("-m", *QUICK[1:], "rounds=1", "seed=0", "label=ours") == 0
    assert "label: ours" in next(tmp_path.rglob("config.yaml")).read_text()
    for _ in range(2):
        assert fedcomp("-m", *QUICK, "rounds=1", "seed=0") == 0
    (piece,) = pieces(tmp_path)
    assert [row["round"] for row in piece.evaluations] == [0, 1]


def test_a_finished_run_leaves_artifacts(fedcomp_with_pictures, tmp_path: Path) -> None:
    assert fedcomp_with_pictures(*QUICK, "rounds=2", "tracker.artifacts=[config,table,pictures,model]", "seed=4") == 0
    (piece,) = pieces(tmp_path)
    assert set(piece.artifacts) == {"config", "table", "pictures", "model"}
    wanted = {
        "config": {"config.yaml", "provenance.json"},
        "table": {"metrics.jsonl", "metrics.table.json"},
        "pictures": {"curve.png", "partition.png"},
        "model": {"checkpoint.pt"},
    }
    last = lines_below(tmp_path)[-1]
    for kind, files in wanted.items():
        artifact = piece.artifacts[kind]
        assert artifact["name"] == f"{kind}-{piece.group}-seed4"
        assert set(artifact["aliases"]) == {"final", "latest"}
        assert {entry["path"] for entry in artifact["manifest"]["contents"]} == files
        assert json.loads(artifact["metadata"])["bits/total"] == last["bits/total"]


WRONG = [
    (["tracker.mode=onlin"], "tracker.mode=onlin must be one of online, offline, disabled"),
    (["tracker.project=a/b"], "tracker.project='a/b' must be 1 to 128 characters without any of"),
    (["tracker.project="], "tracker.project="),
    (["tracker.artifacts=[weights]"], "tracker.artifacts=['weights'] must be a list of config, table, pictures, model"),
    (["tracker.timeout=0"], "tracker.timeout=0 must be a positive number: a number of seconds"),
    ([f"tracker.tags=[{'x' * 65}]"], "must be 1 to 64 characters"),
    (["tracker.modus=offline"], "there is no option 'tracker.modus'"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[given[0][:22] for given, _ in WRONG])
def test_wrong_input_is_one_line_before_the_first_round(fedcomp, tmp_path, capsys, arguments, message) -> None:
    assert fedcomp(*QUICK, *arguments) != 0
    shown = capsys.readouterr().err.strip()
    assert message in shown
    assert "\n" not in shown
    assert not list(tmp_path.rglob("metrics.jsonl"))


def test_the_environment_beats_the_config(fedcomp, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert fedcomp(*QUICK, "rounds=1", "tracker.mode=online") == 0
    assert "W&B" not in capsys.readouterr().err
    assert not pieces(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "sometimes")
    assert fedcomp(*QUICK, "rounds=2") == 1
    assert "WANDB_MODE=sometimes must be one of online, offline, disabled" in capsys.readouterr().err


def test_online_without_a_key_stays_offline(fedcomp, tmp_path: Path, capsys) -> None:
    assert fedcomp(*QUICK, "rounds=1", "tracker.mode=online") == 0
    assert "W&B: WANDB_API_KEY is not set, so this run stays offline" in capsys.readouterr().err
    assert len(pieces(tmp_path)) == 1


def test_a_run_without_wandb_goes_on(fedcomp, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert fedcomp(*QUICK, "rounds=1") == 0
    shown = capsys.readouterr().err
    assert shown.count("W&B:") == 1
    assert "pip install wandb" in shown
    assert [line["round"] for line in lines_below(tmp_path)] == [0, 1]


def test_a_folder_that_cannot_be_written_does_not_matter(fedcomp, tmp_path: Path) -> None:
    assert fedcomp(*QUICK, "rounds=1", "tracker.folder=/dev/null/here") == 0
    assert [line["round"] for line in lines_below(tmp_path)] == [0, 1]


def test_a_line_that_fails_is_said_once(fedcomp, tmp_path: Path, monkeypatch, capsys) -> None:
    import wandb

    monkeypatch.setattr(wandb.Run, "log", raising(OSError(28, "No space left on device")))
    assert fedcomp(*QUICK, "rounds=3") == 0
    shown = capsys.readouterr().err
    assert shown.count("No space left on device") == 1
    assert len(lines_below(tmp_path)) == 4


@pytest.mark.thorough
def test_wandb_is_imported_as_it_is(fedcomp, tmp_path: Path, monkeypatch) -> None:
    import wandb

    hidden: list[str] = []
    whole = wandb.init

    def init(**options: object) -> wandb.Run:
        hidden.extend(name for name, module in sys.modules.items() if name.startswith("wandb") and module is None)
        return whole(**options)

    monkeypatch.setattr(wandb, "init", init)
    assert fedcomp(*QUICK, "rounds=1") == 0
    assert not hidden
    assert len(pieces(tmp_path)) == 1


def test_other_trackers_do_not_pay() -> None:
    code = "import sys, fedcomp.tracking.wandb; fedcomp.tracking.wandb.Wandb(); assert 'wandb' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
