"""Recorded loops beside the plain loop: the same bits where clients are alike, rounding apart where they are not."""

import logging
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from fedcomp.algorithm.bicompfl.bicompfl_gr import BiCompFLGR
from fedcomp.algorithm.feddistill import FedDistill
from fedcomp.algorithm.fedmrn import FedMRN
from fedcomp.algorithm.fedpm import FedPM
from fedcomp.algorithm.fedsparsify import FedSparsify
from fedcomp.algorithm.heterogeneity.feddyn import FedDyn
from fedcomp.algorithm.heterogeneity.scaffold import Scaffold
from fedcomp.core.pytree import flatten
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.model.build import build
from fedcomp.random.keys import Key
from fedcomp.simulation.chunks.client_data import ClientChunk, ClientShards
from fedcomp.simulation.cuda_graphs.capture import Capture, CudaGraphs, can_capture
from fedcomp.simulation.cuda_graphs.graphed_loop import GraphedLoops
from fedcomp.simulation.cuda_graphs.segments import LONGEST, Shape, segments
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.looped import looped
from tests.parts import DENSE, Adam, Muon, ServerSgd, Sgd, fedavg
from tests.simulation.cuda_graphs.strict_capture import StrictCapture
from tests.simulation.user_module import Centred, Residual

ALIKE, RAGGED = (8,) * 7, world.SIZES
CPU = torch.device("cpu")


def _fedmrn(**options) -> FedMRN:
    return FedMRN(Sgd(lr=0.1, batch_size=4, epochs=2), ServerSgd(), DENSE, **options)


DECAYING = Sgd(lr=0.1, momentum=0.9, weight_decay=0.01, clip_norm=0.5, batch_size=5, steps=7, schedule="cosine")
PLAIN = {
    "sgd": fedavg(Sgd(lr=0.1, batch_size=3, epochs=3)),
    "momentum, decay, clipping, schedule": fedavg(DECAYING),
    "adam": fedavg(Adam(lr=0.01, weight_decay=0.01, batch_size=4, schedule="linear")),
    "adamw": fedavg(Adam(lr=0.01, weight_decay=0.5, decoupled=True, batch_size=4)),
    "muon": fedavg(Muon(lr=0.05, weight_decay=0.5, skip_last=0, batch_size=4)),
    "with replacement": fedavg(Sgd(lr=0.1, batch_size=3, steps=5, replacement=True)),
    "proximal": fedavg(Sgd(lr=0.1, proximal=0.3, momentum=0.5, batch_size=4)),
    "fedmrn, proximal": FedMRN(Sgd(lr=0.1, batch_size=4, proximal=0.3), ServerSgd(), DENSE),
    "scaffold": Scaffold(Sgd(lr=0.1, batch_size=4), ServerSgd(), DENSE),
    "feddyn": FedDyn(Sgd(lr=0.1, batch_size=4), DENSE, weights="samples"),
    "feddistill": FedDistill(Sgd(lr=0.1, batch_size=4)),
    "fedmrn": _fedmrn(),
    "fedmrns, all masked": _fedmrn(mask="signed", pm=False),
    "fedpm": FedPM(Adam(lr=0.1, batch_size=4)),
    "bicompfl": BiCompFLGR(client=Adam(lr=0.1, batch_size=4), block=16),
}


def states(algorithm, module, sizes, recorder, rounds=3, **parts):
    sim = world.simulation(algorithm, module, sizes=sizes, rounds=rounds, **parts)
    whole = algorithm.full_participation
    sim = replace(sim, loop_runner=recorder, participation=world.FULL if whole else sim.participation)
    return flatten(world.run(sim))


@looped(
    "name, module",
    [(name, world.mlp) for name in PLAIN] + [(name, world.with_batch_norm) for name in ("adam", "fedmrn", "bicompfl")],
)
def test_alike_clients_take_the_same_steps_bit_for_bit(name, module) -> None:
    capture = StrictCapture()
    for chunk_size in (100, 2) if name == "sgd" else (2,):
        plain = states(PLAIN[name], module, ALIKE, None, chunk_size=chunk_size)
        recorded = states(PLAIN[name], module, ALIKE, GraphedLoops(capture), chunk_size=chunk_size)
        assert plain.keys() == recorded.keys()
        assert all(torch.equal(plain[part], recorded[part]) for part in plain)
    assert capture.replays > capture.recorded > 0


