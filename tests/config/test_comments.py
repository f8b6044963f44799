"""Every option says what it is, in the YAML that sets it; what its comment excludes is refused by its name.

Excluded are numbers at or beyond the ends of a range ("above 0, at most 1"), words in place of numbers, other words
than those that a comment names, and options without effect beside the others. What two options do to each other else
is tested beside their part.
"""

import functools
import inspect
import math
import re
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import yaml

from fedcomp.compressor import Compressor
from fedcomp.config.comments import comments_of, read
from fedcomp.config.compose import compose
from fedcomp.config.effects import Condition, check_effects
from fedcomp.config.identity import config_hash
from fedcomp.config.schema import plain_config
from fedcomp.core.choices import content, lineage, options
from fedcomp.core.folders import CONF
from tests.config.test_configs import CHOICES, FILES
from tests.looped import looped
from tests.outside import write_files

WIDEST = 70
"""Characters of an explanation that `--help` shows in one line beside the option and its value."""


def _options(node: dict[str, Any], prefix: str = "") -> list[str]:
    """Dotted names of a config's options, those of parts within it too."""
    names = []
    for name, value in node.items():
        if not name.startswith("_") and name not in ("defaults", "hydra"):
            names.append(f"{prefix}{name}")
            if isinstance(value, dict) and "_target_" in value:
                names += _options(value, f"{prefix}{name}.")
    return names


def test_every_option_is_explained() -> None:
    for path in [*FILES, CONF / "train.yaml"]:
        written, said = yaml.safe_load(path.read_text()), read(path)
        missing = [name for name in _options(written) if name not in said.options]
        assert not missing, f"{path}: write behind each of {missing} what it is, its values and its unit"
        long = {name: len(words) for name, words in said.options.items() if len(words) > WIDEST}
        assert not long, f"{path}: {long} characters, at most {WIDEST} fit a line of --help"
    chosen = [group for entry in written["defaults"] if isinstance(entry, dict) for group in entry]
    assert [group for group in chosen if not group.startswith("override") and group not in said.groups] == []


def test_the_first_line_says_what_a_choice_is() -> None:
    for path in FILES:
        first = path.read_text().splitlines()[0]
        assert first.startswith("# "), path
        assert read(path).about == first[2:], path
        assert 10 < len(first) < 80, path


def test_every_experiment_has_a_first_comment() -> None:
    assert [name for name, words in comments_of("experiment", [CONF]).items() if not words] == []


def test_where_comments_are_found(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "# @package _global_\n"
        "# My codec.\n"
        "# It is good.\n"
        "\n"
        "defaults:\n"
        "  - topk\n"
        "  - /client: sgd  # trains\n"
        "bare: 1\n"
        "number: 0.5   # share of entries,\n"
        "              # above 0\n"
        "# stands above,\n"
        "# in two lines\n"
        "above: 'a # b'\n"
        "url: http://x#y\n"
        'quoted: "a # b"  # text\n'
        "empty:  # nothing\n"
        "flow: {a: 1, b: [1,\n"
        "  2]}  # a mapping\n"
        "listed:  # of names\n"
        "  - a  # no option\n"
        "part:  # a part within\n"
        "  _target_: x.Y\n"
        "  inner: 3  # its own\n"
        "  bare: 4\n"
        "text: |-  # a block\n"
        "  # no comment\n"
    )
    said = read(path)
    assert said.about == "My codec."
    assert said.groups == {"/client": "trains"}
    assert said.options == {
        "number": "share of entries, above 0",
        "above": "stands above, in two lines",
        "quoted": "text",
        "empty": "nothing",
        "flow": "a mapping",
        "listed": "of names",
        "part": "a part within",
        "part.inner": "its own",
        "text": "a block",
    }


