"""What would make a run meaningless is refused in one line: keys that nothing reads, names, figures, contradictions."""

from __future__ import annotations

from pathlib import Path

import pytest

QUICK = ("rounds=1", "num_clients=2", "quiet=true", "pictures=false")


def _refused(fedcomp, capsys, *words: str) -> str:
    """The one line that refuses the command."""
    assert fedcomp(*QUICK, *words) in (1, 2)
    shown = capsys.readouterr().err.strip()
    assert "\n" not in shown
    return shown.removeprefix("fedcomp: error: ")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["+foo=1"], "there is no option 'foo' (there are: accept_changes, algorithm,"),
        (["++rouds=3"], "there is no option 'rouds'; did you mean 'rounds'? "),
        (["+foo={a: 1}"], "values that other keys refer to go under vars: +vars.foo=..."),
        (["-m", "+foo=1", "seed=0,1"], "there is no option 'foo' "),
        (["output_root="], "output_root is empty, but must be a folder"),
        (["name=' '"], "name=' ' must be a folder's name"),
        (['name="a\\nb"'], "name 'a\\nb' contains '\\n', but must be one line of text"),
        (['label="a\\x07b"'], "label 'a\\x07b' contains '\\x07'"),
        (['case="a\u2028b"'], "case 'a\\u2028b' contains '\\u2028'"),
        (["figures=[{name:a,kind:pie,y:[test/loss]}]"], "figure 'a': kind is 'pie', allowed are last, curve, variance"),
        (["figures=[3]"], "figure 3 is no mapping such as {name: mse, x: round, y: [mse]}"),
        (["figures=[{name:a,y:3}]"], "figure 'a': y is 3, but must be a key such as test/loss, or a list of keys"),
        (["figures=[{name:a,y:[b],beside:[c,d]}]"], "figure 'a': 2 beside for 1 y; give one a y"),
        (['figures=[{name:"a\\nb",y:[b]}]'], "figure 'a\\nb' contains '\\n'"),
        (["seed=-1"], "seed=-1 must be a whole number, 0 or more"),
    ],
)
def test_of_the_run_before_anything_is_written(fedcomp, capsys, tmp_path: Path, monkeypatch, words, line) -> None:
    monkeypatch.chdir(tmp_path)
    plain = [word.encode().decode("unicode_escape") if "\\" in word else word for word in words]
    assert line in _refused(fedcomp, capsys, *plain)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["+client.sped=1"], "there is no option 'client.sped' (there are: batch_size, clip_norm, epochs,"),
        (["+model.hiden=[3]"], "there is no option 'model.hiden'; did you mean 'hidden'? (there are: bias, hidden,"),
        (["+partition._seed_=1"], "there is no option 'partition._seed_'"),
        (["+launcher.foo=1"], "there is no option 'launcher.foo'"),
        (["+sweeper.foo=1"], "there is no option 'sweeper.foo'"),
        (["+objective.foo=1"], "there is no option 'objective.foo'"),
        (
            ["+downlink.scale=none"],
            "there is no option 'downlink.scale' (there are: estimator, feedback, precision, predictor)",
        ),
        (
            ["compressor=topk", "compressor.feedback={_target_:fedcomp.compressor.feedback.ErrorFeedback,decai:0.5}"],
            "there is no option 'compressor.feedback.decai'; did you mean 'decay'?",
        ),
    ],
)
def test_keys_of_parts_that_nothing_reads(fedcomp, capsys, words, line) -> None:
    assert line in _refused(fedcomp, capsys, *words)


def test_a_key_that_another_refers_to_is_read(fedcomp) -> None:
    assert fedcomp(*QUICK, "+width=3", "model.hidden=[${width}]") == 0


OWN = """from torch.nn import Flatten, Linear, Sequential
def net(input_shape, num_outputs, width):
    return Sequential(Flatten(), Linear(64, width), Linear(width, num_outputs))
def any_net(input_shape, num_outputs, **options):
    return net(input_shape, num_outputs, options["width"])
"""


@pytest.mark.parametrize("own", ["net", "any_net"])
def test_a_part_of_ones_own_has_the_keys_that_it_takes(fedcomp, capsys, tmp_path: Path, own: str) -> None:
    mine = tmp_path / "mine"
    (mine / "model").mkdir(parents=True)
    (mine / "own_nets.py").write_text(OWN)
    (mine / "model" / "own.yaml").write_text(f"_target_: own_nets.{own}\n_partial_: true\n")
    flags = "--config-dir", str(mine), "model=own", "+model.width=3"
    assert fedcomp(*flags, *QUICK) == 0
    if own == "net":
        assert "no option 'model.wide'; did you mean 'width'?" in _refused(fedcomp, capsys, *flags, "+model.wide=3")


