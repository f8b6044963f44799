"""A replay says exactly what a run under the other network would have recorded, and refuses what it cannot say."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fedcomp.config.overrides import each_value
from fedcomp.network.traffic.file import FILE
from fedcomp.records.reader import RunFiles
from fedcomp.records.status import Status, read_status
from fedcomp.replay.__main__ import main
from fedcomp.replay.networks import networks
from tests.interrupted import before_round
from tests.left import folder_of, record, status_of
from tests.raising import raising

NETWORK = ("model.hidden=[3]", "client.batch_size=40", "threads=1")
SMALL = ("rounds=5", "num_clients=4", "eval_every=2", *NETWORK, "pictures=false", "quiet=true")
TWO = ("participation=uniform", "participation.num_participants=2")
METHODS = {
    "fedavg": ("client.steps=2",),
    "topk": ("compressor=topk", "compressor.positions=rice", "compressor@downlink=sign", "partition=dirichlet"),
    "gr": ("algorithm=bicompfl_gr", "algorithm.allocation=adaptive", "client.steps=2"),
    "fedscalar": ("algorithm=fedscalar", "algorithm.sends=scalar", *TWO),
    "empty": ("participation=bernoulli", "participation.probability=0.2", "repeats=2"),
}
SLOW = ("network.seconds_per_gradient=1e-4",)
KINDS = {
    "lognormal": ("network=lte", "network.jitter=0.3", "network.spread_gradient=3", *SLOW),
    "shared": ("network=cell_20", "network.cells=2", "network.trailing=wait", "network.start_s=0.1"),
    "csv": ("network=csv", "network.path={path}", "network.down=multicast"),
    "headers": ("network=symmetric_10", "network.header={{message: 22, packet: 40, payload: 1460}}"),
}
RATES = (
    "down_bps,up_bps,rtt_s,seconds_per_gradient\n2e7,1e6,0.1,0.001\n1e7,2e6,0,0.002\n5e6,3e6,0.02,0\ninf,1e6,0.1,0.01\n"
)
Fedcomp = Callable[..., int]


@pytest.mark.thorough
@pytest.mark.parametrize("method", METHODS)
def test_a_replay_is_the_run_under_the_other_network(fedcomp: Fedcomp, tmp_path: Path, method: str) -> None:
    rates = tmp_path / "rates.csv"
    rates.write_text(RATES)
    fixed, options = tmp_path / "fixed", (*SMALL, *METHODS[method])
    assert fedcomp(*options, "network=fixed", f"output_root={fixed}") == 0
    kinds = {name: [word.format(path=rates) for word in words] for name, words in KINDS.items()}
    if method not in ("fedavg", "topk"):
        kinds = {"lognormal": kinds["lognormal"]}
    for name, words in kinds.items():
        assert fedcomp(*options, *words, f"output_root={tmp_path / name}") == 0
        assert main([str(fixed), *words, "--out", str(tmp_path / f"replay-{name}")]) == 0
        assert record(tmp_path / f"replay-{name}") == record(tmp_path / name)
        one, other = (next((tmp_path / place).rglob(FILE)) for place in (name, f"replay-{name}"))
        assert one.read_bytes() == other.read_bytes()
        assert one.parent.relative_to(tmp_path / name) == other.parent.relative_to(tmp_path / f"replay-{name}")


def test_times_of_a_run_without_a_network(fedcomp: Fedcomp, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedcomp(*SMALL, "record_traffic=true", f"output_root={tmp_path}") == 0
    assert main([str(tmp_path), "network=lte,5g", "network.seconds_per_gradient=0,1", "--target", "test/loss=9"]) == 0
    shown = capsys.readouterr().out
    assert "seconds" in shown
    assert shown.count("seconds_per_gradient=1") == 2
    assert shown.count("lte") == shown.count("5g") == 2, "networks are named as they were given"


def test_a_replay_replaces_no_run_that_was_trained(fedcomp: Fedcomp, tmp_path: Path, capsys) -> None:
    root = tmp_path / "recorded"
    for network in ("fixed", "lte"):
        assert fedcomp(*SMALL, f"network={network}", f"output_root={root}") == 0
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    for network in ("network=fixed", "network=lte"):  # the one run itself, and the other
        assert main([str(root), network, "--out", str(root)]) == 2
        assert "is a run that a replay would replace: give another folder to --out" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


@pytest.mark.thorough
def test_what_cannot_be_replayed(fedcomp: Fedcomp, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fedcomp(*SMALL, f"output_root={tmp_path / 'plain'}") == 0
    assert main([str(tmp_path / "plain"), "network=lte"]) == 1
    assert "has no traffic.npz, from which times follow" in capsys.readouterr().err
    wrong = {
        ("network=6g",): "network=6g is unknown",
        ("network=lte", "network.rate=3"): "network.rate",
        ("network=none",): "network=none has no clock",
        ("network=lte", "network.up_bps=0"): "network.up_bps=0 must be a number in (0, inf]",
        ("network=lte", "network.deadline=3"): "network.deadline=3 changes who learns",
        (): "no network: give network=<name>",
    }
    for words, says in wrong.items():
        assert main([str(tmp_path / "plain"), *words]) == 2
        assert says in capsys.readouterr().err
    assert main(["network=lte"]) == 2
    assert "no run: give the folder" in capsys.readouterr().err
    root = tmp_path / "recorded"
    assert fedcomp(*SMALL, "network=fixed", f"output_root={root}") == 0
    (tmp_path / "few.csv").write_text("down_bps,up_bps\n1,1\n")
    assert main([str(root), "network=csv", f"network.path={tmp_path / 'few.csv'}"]) == 1
    assert "has 1 rows, but 4 clients need one each" in capsys.readouterr().err


def test_runs_without_a_record_or_a_config(fedcomp: Fedcomp, tmp_path: Path, capsys) -> None:
    assert fedcomp(*SMALL, "network=fixed", f"output_root={tmp_path}") == 0
    folder = folder_of(tmp_path)
    whole = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(whole[: whole.index("model:")])
    capsys.readouterr()
    assert main([str(tmp_path), "network=lte"]) == 1
    assert "no config of a run: model is missing" in capsys.readouterr().err
    (folder / "metrics.jsonl").unlink()
    assert main([str(tmp_path), "network=lte"]) == 1
    assert capsys.readouterr().err == f"left out: {folder} has no record: metrics.jsonl is missing or empty\n"
    (folder / "config.yaml").unlink()
    assert main([str(tmp_path), "network=lte"]) == 1
    said = capsys.readouterr().err
    assert "cannot read" in said
    assert "finish it first" not in said


def test_an_unfinished_run_is_taken_with_partial_alone(fedcomp: Fedcomp, tmp_path: Path, capsys) -> None:
    with before_round(4, raising(ValueError("stopped"))):
        assert fedcomp(*SMALL, "network=fixed", "checkpoint_every=1", f"output_root={tmp_path}") != 0
    assert main([str(tmp_path), "network=lte"]) == 1
    assert "finish it first, or give --partial" in capsys.readouterr().err
    assert main([str(tmp_path), "network=lte", "--partial"]) == 0


def test_what_a_partial_replay_writes_is_of_an_unfinished_run(fedcomp: Fedcomp, tmp_path: Path, capsys) -> None:
    whole, short, out = (tmp_path / name for name in ("whole", "short", "out"))
    assert fedcomp(*SMALL, "network=fixed", f"output_root={whole}") == 0
    with before_round(4, raising(ValueError("stopped"))):
        assert fedcomp(*SMALL, "seed=7", "network=fixed", "checkpoint_every=1", f"output_root={short}") != 0
    capsys.readouterr()
    assert main([str(short), "network=lte", "--partial", "--out", str(out)]) == 0
    assert capsys.readouterr().out.endswith(
        f"1 replayed run in {out}: fedcomp-status {out}\n"
        "1 of them of unfinished runs, which stand as interrupted: fedcomp-report leaves them out\n"
    )
    assert status_of(out) == Status("interrupted", 2)
    trained, made = (RunFiles(folder_of(root)).written_config() for root in (short, out))
    assert {key for key in trained if made[key] != trained[key]} == {"network", "output_root"}
    assert main([str(whole), str(short), "network=lte", "--partial", "--out", str(out)]) == 0
    assert f"2 replayed runs in {out}: fedcomp-report {out}\n1 of them of unf" in capsys.readouterr().out
    states = {path.parent.name: read_status(path.parent) for path in out.rglob("status.json")}
    found = {name: (status.state, status.round) for name, status in states.items() if status is not None}
    assert found == {"seed=0": ("finished", 5), "seed=7": ("interrupted", 2)}


def test_values_are_read_as_those_of_a_grid() -> None:
    assert [one.words[1] for one in networks(["network=lte", "network.rtt_s=range(1,3)"])] == [
        "network.rtt_s=1",
        "network.rtt_s=2",
    ]
    assert each_value("network.path=ü.csv,b.csv") == ["network.path='ü.csv'", "network.path=b.csv"]
    with pytest.raises(ValueError, match="several values"):
        networks(["network=lte", "network.rtt_s=range(1,1)"])


def test_commas_in_brackets_belong_to_a_value() -> None:
    words = ["network=cell_20", "network.cells=2", "network.capacity_bps=[1e7,2e7],3e7", "network.up_bps=1e6,2e6"]
    found = networks(words)
    assert [one.node["capacity_bps"] for one in found] == [[1e7, 2e7]] * 2 + [3e7] * 2
    assert [one.node["up_bps"] for one in found] == [1e6, 2e6] * 2
