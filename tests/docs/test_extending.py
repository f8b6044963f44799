"""The parts of docs/extending.md, and the commands of docs/tutorial.md, run as written, outside the repository."""

import importlib
import re
import shlex
import sys
from pathlib import Path

import pytest

from fedcomp.check import (
    ClientCase,
    ParticipationCase,
    PartitionCase,
    algorithm,
    check_participation,
    check_partition,
    client,
    codec,
    messages,
    world,
)
from fedcomp.records.metrics_file import read_lines
from tests.docs.pages import PAGES, ROOT, blocks
from tests.looped import looped
from tests.outside import write_files
from tests.parts import Compressor, Dense, ServerSgd, Sgd

PAGE = "docs/extending.md"


def files(page: str) -> dict[str, str]:
    """{path: text} of the blocks that follow a path of a file in `mine`."""
    return dict(re.findall(r"`(mine/[\w/]+\.\w+)`:\n\n```\w+\n(.*?)^```$", PAGES[page], re.S | re.M))


def _commands() -> list[str]:
    """The commands that use them."""
    lines = [line for _, block in blocks(PAGES[PAGE]) for line in block.splitlines()]
    return [line for line in lines if line.startswith("fedcomp --config-dir mine")]


def test_an_objective_of_your_own_is_searched_for(fedcomp, outside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna")
    write_files(outside, files("docs/grids.md"))
    (line,) = re.findall(r"^fedcomp --config-dir mine .*", PAGES["docs/grids.md"], re.M)
    short = {"rounds": "rounds=2", "name": "name=fedcomp"}
    words = [short.get(word.partition("=")[0], word) for word in shlex.split(line)[1:]]
    out = f"output_root={outside / 'outputs'}"
    assert fedcomp(*words, "sweeper.n_trials=2", "pictures=false", "num_clients=4", out) == 0
    assert re.search(r"best of 2 trials: loss \d\.\d{4} with client.lr=", capsys.readouterr().err)


@pytest.mark.parametrize("command", _commands())
def test_a_part_of_your_own_learns(fedcomp, outside: Path, command: str) -> None:
    write_files(outside, files(PAGE))
    short = ["rounds=15", "eval_every=15", "quiet=true", "pictures=false"]
    assert fedcomp(*shlex.split(command)[1:], *short, f"output_root={outside / 'outputs'}") == 0
    (record,) = (outside / "outputs").rglob("metrics.jsonl")
    first, *_, last = read_lines(record)
    assert last["test/loss"] < 0.9 * first["test/loss"]
    if "compressor=quarter" in command:
        assert last["bpp/uplink"] == 32 * round(0.25 * 2410) / 2410
    if "algorithm=fednova" in command and "compressor=" not in command:
        assert last["bpp/uplink"] == 32 * (2410 + 1) / 2410
        assert last["bpp/downlink"] == 16
    if "network=remote" in command:  # the server waits for the far client: its round trip, and the model down
        assert last["time/total"] > 15 * (0.6 + 32 * 2410 / 5e6)
    if "tracker=scores" in command:
        assert (outside / "scores.csv").read_text() == f"fedcomp,0,finished,{last['test/accuracy']}\n"


def test_finished_runs_are_timed_on_a_network_of_your_own(fedcomp, outside: Path) -> None:
    from fedcomp.replay.__main__ import main

    write_files(outside, files(PAGE))
    short = ("rounds=2", "num_clients=5", "quiet=true", "pictures=false")
    assert fedcomp(*short, "record_traffic=true", f"output_root={outside / 'plain'}") == 0
    assert fedcomp("--config-dir", "mine", *short, "network=remote", f"output_root={outside / 'timed'}") == 0
    given = ("--config-dir", "mine", "network=remote", "--out", str(outside / "replayed"))
    assert main([str(outside / "plain"), *given]) == 0
    timed, replayed = (read_lines(next((outside / name).rglob("metrics.jsonl"))) for name in ("timed", "replayed"))
    assert [line["time/total"] for line in replayed] == [line["time/total"] for line in timed]


def test_every_kind_of_part_is_written_out() -> None:
    kinds = {"compressor": "quarter", "algorithm": "fednova", "model": "residual", "dataset": "spirals"}
    kinds |= {"partition": "zipf", "participation": "pairs", "client": "distilling", "network": "remote"}
    kinds["tracker"] = "scores"
    for group, name in kinds.items():
        assert {f"mine/{name}.py", f"mine/{group}/{name}.yaml"} <= files(PAGE).keys()
        assert any(f"{group}={name}" in command for command in _commands())


@looped("name, bits", [("quarter", lambda layers: 32 * max(1, round(0.25 * sum(layers)))), ("large", None)])
def test_the_compressors_pass_the_suite(name: str, bits, outside: Path) -> None:
    write_files(outside, files(PAGE))
    sys.path.append(str(outside / "mine"))
    own = getattr(importlib.import_module(name), name.title())
    case = codec.CodecCase(name, own(), bits)
    for check in (*codec.CHECKS, *messages.CHECKS):
        check(case)


def test_the_other_parts_pass_theirs(outside: Path) -> None:
    write_files(outside, files(PAGE))
    sys.path.append(str(outside / "mine"))
    pairs, zipf, distilling = map(importlib.import_module, ("pairs", "zipf", "distilling"))
    check_participation(ParticipationCase("pairs", pairs.Pairs, rounds=1))
    check_partition(PartitionCase("zipf", zipf.Zipf, world.dataset(), 5))
    for check in client.CHECKS:
        check(ClientCase("distilling", distilling.Distilling(lr=0.1, batch_size=4)))


def _fednova_bits(dim: int, stats: int, layers: tuple[int, ...], cohort: int) -> dict[str, int]:
    each = 16 * dim + 32 * stats
    up = cohort * (32 * dim + 32 + 32 * stats)
    return {"uplink": up, "downlink": world.NUM_CLIENTS * each, "broadcast": each}


@pytest.mark.parametrize("module", [world.mlp, world.with_batch_norm])
def test_the_algorithm_passes_the_suite(outside: Path, module) -> None:
    write_files(outside, files(PAGE))
    sys.path.append(str(outside / "mine"))
    fednova = importlib.import_module("fednova")
    method = fednova.FedNova(Sgd(lr=0.1, batch_size=4, epochs=2), ServerSgd(), Compressor(Dense()))
    case = algorithm.AlgorithmCase("fednova", method, _fednova_bits, module)
    for check in algorithm.CHECKS:
        check(case)


TUTORIAL = "docs/tutorial.md"
SCRIPTS = {
    "fedcomp-check": "fedcomp.cli.check",
    "fedcomp-report": "fedcomp.reporting.__main__",
    "fedcomp-status": "fedcomp.status.__main__",
}
ELSEWHERE = ("launcher=", "launcher.", "tracker=")
"""Options of a cluster and of W&B: here the runs of a grid run one after another."""


def _tutorial() -> list[list[str]]:
    lines = [line for language, text in blocks(PAGES[TUTORIAL]) if not language for line in text.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("fedcomp")]


def _shortened(words: list[str]) -> list[str]:
    kept = [re.sub(r"^seed=.*", "seed=0,1", word) for word in words if not word.startswith(ELSEWHERE)]
    return [*kept, "rounds=2", "eval_every=1", "quiet=true"]


@pytest.mark.thorough
def test_the_tutorial(fedcomp, outside: Path) -> None:
    write_files(outside, files(TUTORIAL))
    for name, *words in _tutorial():
        if name == "fedcomp":
            assert fedcomp(*_shortened(words), f"output_root={outside / 'outputs'}") == 0, words
        else:
            assert importlib.import_module(SCRIPTS[name]).main(words) == 0, [name, *words]
    assert len(list((outside / "outputs").rglob("metrics.jsonl"))) == 1 + 2 * (4 + 3)
    for asked in ("report/table.tex", "report/report.html", "paper/figure.pdf"):
        assert (outside / asked).is_file(), asked
    (python,) = [text for language, text in blocks(PAGES[TUTORIAL]) if language == "python" and "load_runs" in text]
    exec(python, {})  # the example from Python


def test_options_of_the_cluster_exist() -> None:
    words = [word for command in _tutorial() for word in command if word.startswith("launcher.")]
    options = (ROOT / "conf" / "launcher" / "slurm.yaml").read_text()
    assert words
    for word in words:
        assert re.search(rf"^{word.partition('=')[0].removeprefix('launcher.')}:", options, re.M), word
