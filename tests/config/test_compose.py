"""Words become configs: from Python as on the command line, quoted where Hydra needs it, and for a swept part."""

import json
from pathlib import Path

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from fedcomp.config.compose import compose
from fedcomp.config.overrides import quote
from fedcomp.records.grid import MANIFEST
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


@looped("word, line", [("compressor=tpk", "compressor=tpk is unknown; did you mean"), ("seed=0,1", "several values")])
def test_wrong_overrides(word: str, line: str) -> None:
    with one_line_error(line):
        compose([word])


def test_ones_own_configs(tmp_path: Path) -> None:
    folder = tmp_path / "compressor"
    folder.mkdir()
    target = "fedcomp.compressor.sparsifiers.topk.TopK"
    (folder / "half.yaml").write_text(f"# Half\n_target_: {target}\nfraction: 0.5\nfeedback: none\n")
    assert compose(["compressor=half"], tmp_path).compressor.fraction == 0.5
    with pytest.raises(ValueError, match="there is no folder .*nowhere"):
        compose([], tmp_path / "nowhere")


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
