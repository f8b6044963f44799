"""M3: parts cover the model, coins are fair, bits are exact, and it is FedAvg where nothing is left out."""

from collections.abc import Iterator

import pytest
import torch

from fedcomp.algorithm import Context
from fedcomp.algorithm.bidirectional.m3 import M3, _full
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger, Link
from tests.conformance import world
from tests.looped import looped
from tests.parts import Compressor, Dense, ErrorFeedback, FedAvg, PermK, RandK, ServerSgd, Sgd, Sign, TopK
from tests.refused import refused
from tests.rounds import Round, rounds

SGD, STEP = Sgd(lr=0.05, batch_size=4), ServerSgd(0.5)
DENSE, PERMK, TOPK, RANDK = (Compressor(codec) for codec in (Dense(), PermK(), TopK(positions="index"), RandK()))
NUM = world.NUM_CLIENTS
DIM = world.NUM_FEATURES * 4 + 4 + 4 * world.NUM_CLASSES + world.NUM_CLASSES
KEPT = DIM // NUM


def _m3(uplink: Compressor = TOPK, downlink: Compressor = PERMK, **options) -> M3:
    return M3(SGD, STEP, uplink, downlink, **options)


def _rounds(algorithm: M3, num: int = 12, **options) -> Iterator[Round]:
    return rounds(world.simulation(algorithm, participation=world.FULL, rounds=num, **options))


@looped("differences", ["marina", "ef21"])
def test_with_whole_vectors_it_is_fedavg(differences: str) -> None:
    ours, theirs = Ledger(), Ledger()
    options = {"participation": world.FULL, "module": world.with_batch_norm}
    whole = {"p_down": 1.0, "p_up": 1.0, "differences": differences, "uplink_entries": "compressor"}
    mine = world.run(world.simulation(_m3(DENSE, beta=1.0, **whole), **options), ledger=ours)
    plain = world.run(world.simulation(FedAvg(SGD, STEP, DENSE, DENSE, "uniform"), **options), ledger=theirs)
    assert torch.equal(mine.theta, plain.theta)
    assert torch.equal(mine.stats, plain.stats)
    assert ours.counters() == theirs.counters()
    slower = world.run(world.simulation(_m3(DENSE, beta=0.5, **whole), **options))
    assert not torch.allclose(slower.theta, plain.theta, atol=1e-4)


def test_lossless_compressors_without_whole_vectors_are_fedavg_too() -> None:
    everything = _m3(Compressor(TopK(1.0)), DENSE, p_down=0, p_up=0, beta=1.0, uplink_entries="compressor")
    plain = world.run(world.simulation(FedAvg(SGD, STEP, DENSE, DENSE, "uniform"), participation=world.FULL))
    *_, last = _rounds(everything, 4)
    assert torch.allclose(last.after.theta, plain.theta, atol=1e-6)


def test_points_are_running_means_of_the_clients_models() -> None:
    for one in _rounds(_m3(beta=0.3)):
        assert torch.allclose(one.after.points, 0.3 * one.after.models + 0.7 * one.before.points, atol=1e-6)


def test_ef21_keeps_the_servers_update_at_the_mean_of_the_memories() -> None:
    def distance(differences: str) -> float:
        states = [one.after for one in _rounds(_m3(differences=differences, p_up=0))]
        return max(float((state.update - state.base.mean(0)).abs().max()) for state in states)

    assert distance("ef21") < 1e-6
    assert distance("marina") > 1e-2  # its h_i is the last update itself, of which Top-k left something out


UPLINKS = [(TOPK, 32 + (DIM - 1).bit_length(), 0), (RANDK, 32, 64), (Compressor(RandK(seed_cost="derived")), 32, 0)]


