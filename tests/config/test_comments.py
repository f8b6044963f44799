"""Every option says what it is, in the YAML that sets it, and these comments can be read."""

from pathlib import Path
from typing import Any

import yaml

from fedcomp.config.comments import choices, read

CONF = Path(__file__).resolve().parents[2] / "conf"
CHOICES = sorted(
    file
    for file in CONF.glob("*/*.yaml")
    if file.parent.name not in ("experiment", "hydra", "wandb") and file.is_file()
)
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
    for path in [*CHOICES, CONF / "train.yaml"]:
        written, said = yaml.safe_load(path.read_text()), read(path)
        missing = [name for name in _options(written) if name not in said.options]
        assert not missing, f"{path}: write behind each of {missing} what it is, its values and its unit"
        long = {name: len(words) for name, words in said.options.items() if len(words) > WIDEST}
        assert not long, f"{path}: {long} characters, at most {WIDEST} fit a line of --help"
    chosen = [group for entry in written["defaults"] if isinstance(entry, dict) for group in entry]
    assert [group for group in chosen if not group.startswith("override") and group not in said.groups] == []


def test_the_first_line_says_what_a_choice_is() -> None:
    for path in CHOICES:
        first = path.read_text().splitlines()[0]
        assert first.startswith("# "), path
        assert read(path).about == first[2:], path
        assert 10 < len(first) < 80, path


def test_every_experiment_has_a_first_comment() -> None:
    assert [name for name, words in choices("experiment", [CONF]).items() if not words] == []


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
    from fedcomp.config import schema
    from fedcomp.config.compose import compose
    from fedcomp.config.identity import config_hash

    folder = tmp_path / "compressor"
    folder.mkdir()
    text = (CONF / "compressor" / "topk.yaml").read_text()
    (folder / "bare.yaml").write_text("".join(line.split("  #")[0].rstrip() + "\n" for line in text.splitlines()))
    assert read(folder / "bare.yaml").options == {}
    here = f"hydra.searchpath=[{tmp_path.as_uri()}]"
    hashes = {
        config_hash(schema.plain_config(compose([here, f"compressor={choice}"]), "cpu")) for choice in ("topk", "bare")
    }
    assert len(hashes) == 1
