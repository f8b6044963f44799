"""Plans: chosen by what was measured, kept on disk by device and layer, kept by the run, off on a CPU unless asked."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from fedcomp.core.folders import cache_folder
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.distributed.context import ProcessContext
from fedcomp.model.batched import convolution
from fedcomp.model.batched.convolution import Convolution, candidates_on
from fedcomp.model.batched.layers import Pass
from fedcomp.model.build import build
from fedcomp.model.tunable import FORMS, Workload
from fedcomp.random.keys import Key
from fedcomp.records.run_folder import CONFIG
from fedcomp.simulation.autotune import conv_autotune as plan
from fedcomp.simulation.autotune import timing_cache as measured
from fedcomp.simulation.autotune.conv_autotune import plan_convolutions
from fedcomp.simulation.autotune.plan import FILE, Plan
from fedcomp.simulation.autotune.timing_cache import cached_timings, seconds_of
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.cuda_graphs.capture import Capture
from fedcomp.simulation.cuda_graphs.graphed_loop import GraphedLoops
from fedcomp.simulation.simulation import Simulation
from fedcomp.training.build import _planned
from fedcomp.wire import Ledger
from tests.parts import Full, Sgd, fedavg
from tests.trusting import trust

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _network() -> nn.Module:
    first, second = nn.Conv2d(2, 3, 3), nn.Conv2d(3, 4, 3, padding=1)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))


def _simulation(chunk_size: int = 1) -> Simulation:
    x = torch.randn(12, 8, 8, 2, generator=torch.Generator().manual_seed(0))
    y = torch.arange(12) % 3
    data = Dataset("images", Samples(x, y), Samples(x, y), "classification", 3)
    model = build(_network, Key(("plan",)), (2, 8, 8), 3, data.task)
    shards = ClientShards.of(list(torch.arange(12).split(4)), CPU)
    return Simulation(fedavg(Sgd(lr=0.1, batch_size=2)), data, shards, model, Full(), Key(("run",)), 2, chunk_size)


def _timed(monkeypatch: pytest.MonkeyPatch, times: dict[str, float]) -> list[str]:
    """Measurements answer as `times` says, by the form; returns the list that notes what was measured."""
    asked: list[str] = []

    def forms(operation, device, graphs):
        asked.append("layer")
        return {form: times[form] for form in operation.candidates}

    def client(model, size, forms):
        asked.append("clients")
        return times[str(size.clients)]

    monkeypatch.setattr(plan, "_time_forms", forms)
    monkeypatch.setattr(plan, "_client_seconds", client)
    return asked


@pytest.mark.parametrize(
    ("times", "chosen"),
    [
        ({"grouped": 3, "looped": 2, "unfolded": 1, "1": 1, "2": 0.5}, Plan(("unfolded", "unfolded"), 2)),
        ({"grouped": 3, "looped": 2, "unfolded": 4, "1": 1, "2": 0.94}, Plan(("looped", "looped"), 2)),
        ({"grouped": 3, "looped": 2, "unfolded": 1, "1": 1, "2": 0.96}, Plan(("grouped", "grouped"), 1)),
        ({"grouped": 3, "looped": 2.9, "unfolded": 4, "1": 1, "2": 0.5}, Plan(("grouped", "grouped"), 2)),
    ],
)
def test_the_fastest_is_taken_where_it_gains(monkeypatch, tmp_path, times, chosen) -> None:
    _timed(monkeypatch, times)
    settled = plan_convolutions(_simulation(), "measure", 2, False, tmp_path / FILE)
    assert settled == chosen
    simulation = settled.applied_to(_simulation())
    assert simulation.chunk_size == chosen.chunk_size
    assert tuple(layer.form for layer in simulation.model.convolutions) == chosen.forms


def test_measured_once_a_device_and_once_a_run(monkeypatch, tmp_path) -> None:
    asked = _timed(monkeypatch, {"grouped": 3, "looped": 2, "unfolded": 1, "1": 1, "2": 0.5})

    def settle(run: str, device: str = "one"):
        monkeypatch.setattr(plan, "processor", lambda _: device)
        before = len(asked)
        settled = plan_convolutions(_simulation(), "measure", 2, False, tmp_path / run)
        return settled, len(asked) - before

    first, count = settle("a")
    assert count == 4  # two layers of two clients, and one and two clients at once
    assert settle("a") == (first, 0)  # a resumed run asks nothing
    assert settle("b") == (first, 4)  # measure: anew
    monkeypatch.setattr(
        plan, "cached_timings", lambda question, measure, ignore_cache: cached_timings(question, measure)
    )
    assert settle("c") == (first, 0)
    assert settle("d", "another") == (first, 4)
    (tmp_path / "a").write_text(json.dumps({"forms": ["looped", "grouped"], "chunk_size": 1}))
    assert settle("a") == (Plan(("looped", "grouped"), 1), 0)


def test_streams_are_a_candidate_where_there_are_any(monkeypatch, tmp_path) -> None:
    """On a GPU, where all clients are tried at once; what was measured without them is measured again."""
    times = {"grouped": 3, "looped": 2, "unfolded": 1, "streamed": 0.5}
    cuda = torch.device("cuda")
    assert [candidates_on(device, 3) for device in (cuda, CPU)] == [FORMS, FORMS[:3]]
    assert [candidates_on(device, 1) for device in (cuda, CPU)] == [FORMS[:1]] * 2
    asked = _timed(monkeypatch, times)
    monkeypatch.setattr(plan, "processor", lambda _: "one")
    trust(monkeypatch)  # no streams are there
    without = plan_convolutions(_simulation(3), "measure", 2, True, tmp_path / "a")
    monkeypatch.setattr(convolution, "can_fork", lambda device: True)
    monkeypatch.setattr(
        plan, "cached_timings", lambda question, measure, ignore_cache: cached_timings(question, measure)
    )
    settled = plan_convolutions(_simulation(3), "measure", 2, True, tmp_path / "b")
    assert (without, settled) == (Plan(("unfolded",) * 2, 3), Plan(("streamed",) * 2, 3))
    assert asked == ["layer"] * 4


def test_a_given_number_of_clients_stays(monkeypatch, tmp_path) -> None:
    asked = _timed(monkeypatch, {"grouped": 3, "looped": 2, "unfolded": 1})
    settled = plan_convolutions(_simulation(chunk_size=50), "measure", 2, True, tmp_path / FILE)
    assert settled == Plan(("unfolded", "unfolded"), 50)
    assert asked == ["layer", "layer"]


def test_a_cpu_plans_nothing_by_itself(monkeypatch, tmp_path) -> None:
    asked = _timed(monkeypatch, {})
    simulation = _simulation()
    for mode in ("auto", "off"):
        assert plan_convolutions(simulation, mode, 2, False, tmp_path / FILE) is None
    assert (asked, list(tmp_path.glob("*"))) == ([], [])
    with pytest.raises(
        ValueError, match="plan=fast must be one of auto, measure, off, grouped, looped, unfolded, streamed"
    ):
        plan_convolutions(simulation, "fast", 2, False, tmp_path / FILE)


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMS)
def test_one_form_for_all_gives_the_same_rounds(tmp_path, form) -> None:
    expected, ledger = _simulation(chunk_size=3), Ledger()
    state, _ = expected.round(0, expected.init(), ledger)
    settled = plan_convolutions(_simulation(chunk_size=3), form, 2, False, tmp_path / FILE)
    assert settled == Plan((form, form), 3)
    simulation = settled.applied_to(_simulation(chunk_size=3))
    got, _ = simulation.round(0, simulation.init(), ledger)
    assert torch.allclose(got.theta, state.theta, atol=1e-6)


class _Peer(ProcessContext):
    """One of two processes; what the leader says is left in `said`."""

    is_main_process = True

    def __init__(self, is_main_process: bool, said: list[Plan | None]) -> None:
        self.is_main_process, self.said = is_main_process, said

    def broadcast_object(self, value: Plan | None) -> Plan | None:
        if self.is_main_process:
            self.said.append(value)
        return self.said[0]


@pytest.mark.parametrize(("mode", "chosen"), [("measure", ("unfolded", "unfolded")), ("off", ("grouped", "grouped"))])
def test_the_leader_plans_for_all_processes(monkeypatch, tmp_path, mode, chosen) -> None:
    asked = _timed(monkeypatch, {"grouped": 3, "looped": 2, "unfolded": 1, "1": 1, "2": 0.5})
    options = {"plan": mode, "num_clients": 3, "chunk_size": None, "client": {"batch_size": 2}}
    said: list[Plan | None] = []
    for is_main_process in (True, False):
        before = len(asked)
        simulation, _ = _planned(_simulation(), OmegaConf.create(options), tmp_path, _Peer(is_main_process, said))
        assert tuple(layer.form for layer in simulation.model.convolutions) == chosen
        assert simulation.chunk_size == (2 if mode == "measure" else 1)
        assert (len(asked) > before) == (is_main_process and mode == "measure")


@pytest.mark.parametrize("graphs", [False, True])
def test_measured_as_it_will_run(monkeypatch, tmp_path, graphs) -> None:
    """Within CUDA graphs if the run records its loops, and remembered apart from measurements outside of them."""
    recorded: list[str] = []

    class Graphs(Capture):
        def __init__(self, device: torch.device, what: str) -> None:
            recorded.append(what)

    monkeypatch.setattr(plan, "CudaGraphs", Graphs)
    monkeypatch.setattr(plan, "can_capture", lambda _: graphs)
    loops = GraphedLoops(Capture()) if graphs else None
    plan_convolutions(replace(_simulation(), loop_runner=loops), "measure", 2, False, tmp_path / FILE)
    layers = 2 * [f"measuring of {form} convolutions" for form in FORMS if form != "streamed"]
    assert recorded == (layers if graphs else [])
    questions = [json.loads(json.loads(path.read_text())["question"]) for path in _kept()]
    assert [one["graphs"] for one in questions if "weight" in one] == [graphs] * 2


@pytest.mark.parametrize("broken", [("grouped",), FORMS])
def test_a_form_that_fails_where_it_is_measured_is_left_out(monkeypatch, tmp_path, caplog, broken) -> None:
    called = Convolution.__call__

    def call(self: Convolution, x: torch.Tensor, state: Pass) -> torch.Tensor:
        weight = state.parameters[self.weight]
        if self.form in broken and weight.requires_grad and weight.is_leaf:  # only where it is measured
            raise RuntimeError("GET was unable to find an engine to execute this computation")
        return called(self, x, state)

    monkeypatch.setattr(Convolution, "__call__", call)
    if broken == FORMS:
        with pytest.raises(RuntimeError, match="unable to find an engine"):
            plan_convolutions(_simulation(chunk_size=2), "measure", 2, True, tmp_path / FILE)
        return
    with caplog.at_level("INFO", "fedcomp"):
        settled = plan_convolutions(_simulation(chunk_size=2), "measure", 2, True, tmp_path / FILE)
    assert "grouped" not in settled.forms
    wanted = "no grouped convolutions here: GET was unable to find an engine to execute this computation"
    assert [record.message for record in caplog.records] == 2 * [wanted]


@pytest.mark.parametrize("mode", ["measure", "unfolded"])
@pytest.mark.parametrize("wrong", ["zeros", "no gradient of the weight"])
def test_a_form_that_computes_something_else_is_left_out(monkeypatch, tmp_path, caplog, wrong, mode) -> None:
    """However fast it is, also where the user asks for it; the run's numbers are the grouped form's."""
    _timed(monkeypatch, {"grouped": 3, "looped": 2.95, "unfolded": 1})
    unfolded = Convolution._unfolded

    def other(self: Convolution, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if wrong == "zeros":
            return 0 * unfolded(self, x, weight, bias)
        return unfolded(self, x, weight.detach(), bias) + 0 * weight.sum()

    monkeypatch.setattr(Convolution, "_unfolded", other)
    settled = plan_convolutions(_simulation(chunk_size=3), mode, 2, True, tmp_path / FILE)
    assert settled == Plan(("grouped", "grouped"), 3)
    (record,) = caplog.records
    assert record.message.startswith("unfolded convolutions are not used, but grouped instead: other results")
    assert record.note


@pytest.mark.parametrize(("farther", "chosen"), [("grouped", "unfolded"), ("unfolded", "grouped")])
def test_the_form_nearer_to_float64_is_right(monkeypatch, tmp_path, farther, chosen) -> None:
    """cuDNN's Winograd gives gradients that differ by a thousandth from those of the others; the plain form may err."""
    _timed(monkeypatch, {"grouped": 3, "looped": 4, "unfolded": 1})
    right = getattr(Convolution, f"_{farther}")

    def rounded(self: Convolution, x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return right(self, x if x.dtype == torch.float64 else x.to(torch.bfloat16).float(), *rest)

    monkeypatch.setattr(Convolution, f"_{farther}", rounded)
    settled = plan_convolutions(_simulation(chunk_size=3), "measure", 2, True, None)
    assert settled == Plan((chosen, chosen), 3)


def _kept() -> list[Path]:
    return list((cache_folder() / measured.KIND).iterdir())


def test_really_measured(tmp_path) -> None:
    """Times that were taken, on real layers; whatever is chosen is one of the candidates."""
    settled = plan_convolutions(_simulation(), "measure", 2, False, tmp_path / FILE)
    assert settled.chunk_size in (1, 2)
    assert set(settled.forms) <= set(FORMS)
    kept = [json.loads(path.read_text()) for path in _kept()]
    assert len(kept) == 3
    assert all(0 < value < 10 for one in kept for value in one["answer"].values())


def test_damaged_and_unwritable_caches_are_measured_again(monkeypatch, tmp_path) -> None:
    times = iter(range(1, 9))

    def ask() -> float:
        return cached_timings({"layer": 1}, lambda: {"grouped": float(next(times))})["grouped"]

    assert [ask(), ask()] == [1, 1]
    (path,) = _kept()
    for damage in ("", "{}", '{"question": "other", "answer": {}}', "[]"):
        path.write_text(damage)
        assert ask() > 1
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert [ask(), ask()] == [6, 7]


def test_the_shortest_run_counts() -> None:
    calls = []
    assert 0 <= seconds_of(lambda: calls.append(0), CPU) < 1
    assert len(calls) == measured.REPEATS + 1


def test_a_gpu_is_looked_at_after_many_runs(monkeypatch) -> None:
    """Launching and waiting would be most of the time of a short one."""
    events = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: events.append("wait"))
    seconds_of(lambda: events.append("run"), torch.device("cuda"))
    assert events == ["wait", *["run"] * measured.GPU_RUNS, "wait"] * (measured.REPEATS + 1)


def test_the_first_layer_is_measured_without_the_gradient_that_training_never_needs(monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(torch.autograd, "grad", lambda outputs, leaves, grads: asked.append(len(leaves)) or ())
    for operation in _simulation().model.tunable_operations(Workload(2, 2, (2, 8, 8), CPU)):
        operation.run("grouped")
        asked.append(operation.about["input gradient"])
    assert asked == [2, False, 3, True]  # weight and bias; then the input too


def test_from_the_command_line(fedcomp, tmp_path, capsys) -> None:
    assert fedcomp("rounds=1", "plan=fast") != 0
    assert "plan=fast must be one of auto" in capsys.readouterr().err
    assert fedcomp("rounds=1", "plan=measure", "pictures=false") == 0  # a perceptron has nothing to plan
    (config,) = (path for path in tmp_path.rglob(CONFIG) if "plan: measure" in path.read_text())
    assert not (config.parent / FILE).exists()


def test_plans_change_no_other_simulation() -> None:
    """A plan belongs to the model of its run."""
    one, other = _simulation(), _simulation()
    one.model.set_conv_algorithms(["looped", "looped"])
    assert [layer.form for layer in other.model.convolutions] == ["grouped", "grouped"]
