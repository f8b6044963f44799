"""Accuracy for equal bits: rates and steps follow from trials, ties and chance from the runs, and budgets are kept."""

from dataclasses import replace
from pathlib import Path

import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedcomp.display import figure
from scripts.reproduce.records import Folder, Records, Run
from scripts.reproduce.same_bits import SEARCHES, TASKS, _searched
from scripts.reproduce.same_bits_picture import draw_curves, first_for_some_bits
from scripts.reproduce.same_bits_rows import METHOD, NEIGHBOURS, ROWS, Row
from scripts.reproduce.same_bits_search import ACCURACY, SEEDS, Search, chosen, final, next_rate, trials
from scripts.reproduce.same_bits_tables import by, places, standing
from tests.looped import looped

METHODS = NEIGHBOURS / "method"

RECORDS = Folder(Path(__file__).resolve().parents[2] / "docs" / "results" / "records")


def _drawn(runs: list[Run], folder: Path, monkeypatch) -> Axes:
    saved: list[Figure] = []
    monkeypatch.setattr(figure, "save", lambda page, path: saved.append(page))
    draw_curves(Records(runs), MNIST, folder / "a.png")
    return saved[0].axes[0]


@looped("search", SEARCHES)
def test_runs_end_with_their_budget(search) -> None:
    for run in RECORDS[search].where(state="finished"):
        limit, rounds = (search.task.max_bits, 160) if run.about["seed"] in SEEDS else (search.task.max_bits / 4, 40)
        sent = run.last("bits/total") or 0.0
        assert sent < limit + 2 * sent / run.rounds
        assert run.rounds == rounds or sent >= limit


DIGITS, MNIST = TASKS[0], TASKS[2]
FEDAVG = ROWS[0]


def _run(rate: float, steps: int, seed: int, accuracy: float, state: str = "finished", row: Row = FEDAVG) -> Run:
    about = {"label": row.label, "seed": str(seed), "state": state, row.rate: f"{rate:g}", row.steps: row.value(steps)}
    return Run(about, [{"round": 5.0, "bits/total": 7.0, "test/accuracy": accuracy}])


def _trials(scores: dict[tuple[int, float], float | None], row: Row = FEDAVG) -> list[Run]:
    return [
        _run(rate, steps, seed, score or 0.0, "failed" if score is None and seed == 10 else "finished", row)
        for (steps, rate), score in scores.items()
        for seed in (10, 11)
    ]


def test_one_method_alone_is_first_in_nothing() -> None:
    (search,) = (one for one in SEARCHES if one.task == DIGITS)
    alone, two = (
        _searched(search, replace(search.records(search), runs=[run for label in labels for run in _of(search, label)]))
        for labels in (["SCAFFOLD"], ["SCAFFOLD", "TAMUNA"])
    )
    assert ["| SCAFFOLD |  |" in page for page in (alone, two)] == [True, False]
    for shown in ("![", "| first |"):
        assert [shown in page for page in (alone, two)] == [False, True]


def _of(search: Search, label: str) -> list[Run]:
    return search.records(search).where(label=label).runs


def test_every_method_has_a_row_and_all_clients_count_alike() -> None:
    words = {row.words[0].removeprefix(f"{METHOD}="): row.words[1:] for row in ROWS}
    assert sorted(words) == sorted(path.stem for path in METHODS.glob("*.yaml"))
    assert len({row.label for row in ROWS}) == len(ROWS)
    assert words["fedavg"] == words["fedavg_16"] == words["fedmrn"] == ["algorithm.weights=uniform"]
    noise = [row for row in ROWS if row.rate == "algorithm.alpha"]
    assert [(row.label, row.first_rates()) for row in noise] == [
        (name, (0.03, 0.1, 0.3)) for name in ("FedMRN", "FedMRN, 16 bits down")
    ]
    assert [(row.rate, row.adam) for row in ROWS if row.first_rates(10) == row.first_rates()] == [
        *(("client.lr", True) for _ in range(4)),
        *((rate, False) for rate in ("algorithm.alpha",) * 2 + ("algorithm.lr",) * 2),
    ]
    assert FEDAVG.first_rates(10) == (1, 3, 10)
    assert words["doublesqueeze"] == words["scaffold"] == words["gr"] == []  # they have it so, or no other


def test_methods_with_a_dense_downlink_have_a_row_in_16_bits() -> None:
    for path in METHODS.glob("*_16.yaml"):
        own = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert own["downlink"] == {"precision": "float16"}
        base = yaml.safe_load((METHODS / f"{own['defaults'][0]}.yaml").read_text(encoding="utf-8"))
        assert own["label"].startswith(base["label"])
        assert ("compressor" in own) == (own["defaults"][0] in ("fedavg", "svrg"))
        assert not any("compressor@downlink" in str(one) for one in base["defaults"])
    assert len(list(METHODS.glob("*_16.yaml"))) == 6


