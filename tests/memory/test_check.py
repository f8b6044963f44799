"""What the check says a run takes: counted in tiny rounds, held against what real ones take."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedcomp.algorithm.bidirectional.cser import CSER
from fedcomp.memory import check as memory
from fedcomp.memory.check import check_memory, needed
from fedcomp.memory.probe import LiveTensors, probe
from tests.conformance import world
from tests.parts import Compressor, Dense, ErrorFeedback, FedAvg, ServerSgd, Sgd, Sign, TopK

CPU = torch.device("cpu")
STEP = Sgd(lr=0.1, steps=1)
FEEDBACK = FedAvg(STEP, ServerSgd(), Compressor(TopK(0.1), ErrorFeedback()), Compressor(Dense()))
ROOT = Path(__file__).resolve().parents[2]


def test_living_tensors_are_counted_once() -> None:
    with LiveTensors() as live:
        one = torch.zeros(1000)
        two = one + 1
        view = two[:10]
        del two
        three = one * 2
        del three, view
        four = one * 3
    assert live.peak == 3 * 4000
    del four


@pytest.mark.thorough
def test_a_run_is_weighed_without_torchs_compiler(tmp_path: Path) -> None:
    """Which operations on `meta` tensors import, as drawing masks over weights would be: 1.5 s of every start."""
    program = f"""
import sys
import torch
from fedcomp.cli.main import main
from fedcomp.memory.probe import LiveTensors
with LiveTensors():
    torch.zeros(1)
sys.argv = ["fedcomp", "algorithm=bicompfl_gr", "rounds=1", "pictures=false", "output_root={tmp_path}"]
main()
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_memory_that_is_changed_in_place_counts_once_and_one_that_is_not_twice() -> None:
    sim = world.simulation(FEEDBACK)
    row = 4 * sim.model.dim
    once, twice = (probe(sim, 100, 3, donate_state) for donate_state in (True, False))
    assert once.per_client / row == pytest.approx(1, abs=0.3)
    assert twice.per_client / row == pytest.approx(2, abs=0.3)
    assert once.per_participant > 2 * row


def test_methods_differ() -> None:
    """CSER holds a model and an error for each client, and makes the next ones from them."""
    dense = world.simulation(FedAvg(STEP, ServerSgd(), Compressor(Dense()), Compressor(Dense())))
    cser = world.simulation(CSER(STEP, ServerSgd(), Compressor(Sign()), Compressor(Dense())), participation=world.FULL)
    few, many = (probe(sim, 7, 7, donate_state=True) for sim in (dense, cser))
    assert few.per_client < 4 * 4 * dense.model.dim < 6 * 4 * dense.model.dim < many.per_client


def test_a_run_that_needs_more_than_there_is_is_refused_with_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = world.simulation(FEEDBACK, sizes=(1,) * 40)
    need = needed(sim, 20, 1, CPU)
    monkeypatch.setattr(memory, "PROBE_ROWS", 1)
    for free, refused in ((need.total + 1, False), (need.total - 1, True)):
        monkeypatch.setattr(memory, "free_bytes", lambda device, free=free: free)
        if refused:
            with pytest.raises(ValueError, match=r"the run needs about .* GiB on cpu .*most of it uplink\.sender"):
                check_memory(sim, 20, 1, CPU)
        else:
            assert check_memory(sim, 20, 1, CPU) == need


LARGE = ("num_clients=1400", "model.hidden=[2000]", "rounds=2", "client.steps=1", "client.batch_size=1")
FEW = ("participation=uniform", "participation.num_participants=50")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize(
    "options",
    [
        ("compressor=topk", "compressor.feedback=error", *FEW),
        ("algorithm=doublesqueeze", "participation=uniform", "participation.num_participants=350"),
        ("compressor=randk_temporal", "participation=uniform", "participation.num_participants=350"),
        ("algorithm=cser", "num_clients=350"),
    ],
    ids=lambda options: options[0].split("=")[1],
)
def test_the_peak_of_a_run_is_within_20_per_cent_of_what_the_check_says(options, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "bench_memory.py"), *LARGE, *options, f"output_root={tmp_path}"]
    shown = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = json.loads(shown.splitlines()[-1])
    assert 0.8 < found["ratio"] < 1.2, found
