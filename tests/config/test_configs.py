"""Every option of every group composes, and is what it says."""

import functools
import itertools
import pkgutil
import re
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from fedcomp.config import schema
from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.config.identity import config_hash
from fedcomp.config.instantiate import build, build_compressor, check_keys
from fedcomp.config.placement import run_folder
from fedcomp.config.schema import plain_config
from fedcomp.core.choices import options, parts
from fedcomp.core.folders import CONF, part_name
from fedcomp.display.metric import main_metric
from fedcomp.wire import Ledger
from tests.looped import looped

FILES = sorted(file for file in CONF.glob("*/*.yaml") if file.parent.name not in ("experiment", "hydra", "wandb"))
CHOICES = [(file.parent.name, file.stem) for file in FILES]
OWN = CONF / "experiment"
EXPERIMENTS = sorted(str(file.relative_to(OWN).with_suffix("")) for file in OWN.rglob("*.yaml"))
FIRST_OF_FOLDER = {Path(name).parent: name for name in reversed(EXPERIMENTS)}
ALIKE = {name for name in EXPERIMENTS if len(Path(name).parts) > 2 and FIRST_OF_FOLDER[Path(name).parent] != name}
"""All but the first of the choices that a comparison has in a folder, such as its methods."""
CLASSES = {
    (file.parent.name, *(part["_target_"] for part in parts(options(file)))): file.stem for file in reversed(FILES)
}
"""{(group, what a choice builds): the first choice that builds it}."""
WITH_ROUND = ("algorithm", "client", "compressor", "evaluation", "participation", "partition", "server")
"""Groups that play a part in a round and fit the default's other parts."""
ELSEWHERE = [("partition", "natural")]
"""Choices that need data of another kind: tests/training/test_kinds_of_data.py."""
CPU = torch.device("cpu")
NEEDS = {
    "algorithm=ffa_lora": ["model=module", "model.path=tests.lora_networks.lora_b_of"],
    "dataset=csv": ["dataset.path=x.csv", "dataset.target=y"],
    "dataset=huggingface": ["dataset.path=x"],
    "dataset=image_folder": ["dataset.folder=x"],
    "dataset=text": ["dataset.path=x.jsonl", "dataset.answer=y"],
    "network=csv": ["network.path=x.csv"],
    "network=shared": ["network.capacity_bps=2e7"],
    "participation=absent": [f"participation.path={Path(__file__).with_name('absent.json')}"],
}
"""Options without which a choice means nothing."""
ADAPTERS = ["model=module", "model.path=tests.lora_networks.lora_of"]
"""A model for the methods of adapters."""


def test_methods_and_compressors_are_called_in_reports_as_in_conf() -> None:
    called = {part_name(options(file)["_target_"]) for file in FILES if file.parent.name in ("algorithm", "compressor")}
    assert called - {choice for _, choice in CHOICES} == {"gradient_estimate", "rand_proj"}


def _compose(*overrides: str) -> DictConfig:
    return compose(overrides)


def _columns() -> list[tuple[tuple[str, str], ...]]:
    """All choices, as few times composed as may be: all groups side by side, but an algorithm, which chooses others."""
    groups = {group: [pair for pair in CHOICES if pair[0] == group] for group, _ in CHOICES}
    alone = [(pair,) for pair in groups.pop("algorithm")]
    return alone + [tuple(filter(None, row)) for row in itertools.zip_longest(*groups.values())]


@functools.cache
def _composed(choices: tuple[tuple[str, str], ...]) -> DictConfig:
    words = [f"{group}={choice}" for group, choice in choices]
    return _compose(*words, *(need for word in words for need in needed(word)))


def needed(word: str) -> list[str]:
    """Options without which the choice means nothing."""
    group, choice = word.split("=")
    adapters = group == "algorithm" and ".lora." in options(CONF / group / f"{choice}.yaml")["_target_"]
    return NEEDS.get(word, ADAPTERS if adapters else [])


@looped("choices", _columns())
def test_every_choice_composes_and_builds(choices: tuple[tuple[str, str], ...]) -> None:
    config = _composed(choices)
    OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    schema.check(config)
    check_keys(config)
    for group, _ in choices:
        if group == "compressor":
            build_compressor(config.compressor)
            build_compressor(config.compressor, "downlink")
        elif group == "dataset":
            assert callable(pkgutil.resolve_name(config.dataset._target_))
        else:
            build(config[group])


def _with_round() -> list[list[tuple[str, str]]]:
    """A choice for each class, in as few rounds as may be: all groups side by side, but an algorithm."""
    first = sorted((group, choice) for (group, *_), choice in CLASSES.items() if group in WITH_ROUND)
    groups = {group: [pair for pair in first if pair[0] == group and pair not in ELSEWHERE] for group in WITH_ROUND}
    return [[pair] for pair in groups.pop("algorithm")] + [
        [*filter(None, row)] for row in itertools.zip_longest(*groups.values())
    ]


