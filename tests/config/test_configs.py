"""Every option of every group composes, and is what it says."""

from __future__ import annotations

import copy
import functools
import itertools
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from fedcomp.config import schema
from fedcomp.config.factory import build_simulation
from fedcomp.config.identity import config_hash
from fedcomp.config.instantiate import build, build_compressor, check_keys
from fedcomp.config.placement import run_folder
from fedcomp.config.schema import plain_config
from fedcomp.display.main_metric import main_metric

CONF = Path(__file__).resolve().parents[2] / "conf"
CHOICES = sorted(
    (folder.name, file.stem)
    for folder in CONF.iterdir()
    if folder.is_dir() and folder.name not in ("experiment", "hydra", "wandb")
    for file in folder.glob("*.yaml")
)
EXPERIMENTS = sorted(
    str(file.relative_to(CONF / "experiment").with_suffix("")) for file in (CONF / "experiment").rglob("*.yaml")
)
FIRST_OF_FOLDER = {Path(name).parent: name for name in reversed(EXPERIMENTS)}
ALIKE = {name for name in EXPERIMENTS if len(Path(name).parts) > 2 and FIRST_OF_FOLDER[Path(name).parent] != name}
"""All but the first of the choices that a comparison has in a folder, such as its methods."""
WITHOUT_ROUND = ("dataset", "model", "launcher", "sweeper", "objective", "network")
"""Groups that do not fit the default's other parts, or play no part in a round."""
ROUNDS_ELSEWHERE = [("partition", "natural")]
"""Choices that need data of another kind: tests/training/test_natural.py."""
CPU = torch.device("cpu")
NEEDS = {"csv": ["dataset.path=x.csv", "dataset.target=y"], "image_folder": ["dataset.folder=x"]} | {
    "one_each": ["dataset=vectors"],
    "network=csv": ["network.path=x.csv"],
    "network=shared": ["network.capacity_bps=2e7"],
}
"""Options without which a choice means nothing."""


def _compose(*overrides: str):
    return copy.deepcopy(_composed(overrides))


@functools.cache
def _composed(overrides: tuple[str, ...]):
    """Composing takes a tenth of a second, a copy a fiftieth of that; all tests together compose 300 configs."""
    schema.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("train", overrides=list(overrides))


def _needs(group: str, choice: str) -> list[str]:
    return NEEDS.get(f"{group}={choice}", NEEDS.get(choice, []))


def _composed_together() -> list[list[tuple[str, str]]]:
    """All choices, as few times composed as may be: the groups that play no part in a round side by side."""
    alone = [[pair] for pair in CHOICES if pair[0] not in WITHOUT_ROUND]
    columns = [[pair for pair in CHOICES if pair[0] == group] for group in WITHOUT_ROUND]
    return alone + [[pair for pair in row if pair is not None] for row in itertools.zip_longest(*columns)]


@pytest.mark.parametrize("choices", _composed_together(), ids=lambda pairs: " ".join("=".join(pair) for pair in pairs))
def test_every_choice_composes_and_builds(choices: list[tuple[str, str]]) -> None:
    overrides = [word for group, choice in choices for word in (f"{group}={choice}", *_needs(group, choice))]
    config = _compose(*overrides)
    OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    schema.check(config)
    check_keys(config)
    for group, _ in choices:
        if group == "compressor":
            build_compressor(config.compressor)
            build_compressor(config.compressor, "downlink")
        elif group == "dataset":
            module, _, function = config.dataset._target_.rpartition(".")
            assert callable(getattr(__import__(module, fromlist=[function]), function))
        else:
            build(config[group])


def test_a_downlinks_estimator_is_refused_by_its_own_name() -> None:
    config = _compose("compressor@downlink=randk_spatial", "downlink.scale=none", "downlink.feedback=error")
    with pytest.raises(ValueError, match="^downlink.estimator.*: take downlink.scale=unbiased and downlink.feedback="):
        build_compressor(config.downlink, "downlink")


@pytest.mark.parametrize(
    "choice", [pytest.param(name, marks=[pytest.mark.thorough] * (name in ALIKE)) for name in EXPERIMENTS]
)
def test_every_experiment_composes(choice: str) -> None:
    config = _compose(f"experiment={choice}")
    OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    schema.check(config)
    check_keys(config)
    for name in ("client", "server", "participation", "partition"):
        build(config[name])
    for name in ("compressor", "downlink"):
        build_compressor(config[name], name)