def test_rates_are_added_until_the_best_has_one_on_either_side() -> None:
    assert next_rate({0.03: 0.5, 0.1: 0.6, 0.3: 0.4}) is None
    assert next_rate({0.03: 0.7, 0.1: 0.6, 0.3: 0.4}) == 0.01
    assert next_rate({0.03: 0.5, 0.1: 0.6, 0.3: 0.8}) == 1
    assert next_rate({0.03: 0.5, 0.1: 0.6, 0.3: None}) is None  # diverged: worse than any
    assert next_rate({0.03: None, 0.1: None, 0.3: None}) == 0.01
    assert next_rate({rate: rate for rate in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)}) is None  # it gives up
    assert next_rate({}) is None


def test_no_choice_is_at_the_edge_near_chance_or_of_a_rate_that_diverges() -> None:
    def pick(scores: dict[tuple[int, float], float | None], *runs: Run) -> tuple[int, float] | None:
        return chosen(FEDAVG, Records([*_trials(scores), *runs]), DIGITS)

    inside = {(5, 0.03): 0.5, (5, 0.1): 0.6, (5, 0.3): 0.4}
    assert pick(inside) == (5, 0.1)
    more_steps = {(20, 0.03): 0.5, (20, 0.1): 0.7, (20, 0.3): 0.4}
    assert pick(inside | more_steps) == (20, 0.1)
    assert pick({(5, 0.03): 0.8} | inside | {(5, 0.03): 0.8}) is None
    assert pick({setting: score / 3 for setting, score in inside.items()}) is None  # 20 %, chance is 13.7
    assert pick(inside | more_steps, _run(0.1, 20, 0, 0.1, "failed")) == (5, 0.1)
    one_trial = Records([run for run in _trials(inside) if run.about["seed"] == "10"])
    assert trials(FEDAVG, one_trial) == {}


def test_commands_follow_from_the_records() -> None:
    records = [Records()]
    search = type(SEARCHES[0])("t", SEARCHES[0].commands, None, [], task=DIGITS, records=lambda search: records[0])
    first = search.next_command(FEDAVG)
    for part in ("client.lr=0.03,0.1,0.3", "client.steps=5,20,60", "seed=10,11", "algorithm.weights=uniform", "-m"):
        assert part in first
    inside = {(steps, rate): 0.9 - abs(rate - 0.1) - steps / 1000 for steps in (5, 20) for rate in (0.03, 0.1, 0.3)}
    edge = {(60, 0.03): 0.8, (60, 0.1): 0.7, (60, 0.3): 0.6}
    records[0] = Records(_trials(inside | edge))
    assert {"client.lr=0.01", "client.steps=60", "seed=10,11"} <= set(search.next_command(FEDAVG))
    records[0] = Records(_trials(inside | edge | {(60, 0.01): 0.75}))
    assert {"client.lr=0.1", "client.steps=5", "seed=0,1,2"} <= set(search.next_command(FEDAVG))
    records[0] = Records(_trials({setting: score for setting, score in inside.items() if setting[0] == 5}))
    assert search.next_command(FEDAVG) == first  # the trials were stopped before those of more steps
    records[0] = Records(_trials(inside | edge | {(60, 0.01): 0.75}))
    done = [_run(0.1, 5, seed, 0.9) for seed in (0, 1, 2)]
    stopped = Records([*records[0].runs, *done[:2], _run(0.1, 5, 2, 0.5, "unfinished")])
    search_on = replace(search, records=lambda search: stopped)
    assert search_on.next_command(FEDAVG) == search.next_command(FEDAVG)  # the third run goes on
    records[0] = Records([*records[0].runs, *done])
    assert search.next_command(FEDAVG) == []
    assert list(final(FEDAVG, records[0], 5, 0.1)) == done
    alone = {(steps, rate): score for steps in (20, 60) for rate, score in ((0.03, 0.2), (0.1, 0.3), (0.3, 0.2))}
    alone |= {(5, rate): score for rate, score in ((0.03, 0.7), (0.1, 0.8), (0.3, 0.6))}
    records[0] = Records([*_trials(alone), _run(0.1, 5, 0, 0.1, "failed")])  # so that the best is now at the edge
    assert {"client.lr=0.01", "client.steps=5", "seed=10,11"} <= set(search.next_command(FEDAVG))
    records[0] = Records()
    assert len(list(search.overrides("paper"))) == len(ROWS)  # a command that brings no record is not given twice
    assert list(search.overrides("small")) == []
    (text,) = (task for task in TASKS if not task.classes)
    assert text.name == "shakespeare"
    on_text = replace(search, task=text)
    assert [row.label for row in ROWS if row not in on_text.rows] == ["FedDistill"]
    fedmrn = next(row for row in ROWS if row.label == "FedMRN")
    assert ["client.lr=10" in on_text.next_command(row) for row in (fedmrn, FEDAVG)] == [True, False]
    assert len(list(on_text.overrides("paper"))) == len(ROWS) - 1