@looped("choices", _with_round())
def test_every_class_runs_a_round_of_the_default(choices: list[tuple[str, str]]) -> None:
    config = _compose(*["dataset=vectors"] * (("partition", "one_each") in choices))
    for group, choice in choices:
        own = _composed(next(column for column in _columns() if (group, choice) in column))
        config = own if group == "algorithm" else config
        config[group] = own[group]
    simulation, _ = build_simulation(config, CPU)
    state, _ = simulation.round(0, simulation.init(), Ledger())
    metrics = simulation.test_metrics(1, state)
    assert metrics[main_metric([metrics]).key] > 0


def test_a_downlinks_estimator_is_refused_by_its_own_name() -> None:
    config = _compose("compressor@downlink=randk_spatial", "downlink.scale=none", "downlink.feedback=error")
    with pytest.raises(ValueError, match="^downlink.estimator.*: take scale=unbiased and feedback="):
        build_compressor(config.downlink, "downlink")


@pytest.mark.parametrize(
    "choice", [pytest.param(name, marks=[pytest.mark.thorough] * (name in ALIKE)) for name in EXPERIMENTS]
)
def test_every_experiment_composes(choice: str) -> None:
    folder, _, name = choice.rpartition("/")
    words = [f"experiment={choice}"]
    if "/" in folder:  # a part of experiments, which is chosen beside one of them
        texts = {path.stem: path.read_text() for path in sorted((OWN / folder).parent.glob("*.yaml"))}
        having = [stem for stem, text in texts.items() if f"{folder}@_global_" in text]
        named = [stem for stem in having if re.search(rf"{folder}@_global_: .*\b{name}\b", texts[stem])]
        whole = [*named, *having][0]
        words = [f"experiment={folder.rpartition('/')[0]}/{whole}", f"experiment/{folder}@_global_={name}"]
    config = _compose(*words)
    OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    schema.check(config)
    check_keys(config)
    for name in ("client", "server", "participation", "partition"):
        build(config[name])
    for name in ("compressor", "downlink"):
        build_compressor(config[name], name)


def test_the_parts_that_a_grid_tries_exist() -> None:
    for path in OWN.rglob("*.yaml"):
        params = OmegaConf.select(OmegaConf.load(path), "hydra.sweeper.params", default={})
        for group, names in params.items():
            for name in str(names).split(",") if group.startswith("experiment/") else ():
                assert (CONF / group.partition("@")[0] / f"{name}.yaml").is_file(), f"{path}: {name}"


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
        target = options(CONF / group / f"{choice}.yaml")["_target_"]
        assert target.startswith("fedcomp."), f"{group}/{choice}"
        folder = "tracking" if group == "tracker" else group
        assert target.split(".")[1] == folder, f"conf/{group}/{choice}.yaml builds {target}"


def test_hash_ignores_what_changes_no_number() -> None:
    plain = plain_config(_compose(), CPU)
    same = plain_config(_compose("seed=3", "output_root=/x", "overwrite=true", "quiet=true", "label=a", "name=b"), CPU)
    assert config_hash(plain) == config_hash(same)
    for override in ("rounds=7", "client.lr=0.2", "compressor=sign", "wire=packed", "participation=bernoulli"):
        assert config_hash(plain_config(_compose(override), CPU)) != config_hash(plain)
    assert run_folder(same) == Path(f"/x/b/{config_hash(plain)}/seed=3")


def test_dataset_root_is_no_setting() -> None:
    one, two = (plain_config(_compose("dataset=mnist", f"dataset.root={root}"), CPU) for root in ("/a", "/b"))
    assert config_hash(one) == config_hash(two)
    one, two = (plain_config(_compose("dataset=csv", f"dataset.path={root}/t.csv"), CPU) for root in ("/a", "/b"))
    assert config_hash(one) != config_hash(two)
    for own in ("csv", "huggingface", "vectors", "image_folder"):
        assert "root" not in plain_config(_compose(f"dataset={own}"), CPU)["dataset"]  # it would be where, and what


def test_short_names_and_nodes_of_wrapped_parts() -> None:
    compressor = build_compressor(_compose("compressor=topk", "compressor.feedback=error").compressor)
    assert type(compressor.feedback).__name__ == "ErrorFeedback"
    node = "compressor.feedback={_target_:fedcomp.compressor.feedback.ErrorFeedback,decay:0.5}"
    assert build_compressor(_compose("compressor=topk", node).compressor).feedback.decay == 0.5  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="downlink.feedback=all must be one of none, error, or a node"):
        build_compressor(_compose("downlink.feedback=all").downlink, "downlink")
