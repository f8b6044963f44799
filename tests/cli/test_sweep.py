"""`fedcomp-sweep --check`: what W&B would ignore, or only its agents would find, is one line."""

from pathlib import Path

import pytest

from fedcomp.cli.sweep import main
from tests.looped import looped

CONF = Path(__file__).resolve().parents[2] / "conf"
GOOD = (CONF / "wandb" / "learning_rate.yaml").read_text()


@pytest.mark.parametrize("file", sorted((CONF / "wandb").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_repositorys_sweeps_are_right(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(file), "--check"]) == 0
    assert "its first run is fedcomp tracker=wandb tracker.mode=online compressor=" in capsys.readouterr().out


WRONG = [
    (("parameters:", "paramters:"), "key paramters is unknown; did you mean 'parameters'?"),
    (("values:", "valus:"), "compressor: key valus is unknown; did you mean 'values'?"),
    (("client.lr", "client.lrr"), "there is no option 'client.lrr'; did you mean 'lr'?"),
    (("method: bayes", "method: bayesian"), "method=bayesian must be one of bayes, grid, random"),
    (('"tracker=wandb", "tracker.mode=online", ', ""), "W&B sees a run only with tracker=wandb: add it to command"),
    (("${args_no_hyphens}", "${args}"), "command must call fedcomp with ${args_no_hyphens}"),
    (("max: 1.0", "mean: 1.0"), "client.lr: key mean is unknown"),
    (("min: 0.01, max: 1.0", "max: 1.0"), "client.lr must have value, values (a list), or min and max"),
    (("rounds: {value: 50}", "rounds: 50"), "rounds must be {value: ...}, {values: [...]} or {min: ..., max: ...}"),
    (("method:", "method: [\n"), "is no YAML"),
]


def test_an_unknown_option_is_told_before_a_missing_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sweep.yaml"
    text = "method: grid\nparameters: {bogus: {values: [1, 2]}}\n"
    for command, words in (("", "'bogus'"), ("command: [python, train.py, bogus2=1]\n", "'bogus2'")):
        file.write_text(text + command)
        assert main([str(file), "--check"]) == 2
        assert f"there is no option {words}" in capsys.readouterr().err
    file.write_text(text.replace("bogus", "seed"))
    assert main([str(file), "--check"]) == 2
    assert "command must call fedcomp" in capsys.readouterr().err


@looped("change, words", WRONG)
def test_what_is_wrong_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], change, words: str) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(GOOD.replace(*change))
    assert file.read_text() != GOOD
    assert main([str(file), "--check"]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.startswith("error: ")
    assert said.count("\n") == 1


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.yaml")]) == 2
    assert "No such file" in capsys.readouterr().err
