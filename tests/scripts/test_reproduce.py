"""`make reproduce`: commands, budget, records, and pages that hold no figure but those of the records."""

import importlib
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.reproduce import __main__ as program
from scripts.reproduce import fedavg_svrg, markdown, printed
from scripts.reproduce.curves import draw_curves
from scripts.reproduce.difference import all_above, difference, none_below
from scripts.reproduce.experiment import Ended, Experiment, joined, pass_on_signals, run
from scripts.reproduce.records import Folder, Records, Run
from tests.config.test_configs import _compose
from tests.looped import looped

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
TINY = Experiment(
    "tiny",
    ["dataset=digits num_clients=4 pictures=false rounds=4 eval_every=2 compressor=sign,dense seed=0,1 -m"],
    "rounds=2",
    ["test/accuracy", "bits/uplink"],
    ["compressor"],
)


@pytest.mark.parametrize("name", program.PAPERS)
def test_a_page_without_runs_has_no_figures(name: str, tmp_path: Path) -> None:
    """Every experiment is said not to be run, and no claim has a verdict."""
    paper = importlib.import_module(f"scripts.reproduce.{name}")
    page = paper.page(Folder(tmp_path))
    assert page.count("not run yet.") == len(paper.EXPERIMENTS)
    assert "**holds**" not in page
    assert "**does not hold**" not in page


@looped("name", program.PAPERS)
def test_committed_pages_are_built_from_the_committed_records(name: str) -> None:
    paper = importlib.import_module(f"scripts.reproduce.{name}")
    page = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    assert f"`make reproduce PAPER={name} SCALE=paper`" in page
    assert program.page_text(paper, Folder(RESULTS / "records")) == page


@pytest.mark.thorough
@pytest.mark.parametrize("name", program.PAPERS)
def test_every_command_is_of_an_experiment(name: str) -> None:
    paper = importlib.import_module(f"scripts.reproduce.{name}")
    names = set()
    for experiment in paper.EXPERIMENTS:
        configs = []  # none of a search that is over
        for scale in ("small", "paper"):
            for overrides in experiment.overrides(scale):
                single = [one for one in overrides if one != "-m"]
                config = _compose(*[one.split(",")[0] if "=" in one else one for one in single])
                configs.append(config)
                names.add((scale, config.name))
                assert config.name == experiment.folder(scale)
        for option in experiment.options:
            assert all(option.split(".")[0] in config for config in configs)
    assert names <= {(scale, one.folder(scale)) for one in paper.EXPERIMENTS for scale in ("small", "paper")}


