"""The page of fine-tuning: seconds on two networks."""

from collections.abc import Mapping, Sequence

from scripts.reproduce import fine_tuning
from scripts.reproduce.experiment import Experiment
from scripts.reproduce.fine_tuning import RATE, ROLES
from scripts.reproduce.fine_tuning_search import label
from scripts.reproduce.records import ABOUT, Records, Run

TIMES = ("time/symmetric_10/0ms", "time/cell_20/0ms")


class Given:
    """Records of the roles alone."""

    def __init__(self, *runs: Run) -> None:
        self.records = Records(runs, ROLES.options, ROLES.metrics)

    def __getitem__(self, experiment: Experiment) -> Records:
        return self.records if experiment is ROLES else Records()


def run(method: str, perplexities: Sequence[float], seconds: float | None, seed: int = 0) -> Run:
    """A run that evaluates every second round; a round takes so long, and twice that in the cell."""
    about = dict.fromkeys((*ABOUT, RATE), "1") | {"label": label(method), "seed": str(seed), "commit": "a"}
    lines: list[Mapping[str, float]] = []
    for number, value in enumerate(perplexities):
        line = {"round": 2.0 * number, "test/perplexity": value, "bits/uplink": number, "bits/total": 2.0 * number}
        times = {} if seconds is None else {TIMES[0]: 2 * seconds * number, TIMES[1]: 4 * seconds * number}
        lines.append(line | times)
    return Run(about, lines)


def rows(*runs: Run) -> list[str]:
    page = fine_tuning.page(Given(*runs))
    _, found, section = page.partition("### Seconds on two networks")
    return [line for line in section.partition("##")[0].splitlines() if line.startswith("|")] if found else []


def test_seconds_a_round_and_to_half_of_fedits_gain() -> None:
    """FedIT's gain is 2 of 6: the target is 5. Runs without times, and those that never get there, have empty cells."""
    fedit = run("fedit", [6, 5.5, 4.5, 4], 3.0)
    late = [run("topk", [6, 5.5, 5.2, 5], 1.0), run("topk", [6, 5, 5, 5], 2.0, seed=1)]
    never = [run("ffa_lora", [6, 5.5, 5.5, 5], 1.0), run("ffa_lora", [6, 5.5, 5.5, 5.1], 1.0, seed=1)]
    head, _, *found = rows(fedit, *late, *never, run("rolora", [6, 4], None))
    assert "round of 5 | 10 : 10 Mbit/s, a round | to 5 | cell of 20 Mbit/s up, a round | to 5" in head
    assert f"| {label('fedit')} | 4 | 3 | 12 | 6 | 24 |" in found
    assert any(row.startswith(f"| {label('topk')} | 4 ± 2.83 | 1.5 ± 0.707 | 5 ± 1.41 | 3 ±") for row in found)
    assert f"| {label('ffa_lora')} |  | 1 |  | 2 |  |" in found
    assert f"| {label('rolora')} | 2 |  |  |  |  |" in found


def test_records_without_times_have_no_such_table() -> None:
    assert rows(run("fedit", [6, 5], None)) == []
