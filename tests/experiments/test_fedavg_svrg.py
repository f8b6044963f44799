"""FedAvg-SVRG as a whole: where it converges, the floor where it does not, its cost, the paper's orderings and data."""

from functools import partial
from pathlib import Path

import pytest
import torch

from fedcomp.algorithm.contract import Setup
from fedcomp.config import schema
from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.model.build import build
from fedcomp.model.networks.linear import linear
from fedcomp.participation.contract import Participation
from fedcomp.random.keys import Key
from fedcomp.records.metrics_file import Line, read_lines, read_repetitions
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.optimum import least_squares
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger
from tests.client.linear_regression import D, dataset
from tests.parts import Bernoulli, Compressor, Dense, FedAvg, Full, ServerSgd, Svrg

needs_insurance = pytest.mark.data("insurance.csv")
METHOD = "experiment/fedavg_svrg/method@_global_"
N, L = 6, 8
PROBABILITY = [0.3, 0.5, 0.9, 0.4, 1.0, 0.6]


def _simulation(client: Svrg, participation: Participation, noise: float, theta: torch.Tensor | None = None):
    """N agents of L rows each; their f_n share the minimiser if there is no noise. Also the state at `theta` [D]."""
    data, key, dense = dataset(N * L, noise), Key(("run", 0)), Compressor(Dense())
    model = build(partial(linear, bias=False, start=0.5), key, (D,), 1, "regression")
    shards = ClientShards.of(list(torch.arange(N * L).split(L)), torch.device("cpu"))
    algorithm = FedAvg(client, ServerSgd(), dense, dense, "uniform")
    best = least_squares(model, data, shards, torch.ones(N, dtype=torch.float64))
    sim = Simulation(algorithm, data, shards, model, participation, key, 100, 100, dtype=torch.float64, optimum=best)
    state = sim.init() if theta is None else algorithm.init(theta.float(), torch.zeros(0), Setup(N, (), Key()))
    return sim, state


def _excess(sim: Simulation, state, rounds: int) -> list[float]:
    """f - f* after each round."""
    found = []
    for index in range(rounds):
        state, _ = sim.round(index, state, Ledger())
        found.append(sim.test_metrics(index + 1, state)["test/excess"])
    return found


@pytest.mark.thorough
def test_activation_leaves_a_noise_floor_that_full_participation_has_not() -> None:
    """What lemma V.1 overlooks: agents differ, so that steps at the optimum do not vanish. M = 1 draws no samples."""
    client = Svrg(lr=0.05, snapshots=3, inner_steps=1)
    rules = (Full(), Bernoulli(PROBABILITY))
    ends = [torch.tensor(_excess(*_simulation(client, rule, noise=0.3), 150)[-30:]) for rule in rules]
    assert ends[0].std() < 1e-2 * ends[0].mean()  # at a fixed point, a little off the optimum
    assert ends[1].std() > 0.3 * ends[1].mean()
    assert ends[1].mean() > 2 * ends[0].mean()


def test_one_round_from_the_optimum_scatters_as_the_closed_form_says() -> None:
    """M = 1, so that changes are fixed; 400 rounds from theta*; within 4.5 standard errors."""
    client = Svrg(lr=0.02, snapshots=3, inner_steps=1)
    everybody, _ = _simulation(client, Full(), noise=0.3)
    assert everybody.optimum is not None
    best = everybody.optimum.theta
    sim, state = _simulation(client, Bernoulli(PROBABILITY), 0.3, best)
    theta = torch.stack([sim.round(index, state, Ledger())[0].theta.double() for index in range(400)])
    delta = []
    for agent in range(N):
        part = torch.arange(agent * L, (agent + 1) * L)
        x, y = sim.dataset.train.x[part].double(), sim.dataset.train.y[part].double()
        w = best
        for _ in range(3):
            w = w - 0.02 * 2 * x.T @ (x @ w - y[:, 0]) / L
        delta.append(w - best)
    squares = (theta - best - torch.stack(delta).mean(0)).square().sum(1)
    closed = sum((1 / p - 1) * float(own.square().sum()) for p, own in zip(PROBABILITY, delta)) / N**2
    error = float(squares.std()) / 400**0.5
    assert abs(float(squares.mean()) - closed) < 4.5 * error
    assert closed > 10 * error


def test_gradients_are_counted_as_the_algorithm_costs() -> None:
    """S (L_n + 2 M) an active agent and round."""
    sim, state = _simulation(Svrg(lr=0.02, snapshots=3, inner_steps=4), Bernoulli(PROBABILITY), noise=0.3)
    ledger, active = Ledger(), 0
    for index in range(6):
        state, result = sim.round(index, state, ledger)
        active += result.cohort.size
    assert ledger.metrics(D)["gradients"] == active * 3 * (L + 2 * 4)
    assert 6 < active < 6 * N