def test_runs_become_records_and_further_ones_replace_them(fedcomp, tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    base = ["dataset=digits", "num_clients=4", "pictures=false", f"output_root={outputs}", "name=tiny", "eval_every=2"]
    for seed in (0, 1):
        assert fedcomp(*base, "rounds=4", "compressor=sign", f"seed={seed}") == 0
    folder = Folder(tmp_path / "records")
    folder.update(TINY, outputs / "tiny")
    first = folder[TINY]
    assert [run.about["seed"] for run in first] == ["0", "1"]
    assert {run.about["compressor"] for run in first} == {"sign"}
    assert [line["round"] for line in first.runs[0].lines] == [0, 2, 4]
    assert first.runs[0].last("bits/uplink") == 4 * 4 * (2410 + 32 * 4)
    assert 0 < first.runs[0].best("test/accuracy") <= 1
    assert all(run.about["processor"] and run.about["state"] == "finished" for run in first)

    folder.update(TINY, tmp_path / "nothing")  # a machine that has none of these runs loses none of them
    assert len(folder[TINY]) == 2
    shorter = Run({**first.runs[0].about, "rounds": "9"}, first.runs[0].lines)
    folder._write(TINY, [shorter, first.runs[1]])
    folder.update(TINY, outputs / "tiny")
    assert folder[TINY].runs[0].rounds == 9  # a run that went further is kept

    assert fedcomp(*base, "rounds=4", "compressor=dense", "client.lr=1e30", "precision=bf16") != 0
    folder.update(TINY, outputs / "tiny")
    (failed,) = folder[TINY].where(compressor="dense")
    assert failed.about["processor"] == f"{first.runs[0].about['processor']}, bf16"
    assert (failed.about["state"], failed.rounds) == ("failed", 0)  # before its second evaluation
    folder._write(TINY, [Run({**failed.about, "state": "finished", "rounds": "4"}, failed.lines)])
    folder.update(TINY, outputs / "tiny")
    (failed,) = folder[TINY].where(compressor="dense")
    assert failed.about["state"] == "failed"  # code of today, which fails, has the word


FINISHED, FAILED = ({"state": state, "rounds": rounds} for state, rounds in (("finished", "4"), ("failed", "4")))


def test_a_full_disk_does_not_replace_a_finished_record() -> None:
    """A failure does, wherever it came, if the run diverged, or if the record is not finished."""
    full, diverged = Run(FAILED, []), Run(FAILED, [], diverged=True)
    assert [one.replaces(Run(FINISHED, [])) for one in (full, diverged)] == [False, True]
    assert full.replaces(Run({"state": "unfinished", "rounds": "9"}, []))


def test_curves_are_drawn_from_records_of_unfinished_runs_too(tmp_path: Path) -> None:
    lines = [{"round": float(index), "test/accuracy": 0.1 * index, "bits/uplink": 8.0 * index} for index in range(4)]
    about = {"run": "a/seed=0", "label": "a", "seed": "0", "state": "unfinished"}
    draw_curves(Records([Run(about, lines)]), "test/accuracy", tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    draw_curves(Records(), "test/accuracy", tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_small_scale_replaces_options_and_runs_no_command_twice() -> None:
    commands = [f"experiment=quickstart seed={seed} rounds=9" for seed in (0, 1)]
    experiment = Experiment("tiny", commands, "seed=0 rounds=2", ["test/accuracy"])
    assert experiment.overrides("small") == [["experiment=quickstart", "name=tiny_small", "seed=0", "rounds=2"]]
    assert experiment.overrides("paper") == [command.split() for command in commands]
    assert replace(experiment, small=None).overrides("small") == []


def test_methods_are_compared_at_their_end_alone() -> None:
    def of(label: str, accuracies: list[float], seed: int = 0) -> Run:
        lines = [{"round": float(index), "test/accuracy": value} for index, value in enumerate(accuracies)]
        about = {"label": label, "seed": str(seed), "rounds": str(len(accuracies) - 1), "of_rounds": "2"}
        return Run(about, lines)

    records = Records([of("a", [0.1, 0.9, 0.2]), of("b", [0.1, 0.3]), of("d", [0.1, 0.6, 0.8]), of("d", [0.1, 0.6], 1)])
    (same,) = printed.above(records, "a", ["a"])
    assert (same.mean, same.sign) == (0.0, 0)
    for other in ("b", "c", "d"):  # not at its end; not run; one seed of two not at its end
        assert printed.above(records, "a", [other]) == [None]
    assert markdown.rounds(records) == "1 of 2"
    hard = [of("e", [0.1, 0.1, 0.5], 1), of("e", [0.1, 0.1, 0.9], 0), of("f", [0.1, 0.1, 0.8]), of("f", [0, 0, 0.4], 1)]
    for more in ([], [of("e", [0.1, 0.1, 0.2], 2)]):  # a seed is hard for both; one of them has a further seed
        (by_seed,) = printed.above(Records([*hard, *more]), "e", ["f"])
        assert (by_seed.mean, by_seed.sign, by_seed.seeds) == (pytest.approx(0.1), 1, 2)
    (apart,) = printed.above(Records([hard[0], hard[2]]), "e", ["f"])  # no seed in common
    assert apart.mean == pytest.approx(-0.3)


def test_a_claim_is_judged_by_the_difference_with_its_standard_error() -> None:
    """p = 0.9 of 10,000 has an error of 0.3 points; three seeds 1 point apart one of 0.58."""
    one_seed = difference([0.9], [0.89], 10_000)
    assert one_seed.error == pytest.approx((0.9 * 0.1 / 1e4 + 0.89 * 0.11 / 1e4) ** 0.5)
    below, near = difference([0.89], [0.9], 10_000), difference([0.9], [0.895], 10_000)
    assert (one_seed.sign, below.sign, near.sign) == (1, -1, 0)
    assert "1.00 ± 0.43 points above, one seed" in str(one_seed)
    seeds = difference([0.89, 0.9, 0.91], [0.88, 0.89, 0.9], 10_000)
    assert seeds.error == pytest.approx((2 * 1e-4 / 3 + 0.9 * 0.1 / 1e4 + 0.89 * 0.11 / 1e4) ** 0.5)
    assert seeds.sign == 0
    same = difference([0.89, 0.9, 0.91], [0.88, 0.89, 0.9], 10_000, paired=True)  # 1 point above in each
    assert same.error == pytest.approx(one_seed.error)
    assert same.sign == 1
    up, down, level = one_seed, below, seeds
    found = [all_above(one) for one in ([up], [up, level], [up, down], [up, None], [])]
    assert found == [True, None, False, None, None]
    assert [none_below(one) for one in ([up, level], [down], [None])] == [True, False, None]


ENDLESS = ("dataset=digits", "num_clients=4", "pictures=false", "name=t", "rounds=100000")


def test_a_spent_budget_runs_nothing(tmp_path: Path) -> None:
    assert run([*ENDLESS, f"output_root={tmp_path}"], time.monotonic() - 1) is Ended.STOPPED
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("status", "ended"),
    [(0, Ended.FINISHED), (1, Ended.FAILED), (130, Ended.STOPPED), (143, Ended.STOPPED), (-9, Ended.STOPPED)],
)
def test_a_signal_stops_and_a_failure_does_not(status: int, ended: Ended, monkeypatch, tmp_path: Path) -> None:
    class Process:
        def __init__(self, command: list[str]) -> None:
            started.append(command)

        def wait(self, timeout: float) -> int:
            return status

    started: list[list[str]] = []
    monkeypatch.setattr("scripts.reproduce.experiment.subprocess.Popen", Process)
    assert run(["x=1"], time.monotonic() + 60) is ended
    monkeypatch.setattr(fedavg_svrg, "EXPERIMENTS", (replace(TINY, pictures={}), replace(TINY, name="second")))
    found = program.run_experiments(["fedavg_svrg"], "small", tmp_path, tmp_path / "place", time.monotonic() + 60)
    assert found is ended
    assert len(started) == (2 if ended is Ended.STOPPED else 3)


@looped("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_this_process_alone_stops_what_it_runs(number: signal.Signals, monkeypatch) -> None:
    class Process:
        def __init__(self, command: list[str]) -> None:
            pass

        def wait(self, timeout: float | None = None) -> int:
            if not told:
                signal.raise_signal(number)
            return 143

        def terminate(self) -> None:
            told.append(number)

    told: list[signal.Signals] = []
    monkeypatch.setattr("scripts.reproduce.experiment.subprocess.Popen", Process)
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        pass_on_signals()
        with pytest.raises(KeyboardInterrupt):
            run(["x=1"], time.monotonic() + 60)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert told == [number]


@pytest.mark.slow
def test_a_run_is_stopped_by_the_budget_with_its_state(tmp_path: Path) -> None:
    assert run([*ENDLESS, f"output_root={tmp_path}"], time.monotonic() + 60) is Ended.STOPPED
    (checkpoint,) = tmp_path.glob("t/*/seed=0/checkpoint.pt")
    assert checkpoint.stat().st_size > 0


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["fedavg_svrg"]])
def test_a_paper_at_small_scale(tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fedavg_svrg, "EXPERIMENTS", (fedavg_svrg.DIABETES,))
    assert program.main([*arguments, "--outputs", str(tmp_path)]) == 0
    page = (tmp_path / "reproduce" / "fedavg_svrg.md").read_text()
    assert "8 runs of 1 seed" in page.split("## Diabetes")[1]
    assert "name=fedavg_svrg_diabetes_small rounds=20" in page.split("# FedAvg-SVRG")[0]


def test_cells() -> None:
    def of(seed: int, value: float | None) -> Run:
        line = {"round": 3.0} | ({} if value is None else {"test/accuracy": value})
        return Run({"label": "a", "seed": str(seed), "rounds": "3"}, [line])

    assert markdown.spread([0.5], "{:.1f}".format, 100) == "50.0"
    assert markdown.spread([0.5, 0.5], "{:.1f}".format, 100) == "50.0"
    assert markdown.spread([0.4, 0.6], "{:.1f}".format, 100) == "50.0 ± 14.1"
    assert markdown.spread([], str) == ""
    assert markdown.middle([3.0, 1.0, 2.0], "{:g}".format) == "2 (1–3)"
    runs = Records([of(0, 0.5), of(1, None)])
    assert runs.collect(lambda run: run.last("test/accuracy")) == [0.5]
    assert markdown.last("test/accuracy")(runs) == "0.5"
    shown = markdown.table("x", [("a", runs), ("b", Records())], [("n", lambda found: str(len(found)))])
    assert shown == "| x | n |\n| --- | ---: |\n| a | 2 |"
    assert markdown.less(None, 1.0) is None
    assert markdown.every([]) is markdown.every([True, None]) is None
    assert [markdown.verdict(one) for one in (None, True, False)] == ["", "**holds**", "**does not hold**"]


@looped(
    "commands, shown",
    [
        (["a x=1 seed=0", "a x=2 seed=0", "a x=1 seed=1,2", "a x=2 seed=1,2"], ["a x=1,2 seed=0,1,2"]),
        (["a x=1 seed=0", "a x=2 seed=1"], ["a x=1 seed=0", "a x=2 seed=1"]),
        (["a x=1", "a y=1", "a x=1 y=1"], ["a x=1", "a y=1", "a x=1 y=1"]),
        (["a x=[1,2]", "a x=[3,4]"], ["a x=[1,2]", "a x=[3,4]"]),
    ],
)
def test_a_page_joins_commands_that_differ_in_the_values_of_one_option(commands: list[str], shown: list[str]) -> None:
    assert joined(commands) == shown
