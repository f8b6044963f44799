"""Every `fedcomp ...` of the README and the pages runs, in a shortened form, and learns."""

import math
import re
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from fedcomp.config import schema
from fedcomp.config.overrides import quote
from fedcomp.core.folders import CONF
from fedcomp.records.metrics_file import read_lines
from scripts.reproduce.__main__ import PAPERS
from tests.bare import DATA
from tests.docs.pages import PAGES, blocks, prose
from tests.looped import looped

FILES = {
    "mnist": "MNIST/raw",
    "fashion_mnist": "FashionMNIST/raw",
    "cifar10_jpeg": "cifar10-jpeg",
    "insurance": "insurance.csv",
    "shakespeare": "tinyshakespeare.txt",
}
"""What a data set needs under DATA; others come with their packages, or are drawn."""
LONG = "mnist cifar insurance shakespeare bisenetv2 bicompfl rand_k/ network/ fedmrn/ fine_tuning/"
FALLING = ("test/loss", "test/objective", "test/distance")
"""What falls where something is learnt: of the first that a record has."""
LOCAL = ("-m", "launcher=joblib", "launcher=slurm")
"""Words that say where the runs of a grid run; a test runs them here, one after another."""


def _commands(names: Collection[str] = PAGES.keys()) -> list[list[str]]:
    """The words of each command in a block or between backticks, without its comment and its dots."""
    pages = [PAGES[name] for name in names]
    lines = [line.split(" #")[0] for page in pages for _, block in blocks(page) for line in block.splitlines()]
    spans = [span for page in pages for span in re.findall(r"`(fedcomp [^`]+)`", prose(page))]
    texts = [text for text in [*lines, *spans] if re.match(r"fedcomp(\s|$)", text)]
    split = [[word.removesuffix(",…") for word in shlex.split(text) if word != "…"][1:] for text in texts]
    return [list(words) for words in dict.fromkeys(map(tuple, split))]


def _runs(words: list[str]) -> bool:
    """Whether the command trains with what the repository has."""
    own = {"--help", "--cfg", "-sc", "experiment=", "--config-dir", "model.path=DIR", "dataset.path=texts.jsonl"}
    return not own & set(words)


def _needs_data(words: list[str]) -> bool:
    """Whether it reads real data, or takes long even if shortened."""
    return any(name in word for word in words for name in LONG.split()) and "experiment=rand_k/mse" not in words


def _id(words: list[str]) -> str:
    return " ".join(words) or "defaults"


WRITTEN = {f"docs/results/{paper}.md" for paper in PAPERS}
"""Pages that `make reproduce` writes with the commands it ran; SCALE=small runs each in a shortened form."""
TRAINING = [words for words in _commands([name for name in PAGES if name not in WRITTEN]) if _runs(words)]
FIRST_READ = _commands(("README.md", "docs/running.md"))
"""Commands of the pages that a newcomer types; those of the other pages are thorough tests."""


def _first(choices: str) -> str:
    """The first of `a,b,c`, of `range(5)`; an interval is left to the sweeper."""
    if choices.startswith("range("):
        return "0"
    return choices if re.search(r"[\[({]", choices) else choices.split(",")[0]


def _each_compressor(words: list[str]) -> list[list[str]]:
    """The command for the first value of what it sweeps, but for each of its compressors."""
    own = [word for word in words if word not in LOCAL and not word.startswith("launcher.")]
    swept = next((word.partition("=")[2].split(",") for word in own if re.match(r"compressor=.*,", word)), [""])
    return [[_chosen(word, one) for word in own] for one in swept]


def _chosen(word: str, compressor: str) -> str:
    key, equals, value = word.partition("=")
    if key == "compressor" and compressor:
        return f"compressor={compressor}"
    return f"{key}{equals}{_first(value)}"


def _one_run(words: list[str]) -> list[str]:
    """Overrides that make one short run of an experiment's grid: the first value of all that it sweeps."""
    schema.register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", [quote(word) for word in words if "interval(" not in word], return_hydra_config=True)
    swept = dict(config.hydra.sweeper.get("params") or {})
    given = {word.partition("=")[0] for word in words}
    added = [f"{key}={_first(str(value))}" for key, value in swept.items() if key not in given]
    name = config.dataset._target_.split(".")[-2]
    if name in FILES and not (DATA / FILES[name]).exists():
        pytest.skip(f"{name} is not in {DATA}")
    if name == "shakespeare" and "path" in config.model:
        _skip_without_the_small_llama()
    rounds = min(int(config.rounds), 3 if name in ("mnist", "cifar10_jpeg", "shakespeare") else 30)
    added += [f"rounds={rounds}", f"eval_every={rounds}", "quiet=true", "pictures=false"]
    added += ["repeats=2"] if config.repeats > 2 else []
    added += [f"dataset.root={DATA}"] if "root" in config.dataset else []
    if "sweeper=optuna" in words:
        return [*added, "sweeper.n_trials=1"]
    return [*added, "hydra.mode=RUN"]


def _skip_without_the_small_llama() -> None:
    """What the experiments `fine_tuning/...` start from, and what reads it."""
    pytest.importorskip("transformers", reason="the extra hf")
    if not list(DATA.glob("shakespeare_llama_*")):
        pytest.skip(f"the Llama of scripts/pretrain_small.py is not in {DATA}")


def _check_that_it_learns(fedcomp, words: list[str], root: Path) -> None:
    shortened = {word.partition("=")[0]: word for word in [*words, *_one_run(words)]}
    assert fedcomp(*shortened.values(), f"output_root={root}") == 0
    (record,) = root.rglob("metrics.jsonl")
    first, *_, last = read_lines(record)
    key = next((one for one in FALLING if one in first), None)
    if key is None:  # estimation of means: nothing is learnt
        assert math.isfinite(last["mse"])
    elif "algorithm.gamma=0" in words:  # clients of few classes alone: right more often, and surer where they are wrong
        assert last["test/accuracy"] > 2 * first["test/accuracy"], f"fedcomp {_id(words)}"
    else:
        assert last[key] < first[key], f"fedcomp {_id(words)}: {key} went from {first[key]} to {last[key]}"


def _marked(words: list[str]) -> Any:
    fast = words in FIRST_READ and "-m" not in words
    return pytest.param(words, marks=[] if fast else pytest.mark.thorough)


SHORT = [_marked(words) for words in TRAINING if not _needs_data(words)]
LENGTHY = [pytest.param(words, marks=pytest.mark.slow) for words in TRAINING if _needs_data(words)]


@pytest.mark.parametrize("words", [*SHORT, *LENGTHY], ids=_id)
def test_a_command_learns(fedcomp, tmp_path: Path, words: list[str]) -> None:
    for index, one in enumerate(_each_compressor(words)):
        _check_that_it_learns(fedcomp, one, tmp_path / str(index))


def test_the_commands_are_found() -> None:
    assert [] in TRAINING  # `fedcomp` alone
    assert ["algorithm=fedscalar", "model=mlp_digits_233"] in TRAINING
    assert any("sweeper=optuna" in words for words in TRAINING)
    assert len(TRAINING) >= 20


@looped("words", [words for words in _commands() if {"--help", "experiment="} & set(words)])
def test_a_command_that_only_says_something(fedcomp, capsys, words: list[str]) -> None:
    if "--config-dir" in words:
        pytest.skip("tests/docs/test_extending.py writes what lies there")
    assert fedcomp(*words) == 0
    shown = capsys.readouterr()
    assert len((shown.out + shown.err).splitlines()) > 3