@pytest.mark.parametrize(
    ("group", "choice"), [pair for pair in CHOICES if pair[0] not in WITHOUT_ROUND and pair not in ROUNDS_ELSEWHERE]
)
def test_every_choice_runs_a_round_of_the_default(group: str, choice: str) -> None:
    from fedcomp.wire import Ledger

    simulation, _ = build_simulation(_compose(f"{group}={choice}", *_needs(group, choice)), CPU)
    state, _ = simulation.round(0, simulation.init(), Ledger())
    metrics = simulation.test_metrics(1, state)
    assert metrics[main_metric([metrics])] > 0


@pytest.mark.thorough
@pytest.mark.parametrize("group", sorted({group for group, _ in CHOICES}))
def test_every_choice_has_an_identity_of_its_own(group: str) -> None:
    found: dict[str, str] = {}
    default = config_hash(plain_config(_compose(), CPU))
    for choice in [own for other, own in CHOICES if other == group]:
        key = config_hash(plain_config(_compose(f"{group}={choice}"), CPU))
        if group in ("launcher", "sweeper", "objective", "tracker"):  # they change no number
            assert key == default
            continue
        assert key not in found, f"{choice} and {found[key]}"
        found[key] = choice


def test_svrg_refuses_samples_that_change(tmp_path: Path) -> None:
    from PIL import Image

    for name in ("train/a", "train/b", "test/a", "test/b"):
        (tmp_path / name).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name / "0.png")
    options = ("dataset=image_folder", f"dataset.folder={tmp_path}", "model=logistic", "num_clients=2")
    augmented = (*options, "dataset.flip=true")
    with pytest.raises(ValueError, match="client=svrg needs the same samples in every gradient, but dataset=image_fol"):
        build_simulation(_compose(*augmented, "client=svrg"), CPU)
    build_simulation(_compose(*augmented), CPU)
    build_simulation(_compose(*options, "client=svrg"), CPU)


def test_yaml_is_named_after_its_file() -> None:
    for group, choice in CHOICES:
        target = OmegaConf.load(CONF / group / f"{choice}.yaml").get("_target_", "")
        assert target.startswith("fedcomp."), f"{group}/{choice}"
        folder = "tracking" if group == "tracker" else group
        assert target.split(".")[1] == folder, f"conf/{group}/{choice}.yaml builds {target}"


def test_hash_ignores_what_changes_no_number() -> None:
    plain = plain_config(_compose(), CPU)
    same = plain_config(_compose("seed=3", "output_root=/x", "overwrite=true", "quiet=true", "label=a", "name=b"), CPU)
    assert config_hash(plain) == config_hash(same)
    for override in ("rounds=7", "client.lr=0.2", "compressor=sign", "wire=packed", "participation=bernoulli"):
        assert config_hash(plain_config(_compose(override), CPU)) != config_hash(plain)
    assert str(run_folder(same)).endswith(f"/x/b/{config_hash(plain)}/seed=3")


def test_dataset_root_is_no_setting() -> None:
    one, two = (plain_config(_compose("dataset=mnist", f"dataset.root={root}"), CPU) for root in ("/a", "/b"))
    assert config_hash(one) == config_hash(two)
    one, two = (plain_config(_compose("dataset=csv", f"dataset.path={root}/t.csv"), CPU) for root in ("/a", "/b"))
    assert config_hash(one) != config_hash(two)
    for own in ("csv", "vectors", "image_folder"):
        assert "root" not in plain_config(_compose(f"dataset={own}"), CPU)["dataset"]  # it would be where, and what


def test_short_names_and_nodes_of_wrapped_parts() -> None:
    compressor = build_compressor(_compose("compressor=topk", "compressor.feedback=error").compressor)
    assert type(compressor.feedback).__name__ == "ErrorFeedback"
    node = "compressor.feedback={_target_:fedcomp.compressor.feedback.ErrorFeedback,decay:0.5}"
    assert build_compressor(_compose("compressor=topk", node).compressor).feedback.decay == 0.5  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="downlink.feedback=all must be one of none, error, or a node"):
        build_compressor(_compose("downlink.feedback=all").downlink, "downlink")
