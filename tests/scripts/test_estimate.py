"""The order of all pages' experiments, and the hours that two rounds of each of their runs tell."""

import math
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedcomp.cli.main import main
from scripts.reproduce import __main__ as program
from scripts.reproduce import estimate, fedavg_svrg
from scripts.reproduce.estimate import Measured, Part
from scripts.reproduce.experiment import Cut, Ended, Experiment
from scripts.reproduce.order import FIRST, PAPERS, of_turn, ordered
from tests.forked import Forked

START = "dataset=digits num_clients=4 participation=uniform participation.num_participants=4 pictures=false name=tiny"
TINY = Experiment(
    "tiny",
    [f"{START} rounds=40 compressor=sign,dense client.lr=0.1,0.3,1 seed={seeds}" for seeds in ("0", "1,2")],
    "rounds=2",
    ["test/accuracy", "bits/total"],
    cut=Cut("participation.num_participants=1 client.epochs=null client.steps=", 100_000),
)


def test_every_experiment_is_run_once_and_what_a_reader_wants_comes_first() -> None:
    names = [experiment.name for _, experiment in ordered(PAPERS)]
    assert names[: len(FIRST)] == list(FIRST)
    assert len(names) == len(set(names))
    assert {name for name, _ in ordered(PAPERS)} == set(PAPERS)


def test_one_seed_of_everything_comes_before_the_next_seeds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[str] = []

    def run(overrides: Sequence[str], deadline: float) -> Ended:
        started.append(" ".join(overrides))
        return Ended.FINISHED

    two = [Experiment(name, [f"name={name} seed={seeds}" for seeds in ("0", "1,2")], None, []) for name in ("a", "b")]
    monkeypatch.setattr(fedavg_svrg, "EXPERIMENTS", two)
    monkeypatch.setattr(program, "run", run)
    monkeypatch.setattr(program, "written", lambda *_: True)
    ended = program.run_experiments(["fedavg_svrg"], "paper", tmp_path, tmp_path / "place", math.inf, "cuda", 8)
    assert ended is Ended.FINISHED
    wanted = [f"name={name} seed={seeds}" for seeds in ("0", "1,2") for name in ("a", "b")]
    assert [line.split(" output_root")[0] for line in started] == wanted
    assert all(
        line.endswith(" device=cuda launcher=joblib launcher.n_jobs=8 launcher.runs_per_gpu=8") for line in started
    )
    assert program.options_of("auto", 1) == []
    for seeds, further in {"0": False, "0,1,2": False, "10": False, "10,11": False, "1,2": True, "2": True}.items():
        command = [f"seed={seeds}"]
        assert [list(of_turn([command], later)) for later in (further, not further)] == [[command], []], seeds


def test_a_trial_has_one_of_the_numbers_and_counts_them_all() -> None:
    (trial,), (parts,) = zip(*estimate.trials(TINY, "cuda").items(), strict=True)
    assert parts == [Part(3, 40, None), Part(6, 40, None)]
    assert {"compressor=sign,dense", "client.lr=0.3", "rounds=2", "seed=0", "device=cuda"} <= set(trial)
    swept = Experiment("fedmrn_noise", ["experiment=fedmrn/noise experiment/fedmrn/method@_global_=fedmrn"], None, [])
    (parts,) = estimate.trials(swept, "auto").values()
    assert parts == [Part(18, 200, None)]  # 6 magnitudes and 3 seeds, by the experiment's own file


def test_a_gradient_is_measured_by_one_run_of_a_grid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where the experiment's own file has the grid; without that run there is no estimate."""
    ablation = next(one for _, one in ordered(["fedmrn"]) if one.name == "fedmrn_ablation")
    asked: list[Sequence[str]] = []
    monkeypatch.setattr(estimate, "_run", lambda _, words, __: asked.append(words) or ([], 0.0, 0.0))
    (trial,) = estimate.trials(ablation, "cpu")
    assert ablation.cut is not None
    assert estimate._gradient(ablation, ablation.cut, trial, [], tmp_path) is None
    assert {"experiment/fedmrn/method@_global_=fedmrn", "client.steps=5", "rounds=2"} <= set(asked[0])
    assert not any("," in word for word in asked[0])


def test_hours_are_of_all_runs_and_end_with_the_bits() -> None:
    runs = [Measured("t", "a", seconds=36, bits=10, setup=360, cores=1.5), Measured("t", "b", 72, 20, 360, 1.5)]
    assert runs[0].hours(90, None) == pytest.approx(1.0)
    assert runs[0].hours(90, 95) == pytest.approx(0.2)  # ten rounds
    planned = {("t",): [Part(1, 90, None), Part(2, 90, None)]}
    assert estimate._sums(planned, {"t": runs}) == pytest.approx((6, 3 * 2.9, 3 * 2.9 * 1.5))
    assert estimate._sums({**planned, ("u",): []}, {"t": runs}) is None


@pytest.mark.thorough
@pytest.mark.parametrize("cut", [False, True])
def test_two_rounds_of_each_run_are_measured_once(cut: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through `main`: what was tried is kept, and the second time nothing is started."""
    monkeypatch.setattr(fedavg_svrg, "EXPERIMENTS", [TINY])
    monkeypatch.setattr(program, "device_name", lambda _: "cpu" if cut else "cuda")
    if cut:  # a millisecond a gradient, whatever this machine is busy with
        second = estimate._second_round
        monkeypatch.setattr(estimate, "_second_round", lambda run: (1e-3 * second(run)[1], *second(run)[1:]))

    def forked(overrides: Sequence[str], _: float) -> Ended:
        process = Forked(main, ["fedcomp", *overrides], folder=tmp_path, shown=tmp_path / "shown")
        return Ended.FAILED if process.wait() else Ended.FINISHED

    monkeypatch.setattr(estimate, "run", forked)
    command = ["fedavg_svrg", "--estimate", "--outputs", str(tmp_path)]
    assert program.main(command) == 0
    rows = list(estimate.read(tmp_path / "trial"))
    assert len(rows) == 2
    assert all(one.seconds > 0 and one.setup > 0 and one.cores > 0 for one in rows)
    up = [2410 * 32, 2410 + 32 * 4]  # dense and sign; down is dense
    assert sorted(one.bits for one in rows) == [(1 if cut else 4) * (bits + up[0]) for bits in sorted(up)]
    assert "| fedavg_svrg | tiny | 18 | " in (tmp_path / "trial" / "estimate.md").read_text()
    if cut:
        assert [one.seconds for one in rows] == pytest.approx([100, 100])  # 100,000 gradients; a second round had 32
    monkeypatch.setattr(estimate, "run", None)
    assert program.main(command) == 0


def test_a_command_that_cannot_run_is_said_and_the_next_is_tried(tmp_path: Path, monkeypatch, capsys) -> None:
    started: list[Sequence[str]] = []
    monkeypatch.setattr(estimate, "run", lambda overrides, _: started.append(overrides) or Ended.FAILED)
    monkeypatch.setattr(fedavg_svrg, "EXPERIMENTS", [TINY, Experiment("other", [f"{START} rounds=9"], None, [])])
    assert program.tried(["fedavg_svrg"], "auto", tmp_path, time.monotonic() + 60) is Ended.FAILED
    assert len(started) == 2
    assert capsys.readouterr().out.count("not tried") == 2