def _mean_of_last(lines: list[Line], name: str) -> float:
    return sum(line[name] for line in lines[-12:]) / 12


def _lines(root: Path) -> dict[tuple[str, str], list[Line]]:
    """The record of each run by method and case."""
    found = {}
    for folder in (path.parent for path in root.rglob("metrics.jsonl")):
        config = schema.OmegaConf.load(folder / "config.yaml")
        found[config.label, config.case[:6]] = read_lines(folder / "metrics.jsonl")
    return found


def _assert_ordered(found: dict[tuple[str, str], list[Line]]) -> None:
    """Mean, variance and CEP of FedAvg-SVRG below those of FedAvg with as many steps, in both cases."""
    for case in ("case 1", "case 2"):
        ours, theirs = found["FedAvg-SVRG", case], found["FedAvg, step 0.1", case]
        for name in ("test/excess", "variance/test/loss", "cep/plane", "cep/theta"):
            assert _mean_of_last(ours, name) < _mean_of_last(theirs, name), (case, name)


@pytest.mark.slow
def test_orderings_over_20_repetitions_of_the_diabetes_regression(fedcomp, tmp_path: Path) -> None:
    options = (f"{METHOD}=fedavg_svrg,fedavg_prob", "rounds=32", "quiet=true", "pictures=false")
    assert fedcomp("experiment=fedavg_svrg/diabetes", *options) == 0
    found = _lines(tmp_path)
    assert len(found) == 4
    _assert_ordered(found)
    for folder in (path.parent for path in tmp_path.rglob("metrics.jsonl")):
        each = read_repetitions(folder)
        assert sorted(each) == list(range(33))
        assert len(each[32]["test/excess"]) == len(each[32]["theta/1"]) == 20


def _insurance(*overrides: str):
    return compose(["experiment=fedavg_svrg/insurance", *overrides])


@needs_insurance
def test_optimum_of_the_papers_data() -> None:
    """The paper prints 0.01."""
    simulation, _ = build_simulation(_insurance(), torch.device("cpu"))
    assert simulation.optimum is not None
    assert simulation.optimum.minimum == pytest.approx(0.0091986, abs=1e-6)
    assert simulation.optimum.theta.tolist() == pytest.approx([0.168, -0.019, 0.113, 0.016, 0.378], abs=1e-3)


@needs_insurance
def test_all_agents_reach_the_optimum_of_the_papers_data() -> None:
    config = _insurance("participation.probability=1")
    simulation, _ = build_simulation(config, torch.device("cpu"))
    state = simulation.init()
    assert state.theta.tolist() == [0.5] * 5
    for index in range(100):
        state, _ = simulation.round(index, state, Ledger())
    assert simulation.test_metrics(100, state)["test/excess"] < 1e-5


@needs_insurance
@pytest.mark.slow
def test_figures_3_to_8(fedcomp, tmp_path: Path) -> None:
    """Orderings, and circular errors within a factor 3 of the printed ones."""
    assert fedcomp("experiment=fedavg_svrg/insurance", f"{METHOD}=fedavg_svrg,fedavg_prob", "quiet=true") == 0
    found = _lines(tmp_path)
    _assert_ordered(found)
    printed = {"case 1": (0.0029, 0.0059), "case 2": (0.0077, 0.0201)}
    for case, (ours, theirs) in printed.items():
        assert ours / 3 < found["FedAvg-SVRG", case][-1]["cep/plane"] < 3 * ours
        assert theirs / 3 < found["FedAvg, step 0.1", case][-1]["cep/plane"] < 3 * theirs


def test_a_column_of_words_is_one_line(fedcomp, capsys, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("age,smoker,price\n1,yes,2\n3,no,4\n")
    where = (f"dataset.path={tmp_path / 'mine.csv'}", "dataset.target=price")
    assert fedcomp("algorithm=fedavg_svrg", "dataset=csv", "model=linear", *where) == 1
    assert "line 2, column 'smoker': 'yes' is no number; repair it, leave the column out" in capsys.readouterr().err


def test_float64_says_what_stays_float32(fedcomp, capsys) -> None:
    assert fedcomp("dtype=float64", "rounds=1", "num_clients=3", "pictures=false") == 0
    said = "dtype=float64: clients compute in it; messages, and the state between rounds, are float32"
    assert capsys.readouterr().err.count(said) == 1


@pytest.mark.thorough
def test_float64_is_for_networks(fedcomp, capsys) -> None:
    assert fedcomp("algorithm=kmeans", "dtype=float64") == 1
    assert "dtype=float64 is for networks, not for model=centres: take dtype=float32" in capsys.readouterr().err