@looped("name, sizes", [("sgd", ALIKE), ("fedmrn", RAGGED), ("bicompfl", RAGGED)])
def test_gradients_are_counted_once(name, sizes) -> None:
    spent = []
    for recorder in (None, GraphedLoops(StrictCapture()), GraphedLoops(Capture())):
        sim, ledger = world.simulation(PLAIN[name], sizes=sizes, chunk_size=3, rounds=2), Ledger()
        world.run(replace(sim, loop_runner=recorder, participation=world.FULL), ledger=ledger)
        spent.append(ledger.counters()["gradients"])
    assert spent[0] == spent[1] == spent[2] > 0


class Double:
    """The toy world's chunk of all clients, in float64."""

    def __init__(self, module, sizes) -> None:
        sim = world.simulation(fedavg(Sgd(lr=0.1)), module, sizes=sizes)
        train, test = ((part.x.double(), part.y) for part in (sim.dataset.train, sim.dataset.test))
        data = replace(sim.dataset, train=Samples(*train), test=Samples(*test))
        order = np.argsort([-size for size in sizes], kind="stable")
        ids, held = torch.from_numpy(order), np.array(sizes)[order]
        self.data = ClientChunk(ids, held, Key(("r",)), data, sim.shards, sim.model)
        theta, stats = sim.model.init(Key())
        self.start = theta.double().expand(len(sizes), -1), stats.double().expand(len(sizes), -1)

    def run(self, solver, recorder, round_index=0):
        data = replace(self.data, key=Key(("r", round_index)), loop_runner=recorder)
        return solver.run(data, *self.start, (round_index, 9))


DECAYING_SGD = Sgd(lr=0.1, momentum=0.9, weight_decay=0.1, batch_size=4, epochs=3, schedule="inverse_sqrt")
DECAYING_ADAM = Adam(lr=0.01, batch_size=8, epochs=2, weight_decay=0.1)


@looped(
    "solver, module", [(DECAYING_ADAM, world.mlp), (DECAYING_SGD, world.with_batch_norm), (DECAYING_ADAM, Residual)]
)
def test_ragged_clients_end_where_the_plain_loop_does(solver, module) -> None:
    twin, capture = Double(module, RAGGED), StrictCapture()
    recorder = GraphedLoops(capture)
    for round_index in range(3):
        slow, fast = (twin.run(solver, one, round_index) for one in (None, recorder))
        for name in ("value", "stats", "loss"):
            assert torch.allclose(getattr(fast, name), getattr(slow, name), rtol=1e-10, atol=1e-12), name
    assert capture.replays == 2 * capture.recorded > 0  # not the first time


@looped("name", ["sgd", "fedmrn", "fedpm"])
def test_ragged_clients_leave_the_same_state(name) -> None:
    """Clients compute in float64 and hand on float32, so that no mask that is drawn turns on rounding."""
    capture = StrictCapture()
    found = []
    for recorder in (None, GraphedLoops(capture)):
        sim = world.in_float64(world.simulation(PLAIN[name], sizes=RAGGED, rounds=2))
        found.append(flatten(world.run(replace(sim, loop_runner=recorder))))
    plain, recorded = found
    assert plain.keys() == recorded.keys()
    for part in plain:
        assert torch.allclose(plain[part], recorded[part], rtol=1e-6, atol=1e-7), part
    assert capture.replays > 0


def test_results_are_not_overwritten_by_the_next_round() -> None:
    twin, recorder = Double(world.mlp, ALIKE), GraphedLoops(StrictCapture())
    solver = Sgd(lr=0.1, batch_size=4)
    first = twin.run(solver, recorder)
    kept = first.value.clone()
    twin.run(solver, recorder, 1)
    assert torch.equal(first.value, kept)