def test_an_experiment_whose_keys_land_nowhere(fedcomp, capsys, tmp_path: Path) -> None:
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    (tmp_path / "mine" / "experiment" / "fast.yaml").write_text("rounds: 3\n")
    shown = _refused(fedcomp, capsys, "--config-dir", str(tmp_path / "mine"), "experiment=fast")
    assert "experiment/fast.yaml must begin with `# @package _global_`" in shown


def test_a_config_folder_without_configs(fedcomp, capsys, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    shown = _refused(fedcomp, capsys, "--config-dir", str(tmp_path / "mine"))
    assert shown == f"{tmp_path / 'mine'}, which --config-dir names, holds no config: put GROUP/NAME.yaml there"
    assert "--config-dir needs a value" in _refused(fedcomp, capsys, "--config-dir=")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["algorithm=fedavg_svrg", "client=sgd"],
            "algorithm=fedavg_svrg needs client=svrg, but client=sgd was chosen: leave client out, or take another",
        ),
        (["client=adam", "algorithm=fedavg_svrg"], "algorithm=fedavg_svrg needs client=svrg, but client=adam"),
        (["client.steps=3", "client.epochs=2"], "client.epochs=2 and client.steps=3 both say how long a client trains"),
        (["client.epochs=null"], "client.epochs and client.steps are both null"),
        (
            ["compressor=topk", "compressor.k=5", "compressor.fraction=0.1"],
            "compressor.fraction=0.1 and k=5 both set the number of entries: give one of them, and null for",
        ),
        (
            ["compressor@downlink=randk", "downlink.k=5", "downlink.fraction=0.1"],
            "downlink.fraction=0.1 and k=5 both set the number of entries",
        ),
        (
            ["compressor=topk", "compressor.fraction=0.1", "compressor.match_bits=1"],
            "compressor.fraction=0.1 and match_bits=1 both set",
        ),
        (["compressor=wangni", "compressor.fraction=null"], "compressor.fraction and k are both null"),
        (["compressor.feedback=error"], "compressor.feedback has nothing to add: Dense leaves nothing out; take feedb"),
        (["downlink.feedback=error"], "downlink.feedback has nothing to add: Dense leaves nothing out"),
        (["partition.seed=-1"], "partition.seed=-1 must be a whole number, 0 or more"),
        (["partition.seed=abc"], "partition.seed=abc must be a whole number, 0 or more"),
        (["dataset.split_seed=-1"], "dataset.split_seed=-1 must be a whole number, 0 or more"),
        (["dataset=diabetes", "dataset.split_seed=-1", "model=linear"], "dataset.split_seed=-1 must be a whole number"),
        (["dataset=vectors", "dataset.seed=-1", "algorithm=mean_estimation"], "dataset.seed=-1 must be a whole number"),
        (
            ["participation=bernoulli", "participation.probability={low: 0.1, high: 1, seed: -2}"],
            "participation.probability.seed=-2 must be a whole number, 0 or more",
        ),
        (["sweeper=optuna", "sweeper.seed=-1", "seed=range(2)"], "sweeper.seed=-1 must be a whole number, 0 or more"),
    ],
)
def test_choices_that_contradict_each_other_or_mean_nothing(fedcomp, capsys, words, line) -> None:
    assert line in _refused(fedcomp, capsys, *words)


@pytest.mark.parametrize(
    "words",
    [
        ["algorithm=fedavg_svrg", "client.lr=0.01"],
        ["client.steps=3", "client.epochs=null"],
        ["compressor=topk", "compressor.k=5", "compressor.fraction=null"],
        ["compressor.precision=float16", "compressor.feedback=error"],
    ],
)
def test_what_says_one_thing_runs(fedcomp, words) -> None:
    assert fedcomp(*QUICK, *words) == 0


def test_a_run_in_which_nobody_took_part_ends_with_a_warning(fedcomp, capsys) -> None:
    rare = ("participation=bernoulli", "participation.probability=1e-9", "pictures=false", "rounds=3")
    assert fedcomp(*rare) == 0
    said = "warning: nobody took part in any of the 3 rounds, so that nothing was learnt: see the options of participat"
    assert said in capsys.readouterr().err
    assert fedcomp(*rare, "participation.schedule={2: 1.0}") == 0
    assert "warning" not in capsys.readouterr().err
