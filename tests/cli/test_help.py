"""`--help`: as a whole, of a group, and of what a command line chooses; from the comments of the YAML files."""

import re
from pathlib import Path

import pytest

from fedcomp.cli.help import WIDTH
from fedcomp.config.comments import read
from fedcomp.core.choices import options
from tests.ascii_locale import ascii_locale
from tests.outside import write_files

CONF = Path(__file__).resolve().parents[2] / "conf"
GROUPS = [group for group in read(CONF / "train.yaml").groups if "/" not in group]
DEFAULTS = "Options of the run, with their values (OPTION=VALUE):"


@pytest.fixture
def shown(fedcomp, capsys):
    """What `fedcomp <arguments>` prints, which must fit the width."""

    def call(*arguments: str) -> str:
        with ascii_locale():
            assert fedcomp(*arguments) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        long = [line for line in printed.out.splitlines() if len(line) > WIDTH]
        assert not long
        return printed.out

    return call


def _rows(text: str, title: str) -> dict[str, str]:
    """{option with its value: explanation} below a title; every explanation begins in the same column."""
    lines = iter(text.splitlines())
    next(line for line in lines if line.startswith(title))
    found: dict[str, str] = {}
    columns = set()
    for line in lines:
        row = re.fullmatch(r"  (\S.*?)(  +)(\S.*)", line)
        if not line:
            break
        if row is None:  # the rest of a longer explanation
            continue
        columns.add(row.start(3))
        found[row.group(1)] = row.group(3)
    assert len(columns) <= 1
    return found


def test_help_teaches(shown) -> None:
    text = shown("--help")
    for words in (
        "compressor: chunk_topk, count_sketch, dense, drive, eden",
        "fedcomp -m compressor=dense,topk,sign",
        "install=bash",
        "--config-dir DIR",
        "client=sgd: Local SGD.",
        "`fedcomp --help GROUP`",
    ):
        assert words in text
    assert _rows(text, DEFAULTS)["rounds=100"] == "communication rounds, 1 or more"
    assert _rows(text, "client=sgd")["lr=0.1"] == "learning rate, above 0"
    assert all(f"  {group}: " in text for group in GROUPS)
    assert len(text.splitlines()) < 200


def test_help_of_a_choice_explains_each_of_its_options_in_one_line(shown) -> None:
    text = shown("compressor=topk", "compressor.fraction=0.01", "--help")
    assert DEFAULTS not in text
    assert "client=sgd" not in text
    rows = _rows(text, "compressor=topk: Top-k: the largest entries and their positions.")
    assert rows["fraction=0.01"] == "share of entries sent, above 0, at most 1"
    said = read(CONF / "compressor" / "topk.yaml").options
    assert list(rows.values()) == [said[row.split("=")[0]] for row in rows]
    assert {row.split("=")[0] for row in rows} == said.keys() - {"_target_"}


@pytest.mark.parametrize(
    ("group", "choice"),
    [("algorithm", "bicompfl_gr"), ("launcher", "slurm"), ("model", "mlp"), ("client", "adamw_steps")],
)
def test_every_option_of_a_choice_is_shown(shown, group: str, choice: str) -> None:
    text = shown(f"{group}={choice}", "-h") if group == "model" else shown("--help", f"{group}={choice}")
    names = {name for name in options(CONF / group / f"{choice}.yaml") if not name.startswith("_")}
    assert {row.split("=")[0] for row in _rows(text, f"{group}={choice}: ")} == names


def test_what_a_choice_brings_along_is_explained_where_it_is_written(shown) -> None:
    text = shown("--help", "algorithm=fedavg_svrg", "compressor@downlink=randk_spatial")
    assert _rows(text, "client=svrg: ")["snapshots=5"] == "full local gradients a round (S), 1 or more"
    assert "participation=bernoulli: " in text
    downlink = _rows(text, "  entry.")  # the title takes two lines
    assert downlink["estimator.decay=0.9"].startswith("with transform=online: ")
    assert "compressor=dense" not in text


def test_help_of_groups_explains_every_choice(shown) -> None:
    text = shown("--help", *GROUPS[:3], "downlink", *GROUPS[4:], "experiment/fedmrn/method", "client=adam")
    blocks = dict(zip([*GROUPS, "experiment/fedmrn/method"], re.split(r"\n\n(?=[\w@/]+[:\n])", text), strict=False))
    for group, block in blocks.items():
        assert block.startswith(group)
        for path in (CONF / group.split("@")[0]).glob("*.yaml"):
            about = re.escape(read(path).about)
            short = "experiment" in group  # whose comments may be longer than a line
            assert re.search(rf"^  {path.stem} +{about[:40] if short else about + '$'}", block, re.M), path
    assert "server: the server's step along the mean update; now sgd" in text
    assert "client: how a client trains on its own data; now adam\n" in text
    assert "client=adam: Local Adam" in text


def test_an_experiment_shows_all_its_values(shown) -> None:
    text = shown("--help", "experiment=rand_k/mse")
    rows = _rows(text, DEFAULTS)
    assert rows["rounds=1000"] == "communication rounds, 1 or more"
    assert rows["name=rand_k_mse"].startswith("first folder below")
    assert "experiment=rand_k/mse: " in text
    assert re.search(r"^  figures=\[.*\.\.\.\n +figures that a report draws", text, re.M)


def test_own_configs_explain_themselves(shown, tmp_path: Path) -> None:
    long = "an explanation that is longer than a line of help can be, " * 3 + "and ends"
    quarter = (
        "# A quarter of the entries.\n"
        "defaults: [topk, _self_]\n"
        "fraction: 0.25\n"
        "positions: index  # always\n"
        f"mine: 3  # {long}\n"
        "bare: 4\n"
        "an_option_with_a_really_long_name: true  # short\n"
    )
    mine = ("--config-dir", str(write_files(tmp_path / "mine", {"compressor/quarter.yaml": quarter})))
    text = shown("compressor=quarter", *mine, "--help", "compressor")
    rows = _rows(text, "compressor=quarter: A quarter of the entries.")
    assert rows["fraction=0.25"] == "share of entries sent, above 0, at most 1"
    assert rows["positions=index"] == "always"
    assert long in " ".join(text.split())
    assert rows["bare=4"] == "(no comment in its YAML)"
    assert re.search(r"^  an_option_with_a_really_long_name=true\n {26}short$", text, re.M)
    assert re.search(r"^  quarter +A quarter of the entries\.$", text, re.M)


def test_help_of_one_option(shown) -> None:
    said = read(CONF / "client" / "svrg.yaml").options["snapshots"]
    text = shown("--help", "rounds", "client.snapshots", "client=svrg", "rounds=7")
    assert text.startswith(f"  rounds=7  communication rounds, 1 or more\n\n  client.snapshots=5  {said}\n\n")


def test_of_several_values_the_first_is_shown(shown) -> None:
    text = shown("-m", "compressor=topk,sign", "client.lr=interval(0.1,1)", "seed=1,2", "--help")
    assert "compressor=topk: " in text
    assert text.endswith("Of several values the first is shown: compressor=topk seed=1\n")
