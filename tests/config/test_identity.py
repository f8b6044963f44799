"""A run's hash follows from what its user chose: moved classes and added options leave finished runs where they are.

Folders are named by it; choices of one hash are kept apart; a damaged identity is said."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from fedcomp.config import placement
from fedcomp.config.compose import compose
from fedcomp.config.identity import config_hash, identity
from fedcomp.config.placement import IDENTITY
from fedcomp.config.schema import PARTS, plain_config
from fedcomp.core import choices as module
from fedcomp.core.folders import CONF
from fedcomp.records.reader import without_rooms
from fedcomp.records.run_folder import VERSION, WITHOUT_EFFECT

RECORDED = Path(__file__).parent / "recorded_defaults.json"
GROUPS = sorted({"compressor" if part == "downlink" else part for part in PARTS})


def _plain(*overrides: str) -> dict:
    return plain_config(compose(list(overrides)), torch.device("cpu"))


@pytest.fixture
def own_conf(tmp_path, monkeypatch):
    """A copy of conf/ that a test may change."""
    copy = shutil.copytree(CONF, tmp_path / "conf")
    monkeypatch.setattr(module, "CONF", copy)
    for reader in (module.choices, module.choices_of):
        monkeypatch.setattr(reader, "__defaults__", (copy,))
    return copy


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_holds_what_was_chosen_and_nothing_else() -> None:
    assert identity(_plain()) == {"device": "cpu"}
    given = "compressor=topk compressor.fraction=0.1 rounds=7 seed=3 name=x quiet=true dataset=mnist"
    parts = {"compressor": {"topk": {"fraction": 0.1}}, "dataset": {"mnist": {}}}
    assert identity(_plain(*given.split())) == {"device": "cpu", "rounds": 7, **parts}
    assert identity(_plain("compressor=topk", "compressor.fraction=0.03"))["compressor"] == {"topk": {}}


def test_what_is_written_in_two_ways_is_one_run() -> None:
    short, long = ["compressor=sign_model"], ["compressor=sign", "compressor.granularity=model"]
    assert identity(_plain(*short)) == identity(_plain(*long))


def test_a_class_may_move() -> None:
    here, there = _plain("compressor=randk_temporal"), _plain("compressor=randk_temporal")
    there["compressor"]["_target_"] = "fedcomp.elsewhere.deep.RandK"
    there["compressor"]["estimator"]["_target_"] = "fedcomp.elsewhere.Temporal"
    there["dataset"]["_target_"] = there["dataset"]["_target_"].replace("fedcomp.", "fedcomp.data.")
    assert config_hash(here) == config_hash(there)


def test_a_new_option_or_group_at_its_default_changes_nothing(own_conf) -> None:
    before = _plain("compressor=randk_temporal", "compressor.fraction=0.1", "rounds=7")
    old = config_hash(before)
    _edit(own_conf / "compressor" / "randk.yaml", "\nfeedback:", "\nadded: 1\nfeedback:")
    _edit(own_conf / "compressor" / "randk_temporal.yaml", "\nfeedback:", "\nadded: 1\nfeedback:")
    _edit(own_conf / "compressor" / "randk_temporal.yaml", "  memory:", "  decay: 1.0\n  memory:")
    _edit(own_conf / "train.yaml", "name: fedcomp", "name: fedcomp\nanother: 3")
    _edit(own_conf / "train.yaml", "  - server: sgd", "  - carrier: none\n  - server: sgd")
    (own_conf / "carrier").mkdir()
    (own_conf / "carrier" / "none.yaml").write_text("_target_: fedcomp.carrier.none.NoNetwork\nrate: 1\n")
    assert config_hash(before) == old, "a config of an earlier version, which lacks them"
    after = before | {"another": 3, "carrier": {"_target_": "fedcomp.carrier.none.NoNetwork", "rate": 1}}
    after["compressor"] = {**before["compressor"], "added": 1}
    after["compressor"]["estimator"] = {**before["compressor"]["estimator"], "decay": 1.0}
    assert config_hash(after) == old
    for changed in ({"another": 4}, {"carrier": {**after["carrier"], "rate": 2}}):
        assert config_hash(after | changed) != old


def test_a_changed_default_is_another_run_once_its_version_is_raised(own_conf) -> None:
    topk, run = own_conf / "compressor" / "topk.yaml", own_conf / "train.yaml"
    before = _plain("compressor=topk")
    old = config_hash(before)
    _edit(topk, "_target_", f"{VERSION}: 2\n_target_")
    assert config_hash(before) != old
    _edit(topk, f"{VERSION}: 2\n", "")
    assert config_hash(before) == old
    _edit(run, f"{VERSION}: 1", f"{VERSION}: 2")
    assert config_hash(before) != old


def test_the_version_of_a_default_choice_counts_too(own_conf) -> None:
    before = _plain()
    old = config_hash(before)
    _edit(own_conf / "client" / "sgd.yaml", "_target_", f"{VERSION}: 2\n_target_")
    assert config_hash(before) != old


def test_parts_of_the_users_own_are_their_whole_node() -> None:
    own = _plain()
    own["compressor"] = {"_target_": "quarter.Quarter", "share": 0.25}
    assert identity(own)["compressor"] == {"_target_": "quarter.Quarter", "options": {"share": 0.25}}
    other = own | {"compressor": {"_target_": "other.Quarter", "share": 0.25}}
    assert config_hash(own) != config_hash(other)


def test_order_and_sequence_types_do_not_count() -> None:
    plain = _plain("model=mlp", "model.hidden=[8,8]")
    turned = dict(reversed(list(plain.items()))) | {"model": {**plain["model"], "hidden": (8, 8)}}
    assert config_hash(json.loads(json.dumps(plain))) == config_hash(plain) == config_hash(turned)


def _defaults() -> dict[str, dict]:
    """{group/choice: the options that its own file gives}, and the run's own keys, without what changes no number."""
    found = {"train": OmegaConf.to_container(OmegaConf.load(CONF / "train.yaml"))}
    for group in GROUPS:
        for path in sorted((CONF / group).glob("*.yaml")):
            found[f"{group}/{path.stem}"] = module.content(path)
    skipped = ("tracker/", "launcher/", "sweeper/", "objective/")
    return {
        name: {
            key: without_rooms(value)
            for key, value in options.items()
            if key not in ("hydra", "defaults", "_target_", "_partial_", *WITHOUT_EFFECT)
        }
        for name, options in found.items()
        if not name.startswith(skipped)
    }