def test_steps_that_are_drawn_are_read_from_their_odds() -> None:
    tamuna = next(row for row in ROWS if row.label == "TAMUNA")
    scores = {(steps, 0.1): 0.5 for steps in (5, 20, 60)}
    assert trials(tamuna, Records(_trials(scores, tamuna))) == scores


def test_methods_within_two_standard_errors_share_a_place() -> None:
    clear = {"a": [0.9, 0.91, 0.92], "b": [0.8, 0.81, 0.82], "c": [0.9, 0.9, 0.9], "d": [0.7, 0.86, 0.78]}
    assert places(clear, 10_000) == [["a", "c"], ["b", "d"]]
    near = {"a": [0.982, 0.982], "b": [0.98, 0.98]}
    assert places(near, 10_000) == [["a", "b"]]  # 0.2 points, where a test of 10,000 is off by 0.14
    assert places(near, 1_000_000) == [["a"], ["b"]]
    assert places({}, 100) == []


def test_who_is_near_chance_or_has_one_seed_has_no_place() -> None:
    scores = {"a": [0.9, 0.9], "b": [0.2, 0.2], "c": [0.5, 0.5]}
    assert standing(scores, DIGITS) == [["a"], ["c"]]
    assert standing({**scores, "d": [0.6]}, DIGITS) == []


def test_an_accuracy_is_that_of_the_last_evaluation_not_of_the_best() -> None:
    lines = [{"test/accuracy": accuracy, "bits/total": bits} for accuracy, bits in ((0.1, 0.0), (0.9, 5.0), (0.6, 9.0))]
    run = Run({}, lines)
    assert by(9.0, "bits/total")(run) == 0.6
    assert by(8.0, "bits/total")(run) == 0.9
    assert by(4.0, "bits/total")(run) is None


@looped("search", SEARCHES)
def test_committed_runs_have_the_choice_of_their_trials(search) -> None:
    records = RECORDS[search]
    for row in ROWS:
        runs = records.where(label=row.label)
        done = {run.about["seed"] for run in runs if run.about["state"] == "finished"}
        if done >= set(SEEDS):  # else no row of the page
            best = chosen(row, runs, search.task)
            assert best is not None, row.label
            assert final(row, runs, *best), row.label


def test_what_is_drawn_thick_has_an_accuracy_that_nothing_has_reached_with_as_few_bits() -> None:
    drawn = {"few": ([1.0, 2.0], [30.0, 20.0]), "many": ([4.0, 8.0], [29.0, 90.0]), "never": ([3.0, 9.0], [30.0, 90.0])}
    assert first_for_some_bits(drawn, MNIST) == {"few", "many"}
    drawn["near chance"] = ([0.5], [20.0])
    assert first_for_some_bits(drawn, MNIST) == {"few", "many"}


def test_the_five_papers_and_fedavg_are_named_by_the_row_that_ends_best(tmp_path: Path, monkeypatch) -> None:
    ends = {"FedAvg": 0.5, "FedAvg, 16 bits": 0.6, "FedAvg-SVRG": 0.4, "Rand-k-Spatial 5 %": 0.7, "EDEN": 0.9, "A": 0.1}
    lines = {label: [{"round": 1, ACCURACY: end, "bits/total": 8.0}] for label, end in ends.items()}
    axes = _drawn([Run({"label": label, "seed": "0"}, own) for label, own in lines.items()], tmp_path, monkeypatch)
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == ["EDEN", "Rand-k-Spatial 5 %", "FedAvg, 16 bits", "FedAvg-SVRG", "2 other methods"]


def test_the_picture_holds_every_line_of_near_0_and_of_100_percent(tmp_path: Path, monkeypatch) -> None:
    runs = []
    for label, accuracies in (("good", (0.1, 0.5, 1.0)), ("bad", (0.1, 0.03, 0.2))):
        lines = [{"round": index, ACCURACY: value, "bits/total": 8.0 * index} for index, value in enumerate(accuracies)]
        runs.append(Run({"label": label, "seed": "0"}, lines))
    axes = _drawn(runs, tmp_path, monkeypatch)
    low, high = sorted(axes.get_ylim())
    shown = [value for line in axes.get_lines() for value in line.get_ydata()]
    assert len(shown) == 4
    assert all(low < value < high for value in shown)
    assert min(shown) > 0


@looped("first, last", [(0.35, 0.37), (0.5, 0.75), (0.6, 0.99)])
def test_accuracies_that_are_close_have_ticks_too(first: float, last: float, tmp_path: Path, monkeypatch) -> None:
    lines = [{"round": at, ACCURACY: value, "bits/total": 8.0 * at} for at, value in enumerate((0.1, first, last))]
    axes = _drawn([Run({"label": "FedAvg", "seed": "0"}, lines)], tmp_path, monkeypatch)
    low, high = sorted(axes.get_ylim())
    assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 3