@looped("uplink, entry_bits, fixed_bits", UPLINKS)
def test_bits_of_every_link(uplink: Compressor, entry_bits: int, fixed_bits: int) -> None:
    counters = [one.bits for one in _rounds(_m3(uplink, p_down=0.3, p_up=0.4), 40)]
    whole, part = NUM * 32 * DIM, NUM * (KEPT * entry_bits + fixed_bits)
    assert {line["uplink"] for line in counters} == {whole, part}
    assert counters[0]["uplink"] == whole
    downlinks = {(line["downlink"], line["broadcast"]) for line in counters}
    assert downlinks == {(whole, 32 * DIM), (32 * DIM, 32 * DIM)}  # the parts of all clients are one model
    assert counters[0]["downlink"] == whole
    assert all(line[link] == line[f"paper/{link}"] for line in counters for link in ("uplink", "downlink", "broadcast"))
    assert len({(line["uplink"] == whole, line["downlink"] == whole) for line in counters}) == 4


@looped("p_down, p_up", [(None, None), (0.5, 0.25)])
def test_coins_are_fair_and_independent(p_down: float | None, p_up: float | None) -> None:
    """Over 2,000 rounds, within 4 standard errors."""
    cohort, tosses = Cohort.of(tuple(range(NUM)), torch.full((NUM,), 1 / NUM)), []
    for index in range(1, 2001):
        ctx = Context(index, 2001, Key(("run", 0, "round", index, "message")), Link(Ledger()), None)  # type: ignore[arg-type]
        tosses.append([_full(p_down, "down", cohort, ctx), _full(p_up, "up", cohort, ctx)])
    seen = torch.tensor(tosses, dtype=torch.float64)
    share = torch.tensor([1 / NUM if p is None else p for p in (p_down, p_up)], dtype=torch.float64)
    both, expected = seen.prod(1).mean(), share.prod()
    assert ((seen.mean(0) - share).abs() < 4 * (share * (1 - share) / 2000).sqrt()).all()
    assert (both - expected).abs() < 4 * (expected * (1 - expected) / 2000).sqrt()


def test_more_clients_than_parameters() -> None:
    sizes = (1,) * (DIM + 3)
    *_, last = _rounds(_m3(p_down=0.2, p_up=0.2), 4, sizes=sizes)
    assert torch.isfinite(last.after.theta).all()
    assert last.after.models.shape == (len(sizes), DIM)


@pytest.mark.thorough
def test_the_study_counts_plain_places_however_they_are_sent() -> None:
    def uplink(positions: str) -> tuple[set[int], set[int]]:
        lines = [one.bits for one in _rounds(_m3(Compressor(TopK(positions=positions)), p_up=0), 40)][1:]
        return {line["uplink"] for line in lines}, {line["paper/uplink"] for line in lines}

    counted = {NUM * KEPT * (32 + (DIM - 1).bit_length())}
    assert uplink("index") == (counted, counted)
    sent, paper = uplink("bitmap")
    assert paper == counted != sent


test_wrong_options = refused(
    [
        ({"p_down": 1.5}, "algorithm.p_down=1.5 must be a number in \\[0, 1\\], or null"),
        ({"p_up": -1}, "algorithm.p_up=-1 must be a number in \\[0, 1\\], or null: a probability; null for 1 /"),
        ({"downlink": TOPK}, "M3 needs an unbiased downlink, not TopK: take permk, randk or qsgd"),
        ({"uplink": Compressor(Sign())}, "algorithm.uplink_entries=per_client is for compressor=topk or randk, not"),
        ({"uplink": Compressor(TopK(0.2))}, "algorithm.uplink_entries=per_client sets the number of entries: leave"),
        ({"uplink": Compressor(RandK(k=3))}, "algorithm.uplink_entries=per_client sets the number of entries: leave"),
        ({"uplink": Compressor(TopK(), ErrorFeedback())}, "M3 has memories of its own: leave"),
        ({"uplink": RANDK, "differences": "ef21"}, "algorithm.differences=ef21 needs a compressor that only shrinks,"),
    ],
    _m3,
)