def test_a_default_never_changes_without_its_version() -> None:
    """`recorded_defaults.json` holds what the defaults were.

    After raising a version, or adding an option, write it anew: python -m tests.config.test_identity
    """
    recorded = without_rooms(json.loads(RECORDED.read_text()))
    for name, options in _defaults().items():
        before = recorded.get(name)
        if before is None or options.get(VERSION, 1) > before.get(VERSION, 1):
            continue
        for key, value in before.items():
            if key in options:
                says = f"conf/{name}.yaml: {key} changed its default: raise {VERSION} in that file"
                assert options[key] == value, says


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(_defaults(), indent=1, sort_keys=True) + "\n")


QUICK = ("rounds=2", "num_clients=4", "pictures=false", "compressor=topk", "compressor.feedback=error")


def test_the_folder_says_what_its_hash_stands_for(fedcomp, tmp_path) -> None:
    assert fedcomp(*QUICK) == 0
    (path,) = tmp_path.rglob(IDENTITY)
    assert json.loads(path.read_text())["compressor"] == {"topk": {"feedback": "error"}}
    assert len(path.parent.name) == 10


def test_a_finished_run_under_the_hash_of_other_options_is_refused(fedcomp, tmp_path, capsys) -> None:
    assert fedcomp(*QUICK) == 0
    (folder,) = [path.parent for path in tmp_path.rglob("config.yaml")]
    assert fedcomp(*QUICK, "compressor=sign") == 0
    (other,) = [path.parent for path in tmp_path.rglob("config.yaml") if path.parent != folder]
    shutil.rmtree(folder)
    other.rename(folder)
    capsys.readouterr()
    assert fedcomp(*QUICK) == 1
    assert f"{folder} is a run of other options (config.yaml), moved or copied from {other.parent}: move it back" in (
        capsys.readouterr().err
    )
    folder.rename(other)  # what the line says
    assert fedcomp(*QUICK, "compressor=sign") == 0
    assert "already finished" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"{}\n", b"not JSON", b"\xff\xfe"])
def test_a_damaged_identity_is_said_with_the_way_back(fedcomp, tmp_path, capsys, content: bytes) -> None:
    assert fedcomp(*QUICK) == 0
    (path,) = tmp_path.rglob(IDENTITY)
    whole = path.read_bytes()
    path.write_bytes(content)
    capsys.readouterr()
    assert fedcomp(*QUICK) == 1
    assert f"{path} is damaged" in capsys.readouterr().err
    path.unlink()  # what the line says
    assert fedcomp(*QUICK) == 0
    assert "already finished" in capsys.readouterr().err
    assert path.read_bytes() == whole


def test_two_choices_of_one_hash_are_told_apart(fedcomp, tmp_path, monkeypatch) -> None:
    for name in ("config_hash", "hash_of"):
        monkeypatch.setattr(placement, name, lambda _: "c011151011")
    for lr in (0.1, 0.2, 0.1):
        assert fedcomp(*QUICK, f"client.lr={lr}") == 0
    assert {path.parent.parent.name for path in tmp_path.rglob("config.yaml")} == {"c011151011", "c011151011-2"}
    first = json.loads((tmp_path / "fedcomp" / "c011151011" / IDENTITY).read_text())
    assert "client" not in first or first["client"]["sgd"]["lr"] == 0.1


def test_a_new_run_names_an_unfinished_one_that_differs_by_what_is_recorded_alone(fedcomp, tmp_path, capsys) -> None:
    assert fedcomp(*QUICK) == 0
    (status,) = tmp_path.rglob("status.json")

    def said(*words: str) -> str:
        capsys.readouterr()
        assert fedcomp(*QUICK, *words, "overwrite=true") == 0
        return capsys.readouterr().err

    assert "to go on with it" not in said("eval_every=2"), "the other run is finished"
    status.write_text(json.dumps({"state": "interrupted", "round": 1}))
    assert "to go on with it" not in said("client.lr=0.2")
    shown = " ".join(said("eval_every=3", "codec_error=true", "wire=packed", "label=new").split())
    assert f"{status.parent} is unfinished after round 1 and differs only in what is recorded: to go on with" in shown
    assert "give codec_error=false eval_every=1 wire=counted" in shown