def test_a_file_without_options(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    for text in ("", "# nothing here\n", "- a\n", "a: 1"):
        path.write_text(text)
        assert read(path).options == {}


def test_comments_leave_the_config_hash_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "compressor"
    folder.mkdir()
    text = (CONF / "compressor" / "topk.yaml").read_text()
    (folder / "bare.yaml").write_text("".join(line.split("  #")[0].rstrip() + "\n" for line in text.splitlines()))
    assert read(folder / "bare.yaml").options == {}
    here = f"hydra.searchpath=[{tmp_path.as_uri()}]"
    configs = [plain_config(compose([here, f"compressor={choice}"]), "cpu") for choice in ("topk", "bare")]
    assert config_hash(configs[0]) == config_hash(configs[1])


REFUSED = [
    ("algorithm=deltamask algorithm.schedule=constant algorithm.kappa_final=0.5", "algorithm.schedule=constant"),
    ("algorithm=deltamask algorithm.coding=places algorithm.fingerprint=4", "algorithm.coding=places"),
    ("algorithm=deltamask algorithm.coding=arithmetic algorithm.arity=3", "algorithm.coding=arithmetic"),
    ("algorithm=fedkseed algorithm.unbiased_sampling=true", "algorithm.sampling=uniform"),
    ("algorithm=fedsparsify algorithm.schedule=constant algorithm.first_sparsity=0.5", "algorithm.schedule=constant"),
    ("algorithm=fetchsgd algorithm.columns=64 algorithm.fraction=0.2", "algorithm.columns=64"),
    ("algorithm=fetchsgd algorithm.k=8 algorithm.share=0.2", "algorithm.k=8"),
    ("algorithm=bicompfl_gr algorithm.n_dl=3", "algorithm.reconstruct=false"),
    ("algorithm=bicompfl_gr algorithm.capacity=bits", "algorithm.allocation=fixed"),
    ("algorithm=bicompfl_pr algorithm.rest=mix", "algorithm.split_downlink=false"),
    ("algorithm=bicompfl_pr algorithm.split_downlink=true algorithm.mix_until=50", "algorithm.rest=keep"),
    ("algorithm=fedmud algorithm.view=out_fan_in", "algorithm.type=kron"),
    ("algorithm=fedmud algorithm.magnitude=1", "algorithm.distribution=auto"),
    ("algorithm=powersgd algorithm.decay=0.9 algorithm.memory=none", "algorithm.memory=none"),
    ("algorithm=powersgd algorithm.iterations=3", "algorithm.mode=aggregated"),
    ("algorithm=powersgd algorithm.mode=independent algorithm.warm_start=true", "algorithm.mode=independent"),
    ("algorithm=dasha algorithm.p=0.5", "algorithm.estimate=dasha"),
    ("algorithm=marina algorithm.a=0.5", "algorithm.estimate=marina"),
    ("algorithm=marina algorithm.start=zero", "algorithm.estimate=marina"),
    ("compressor=sign compressor.value=5", "compressor.scale=mean_abs"),
    ("compressor@downlink=sign downlink.value=5", "downlink.scale=mean_abs"),
    ("compressor=randk_spatial compressor.estimator.decay=0.5", "compressor.estimator.transform=avg"),
    ("client.schedule=constant client.lr_final=0.1", "client.schedule=constant"),
    ("network=lte network.deadline_weights=inverse", "network.deadline=null"),
]


@looped("words, beside", REFUSED)
def test_an_option_without_effect_is_refused(words: str, beside: str) -> None:
    given = words.split()
    refused = next(word for word in reversed(given) if word != beside and beside.rpartition(".")[0] in word)
    with pytest.raises(ValueError, match="has no effect with") as error:
        check_effects(compose(given))
    assert str(error.value).startswith(f"{refused} has no effect with {beside}: leave it out, or ")


@looped(
    "words",
    [
        "algorithm=deltamask algorithm.kappa_final=0.5",
        "algorithm=deltamask algorithm.schedule=constant algorithm.kappa_final=0.8",  # its default
        "algorithm=fetchsgd algorithm.columns=64 algorithm.fraction=null",
        "algorithm=bicompfl_gr algorithm.reconstruct=true algorithm.n_dl=3",
        "algorithm=marina algorithm.p=0.5",
        "client=adam_scores client.schedule=cosine client.lr_final=0.1",
        "network=lte network.deadline=3 network.deadline_weights=inverse",
        "compressor=count_sketch compressor.fraction=0.2",
    ],
)
def test_an_option_with_effect_and_a_default_are_not(words: str) -> None:
    check_effects(compose(words.split()))


def test_a_run_and_a_grid_refuse_it_before_the_first_round(fedcomp, capsys, tmp_path: Path) -> None:
    assert fedcomp("client.lr_final=0.1", "rounds=1") == 1
    assert "client.lr_final=0.1 has no effect with client.schedule=constant" in capsys.readouterr().err
    assert fedcomp("-m", "client.lr_final=0.1", "client.schedule=constant,cosine", "rounds=1", "num_clients=2") == 1
    said = capsys.readouterr().err
    assert said.index("client.lr_final=0.1 has no effect") < said.index("run 1 of the grid")
    assert len(list(tmp_path.rglob("metrics.jsonl"))) == 1


def test_the_yaml_of_a_users_own_class_is_read(tmp_path: Path) -> None:
    text = "# Mine.\n_target_: own_sparsifier.Own\nmode: plain\nextra: 1  # with mode=rich|full: more\n"
    write_files(tmp_path, {"own_sparsifier.py": "class Own:\n    pass\n", "compressor/own.yaml": text})
    check_effects(compose(["compressor=own"], tmp_path))
    check_effects(compose(["compressor=own", "compressor.extra=2", "compressor.mode=full"], tmp_path))
    says = "compressor.extra=2 has no effect with compressor.mode=plain: leave it out, or take compressor.mode=rich or"
    with pytest.raises(ValueError, match=says):
        check_effects(compose(["compressor=own", "compressor.extra=2"], tmp_path))


@looped("path", FILES)
def test_a_condition_names_an_option_beside_it_and_its_values(path: Path) -> None:
    comments, content = read(path).options, options(path)
    for name, comment in comments.items():
        condition = Condition.of(comment)
        if condition is None:
            continue
        inside, _, _ = name.rpartition(".")
        node = content[inside] if inside else content
        assert condition.option in node or path.stem == "insurance", f"{name}: there is no {condition.option} beside it"
        other = comments.get(f"{inside}.{condition.option}" if inside else condition.option, "")
        for value in condition.values:
            default = str(node.get(condition.option, "regression")).lower()
            assert value in {default, *re.split("[ :,(]", other)}, (name, value)


GROUPS = ("algorithm", "client", "compressor", "launcher", "model", "network", "objective", "participation")
GROUPS += ("partition", "server", "sweeper")
NOT_ALONE = {"capacity", "path", "weights", "value", "feedback", "predictor", "estimator"}
NOT_ALONE |= {"name", "study", "folder", "targets"}
"""Options that are checked once the model or another option is known, that are a name, or a part of their own."""
NUMBER = r"([0-9][\d.e-]*)"
OUTSIDE = {
    rf"above {NUMBER}": 0.0,
    rf"{NUMBER} or more|{NUMBER} to \d|in \[{NUMBER},": -1.0,
    rf"below {NUMBER}|in \[\d, {NUMBER}\)": 0.0,
    rf"at most {NUMBER}|\d to {NUMBER}|in \[\d, {NUMBER}\]": 1.0,
}
"""{an end of a range: what is to be added to it so that it lies outside}."""


def _excluded(comment: str, default: Any) -> Iterator[Any]:
    own, is_range = comment.partition(";")[0], False
    for end, beyond in OUTSIDE.items():
        for found in re.finditer(end, own):
            is_range, value = True, float(next(filter(None, found.groups()))) + beyond
            yield int(value) if value == int(value) else value
    if is_range:
        yield from (math.nan, "abc")
    elif isinstance(default, str):
        yield "nonsense"


EVERY = {
    (options(CONF / group / f"{choice}.yaml")["_target_"], option, str(value)): (group, choice, option, value)
    for group, choice in CHOICES
    if group in GROUPS
    for option, default in options(CONF / group / f"{choice}.yaml").items()
    if option not in NOT_ALONE and not option.startswith("_") and not isinstance(default, bool)
    for value in _excluded(read(CONF / group / f"{choice}.yaml").options.get(option, ""), default)
}
CASES = list(EVERY.values())
"""Once for a class, of which there may be several choices."""
DATA = {"input_shape": (3, 32, 32), "num_outputs": 4, "task": "segmentation", "train": []}
"""What a model is made for."""


@functools.cache
def _part(group: str, choice: str) -> Any:
    """A part with the options of its YAML; a compressor of a codec."""
    made = _made(group, choice, {})
    return Compressor.of(made) if group == "compressor" else made


def _made(group: str, choice: str, changes: dict[str, Any]) -> Any:
    path = CONF / group / f"{choice}.yaml"
    given = {name: value for name, value in options(path).items() if name != "_partial_"} | changes
    make = resolve_name(given.pop("_target_"))
    wanted = inspect.signature(make).parameters
    chosen = {"client": "sgd", "server": "sgd", "compressor": "dense", "downlink": "dense"}
    entries = [
        entry for file in lineage(path) for entry in content(file).get("defaults", ()) if isinstance(entry, dict)
    ]
    for entry in entries:
        chosen |= {str(key).rpartition(".")[2]: choice for key, choice in entry.items()}
    parts = {"client": "client", "server": "server", "uplink": "compressor", "downlink": "downlink"}
    used = {
        name: _part("compressor" if name in ("uplink", "downlink") else key, chosen[key])
        for name, key in parts.items()
        if group == "algorithm" and name in wanted
    }
    used |= {name: value for name, value in DATA.items() if group == "model" and name in wanted}
    made = make(**used, **{name: value for name, value in given.items() if name in wanted})
    if group == "participation":
        made.check(20)
    return made


@looped("group, choice, option, value", CASES)
def test_what_a_comment_excludes_is_refused(group: str, choice: str, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^({group}\.)?{option}(={re.escape(str(value))})? "):
        _made(group, choice, {option: value})


def test_there_are_ranges_of_every_kind() -> None:
    assert len(CASES) > 500
    assert {group for group, *_ in CASES} == set(GROUPS)