def test_augmented_images_are_the_same() -> None:
    """With a stride, so that the network is none that is compiled on a CPU, where nothing is captured."""
    generator = torch.Generator().manual_seed(0)
    raw = torch.randint(0, 256, (24, 8, 8, 2), generator=generator, dtype=torch.uint8)
    y = torch.randint(0, 3, (24,), generator=generator)
    data = Dataset("images", Samples(raw, y), Samples(raw, y), "classification", 3, crop_padding=2, flip=True)
    network = nn.Sequential(nn.Conv2d(2, 3, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(27, 3))
    model = build(lambda: network, Key(), (2, 8, 8), 3, data.task)
    shards = ClientShards.of(list(torch.arange(24).split(8)), CPU)
    solver, (theta, stats) = Sgd(lr=0.1, batch_size=3, epochs=2), model.init(Key())
    start = theta.expand(3, -1), stats.expand(3, -1)

    def run(recorder, index):
        chunk = ClientChunk(torch.arange(3), np.array([8, 8, 8]), Key((index,)), data, shards, model, recorder)
        return solver.run(chunk, *start, (index, 9)).value

    recorder = GraphedLoops(StrictCapture())
    for index in range(2):
        assert torch.equal(run(recorder, index), run(None, index))


def test_what_cannot_be_recorded_runs_step_by_step_with_one_line(caplog) -> None:
    capture, algorithm = StrictCapture(), FedSparsify(Sgd(lr=0.1), 0.5)
    reason = "FedSparsify._hook.<locals>.gradient is no Hook"
    with caplog.at_level(logging.INFO, "fedcomp"):
        recorded = states(algorithm, world.mlp, ALIKE, GraphedLoops(capture), chunk_size=3)
    assert [record.message for record in caplog.records] == [f"local training runs step by step: {reason}"]
    assert capture.recorded == 0
    plain = states(algorithm, world.mlp, ALIKE, None, chunk_size=3)
    assert all(torch.equal(plain[part], recorded[part]) for part in plain)


def test_a_model_that_leaves_empty_places_out_is_recorded_where_there_are_none(caplog) -> None:
    for sizes in (ALIKE, RAGGED):
        capture = StrictCapture()
        with caplog.at_level(logging.INFO, "fedcomp"):
            parts = {"participation": world.FULL, "rounds": 2}
            found = [states(PLAIN["sgd"], Centred, sizes, one, **parts) for one in (None, GraphedLoops(capture))]
        assert all(torch.equal(found[0][part], found[1][part]) for part in found[0])
        assert (capture.recorded > 0) is (sizes is ALIKE)
    said = "local training runs step by step: the model leaves empty places out, which reads where they are"
    assert caplog.records[-1].message == said


def test_a_failed_capture_leaves_the_same_bits_and_one_line(caplog, monkeypatch) -> None:
    """Capturing raises after it has run the work, as it does when an operation within cannot be captured."""

    def fails(self, work):
        work()
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(CudaGraphs, "_captured", fails)
    plain, eager = (states(PLAIN["sgd"], world.mlp, RAGGED, GraphedLoops(one)) for one in (CudaGraphs(CPU), Capture()))
    assert all(torch.equal(plain[part], eager[part]) for part in plain)
    lines = [record.message for record in caplog.records if record.levelname == "WARNING"]
    reason = "operation not permitted when stream is capturing"
    assert lines == [f"local training runs step by step: it cannot be captured as a CUDA graph ({reason})"]


def test_only_gpus_capture() -> None:
    assert not can_capture(CPU)


def test_segments_cover_every_step_once() -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        sizes = -np.sort(-generator.integers(1, 60, generator.integers(1, 9)))
        batch = int(min(generator.integers(1, 20), sizes.max()))
        step = np.arange(-(-sizes.max() // batch))[:, None]
        counts = np.clip(sizes - step * batch, 0, batch)
        place = 0
        for first, length, shape in segments(counts, batch):
            assert first == place
            assert length & (length - 1) == 0
            held = counts[first : first + length]
            assert (held[:, shape.rows :] == 0).all()
            assert (held[:, : shape.rows] <= shape.batch).all()
            assert shape.masked == bool((held[:, : shape.rows] != shape.batch).any())
            place += length
        assert place == len(counts)


def test_segments_of_known_cohorts() -> None:
    assert list(segments(np.full((13, 3), 4), 4)) == [
        (0, 8, Shape(3, 4, False)),
        (8, 4, Shape(3, 4, False)),
        (12, 1, Shape(3, 4, False)),
    ]
    assert [length for _, length, _ in segments(np.full((2 * LONGEST + 1, 1), 4), 4)] == [LONGEST, LONGEST, 1]
    ragged = np.array([[4, 4, 4, 4, 4], [4, 4, 4, 0, 0], [4, 4, 0, 0, 0], [3, 0, 0, 0, 0]])
    assert [(length, shape) for _, length, shape in segments(ragged, 4)] == [
        (1, Shape(5, 4, False)),
        (1, Shape(4, 4, True)),
        (1, Shape(2, 4, False)),
        (1, Shape(1, 4, True)),
    ]
