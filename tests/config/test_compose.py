"""Words become configs: from Python as on the command line, quoted where Hydra needs it, for swept and own parts."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Models, Setup
from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.config.overrides import quote
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from fedcomp.records.grid import MANIFEST
from fedcomp.simulation.simulation import Simulation
from tests.looped import looped
from tests.refused import one_line_error
from tests.thorough import thorough_rows


def test_overrides_are_those_of_the_command_line() -> None:
    config = compose(["compressor=topk", "compressor.fraction=0.25", "rounds=7"])
    assert (config.compressor.fraction, config.rounds) == (0.25, 7)
    assert config.compressor._target_.endswith("topk.TopK")
    assert "hydra" not in config
    assert compose().rounds == 100
    assert compose("rounds=3").rounds == 3


def test_an_experiment_is_its_first_method() -> None:
    assert compose(["experiment=fedscalar/digits"]).name == "fedscalar-digits"


@looped(
    "word, line",
    [
        ("compressor=tpk", "is unknown; did you mean"),
        ("seed=0,1", "has several values: give one of them"),
        ("rounds=5 seed=1", "^'rounds=5 seed=1' is 2 options in one text: give each by itself, 'rounds=5', 'seed=1'$"),
        ("rounds=5,\nclient.lr=1", r"^'rounds=5,\\nclient.lr=1' is 2 options .* by itself, 'rounds=5', 'client.lr=1'$"),
        ("compressor=topk compressor.fraction=0.1 seed=0", "is 3 options in one text"),
        ("client.lr=0.1, rounds=2", "is 2 options in one text"),
    ],
)
def test_wrong_overrides(word: str, line: str) -> None:
    with one_line_error(line):
        compose([word])


def test_a_text_may_hold_what_reads_as_an_option() -> None:
    config = compose(["label=topk rounds=2", "client.schedule=cosine"])
    assert (config.label, config.rounds) == ("topk rounds=2", 100)


def test_a_hydra_application_keeps_its_state(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("a: 1\n")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        before = GlobalHydra.instance().hydra
        compose(["rounds=2"])
        assert GlobalHydra.instance().hydra is before
    with pytest.raises(ValueError, match="unknown"):
        compose(["compressor=tpk"])
    assert GlobalHydra.instance().hydra is None
    assert OmegaConf.is_config(compose())


@looped(
    "word, value",
    [
        ("label=日本語", "日本語"),
        ("label=C&A #1; x<y", "C&A #1; x<y"),
        ("label=k=1", "k=1"),
        ("label=it's", "it's"),
        ("label=é\\", "é\\"),
        ("output_root=/tmp/größe/x", "/tmp/größe/x"),
        ("dataset.delimiter=;", ";"),
        ("dataset.features=[age,größe,sex=male,'sex=weiß']", ["age", "größe", "sex=male", "sex=weiß"]),
    ],
)
def test_what_has_one_meaning_is_read(word: str, value: object) -> None:
    given = OverridesParser.create().parse_override(quote(word)).value()
    assert (given if isinstance(value, str) else list(map(str, given))) == value


PLAIN = ["rounds=3", "label=", "label='日本語'", 'label="a, b"', "seed=0,1", "~label", "label=${größe}"]
OTHER = [
    "label='a' é",
    "client.lr=tag(log, interval(0.01, 1))",
    "participation.schedule={50: 0.3}",
    "label=top-k (3 %)",
    "label='a' é",
]


@looped("word", [*PLAIN, *OTHER])
def test_what_hydra_reads_or_may_mean_otherwise_stays(word: str) -> None:
    assert quote(word) == word


def test_a_label_in_any_script_is_the_runs_label(fedcomp, tmp_path: Path) -> None:
    options = ("rounds=1", "model=linear", "num_clients=2", "pictures=false", "quiet=true")
    assert fedcomp(*options, "label=日本語") == 0
    assert fedcomp(*options, "-m", "label=größe,b", "name=grid", "seed=1") == 0
    labels = {str(OmegaConf.load(path).label) for path in tmp_path.rglob("config.yaml")}
    assert "日本語" in labels
    assert labels & {"größe", "b"}


GRID = ("-m", "rounds=1", "num_clients=2", "pictures=false")


SWEPT = [
    ("compressor=topk,randk compressor.fraction=0.05", "compressor", "fraction", {0.05}),
    ("network=lte,5g network.seconds_per_gradient=1e-3", "network", "seconds_per_gradient", {1e-3}),
    ("algorithm=dasha,marina compressor.fraction=0.5", "compressor", "fraction", {0.5}),
]
MORE_SWEPT = [
    ("compressor.fraction=0.1,0.2 compressor=topk,randk", "compressor", "fraction", {0.1, 0.2}),
    ("compressor@downlink=topk,randk downlink.fraction=0.5", "downlink", "fraction", {0.5}),
]


@pytest.mark.parametrize(("words", "part", "option", "values"), [*SWEPT, *thorough_rows(MORE_SWEPT)])
def test_an_option_that_every_choice_has_is_every_runs(fedcomp, tmp_path: Path, words, part, option, values) -> None:
    assert fedcomp(*GRID, *words.split()) == 0
    configs = [OmegaConf.load(path) for path in tmp_path.rglob("config.yaml")]
    assert len(configs) == 2 * len(values)
    assert {config[part][option] for config in configs} == values
    (manifest,) = tmp_path.rglob(MANIFEST)
    own = [json.loads(line)["overrides"] for line in manifest.read_text().splitlines()]
    swept = [word for word in words.split() if "," in word]
    assert {len(one) for one in own} == {len(swept)}, "of what all runs share a run's own words have nothing"


def test_a_choice_that_lacks_the_option_is_named_before_the_first_run(fedcomp, capsys, tmp_path: Path) -> None:
    assert fedcomp(*GRID, "compressor=topk,sign", "compressor.fraction=0.05") == 2
    said = capsys.readouterr().err
    assert "run 1 (compressor=sign): there is no option 'compressor.fraction': compressor is sign, and fraction" in said
    assert not list(tmp_path.rglob("config.yaml"))


@dataclass(frozen=True)
class Still(Algorithm):
    """Nobody trains."""

    client: Any

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> Models:
        return Models(theta, stats)

    def round(self, state: Models, cohort: Cohort, ctx: Context) -> tuple[Models, Metrics]:
        return state, {}


@dataclass(frozen=True)
class Unfinished(Algorithm):
    """Has no `round`."""

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> Models:
        return Models(theta, stats)


@dataclass(frozen=True)
class Misweighted(Still):
    """Says neither of the two words."""

    weights = "sample"


class Foreign:
    """Inherits from nothing."""

    init, round = Still.init, Still.round


def _node(part: type, partial: bool = True) -> dict[str, object]:
    return {"_target_": f"{__name__}.{part.__name__}", **({"_partial_": True} if partial else {})}


def _build(**parts: dict[str, object]) -> Simulation:
    config = compose(["num_clients=4", "rounds=1"])
    for name, node in parts.items():
        config[name] = node
    return build_simulation(config, torch.device("cpu"))[0]


def test_what_an_algorithm_leaves_out_has_a_default() -> None:
    simulation = _build(algorithm=_node(Still))
    algorithm, state = simulation.algorithm, simulation.init()
    assert simulation.importance.tolist() == simulation.shards.sizes.tolist()
    models = algorithm.evaluation_models(state, Key(("test",)))
    assert list(models) == ["test"]
    assert torch.equal(models["test"].theta, state.theta[None])
    assert algorithm.batch_size == algorithm.solver.most_samples
    assert algorithm.compressors == {}


def test_parts_of_an_algorithm_are_its_fields() -> None:
    algorithm = _build().algorithm
    assert isinstance(algorithm, FedAvg)
    assert algorithm.solver is algorithm.client
    assert algorithm.compressors == {"uplink": algorithm.uplink, "downlink": algorithm.downlink}


@looped(
    "algorithm, message",
    [
        (Unfinished, "cannot build .*Unfinished: TypeError: Can't instantiate abstract class Unfinished .*round"),
        (Foreign, "Foreign, which is no Algorithm: let its class inherit from Algorithm"),
        (Misweighted, "algorithm.weights=sample must be one of samples, tokens, uniform"),
    ],
)
def test_what_must_be_there_is_named(algorithm: type, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _build(algorithm=_node(algorithm, partial=algorithm is not Foreign))


@looped("part, kind", [("client", "LocalSolver"), ("server", "ServerOptimizer"), ("participation", "Participation")])
def test_other_parts_inherit_too(part: str, kind: str) -> None:
    with pytest.raises(ValueError, match=f"Foreign, which is no {kind}: let its class inherit from {kind} "):
        _build(**{part: _node(Foreign, partial=False)})
