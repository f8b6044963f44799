"""A recorded round, and an evaluation by client, read nothing back from the device, counted on a CPU stand-in.

What a round of every method reads is shown by `test_fake_gpu.py`.
"""

from dataclasses import replace

import torch

from fedcomp.core.cohort import Receivers
from fedcomp.evaluation.per_client import PerClient
from fedcomp.network.traffic.recorder import TrafficRecorder
from fedcomp.server.adam import Adam
from fedcomp.simulation.async_metrics import to_host
from fedcomp.wire import Ledger, Link, Payload
from tests.conformance import world
from tests.looped import looped
from tests.operations import Operations, reads
from tests.parts import DENSE, Codec, Compressor, Dense, ErrorFeedback, FedAvg, ServerSgd, Sgd, Sign, TopK


def _both_ways(codec: Codec) -> FedAvg:
    """With memories at both ends; a trained client whose gradients are clipped."""
    uplink = Compressor(codec, ErrorFeedback())
    return FedAvg(Sgd(lr=0.1, momentum=0.9, clip_norm=1.0), Adam(), uplink, Compressor(Sign()))


UPLINKS = [Dense(), Sign(), TopK(0.2, "index"), TopK(0.2, "bitmap"), TopK(0.2, "rice")]


@looped("codec", UPLINKS)
def test_a_recorded_round_reads_nothing_and_its_ledger_only_bits_that_depend_on_data(codec) -> None:
    fixed = everybody(world.simulation(_both_ways(codec), chunk_size=2))
    state, ledger = fixed.init(), Ledger()
    TrafficRecorder(world.NUM_CLIENTS).attach(ledger)
    state, _ = fixed.round(0, state, ledger)  # the first one reads: it notes the sizes of messages
    with Operations(reads) as counter:
        fixed.round(1, state, ledger)
    assert counter.names == []
    with counter:
        ledger.counters()
    assert len(counter.names) == ("rice" in str(codec))


@looped("source", ["test", "train"])
def test_an_evaluation_by_client_reads_nothing(source) -> None:
    """After the first one, which looks up whose the samples are."""
    sim = world.simulation(FedAvg(Sgd(lr=0.1), ServerSgd(), DENSE, DENSE), world.with_batch_norm)
    fixed = replace(everybody(sim), per_client=PerClient(source))
    state, result = fixed.round(0, fixed.init(), Ledger())
    expected = to_host(fixed.evaluate(1, state, result).line)[0]
    with Operations(reads) as counter:
        found = fixed.evaluate(1, state, result)
    assert counter.names == []
    assert {"per_client/accuracy_mean", "per_client/accuracy_worst_decile"} <= found.line.keys()
    with torch.device("meta"):
        again = fixed.evaluate(1, state, result)
    assert to_host(found.line)[0] == to_host(again.line)[0] == expected


def test_the_counter_counts() -> None:
    with Operations(reads) as counter:
        float(torch.ones(2).sum())
        torch.ones(2).nonzero()
    assert counter.names == ["aten::_local_scalar_dense", "aten::nonzero"]


def everybody(sim):
    """The simulation with all clients in every round, who are drawn before it: the host draws cohorts."""
    cohort = world.FULL.sample(sim.key, torch.ones(world.NUM_CLIENTS, dtype=torch.float64))
    return replace(sim, participation=_Fixed(cohort), link=UncheckedLink)


class UncheckedLink(Link):
    """As in all rounds but the first with clients, which reads entries: their ranges, and whether all are finite."""

    both_ends = False

    def _carry(self, kind: int, payload: Payload, who: Receivers | None) -> Payload:
        return payload


class _Fixed:
    def __init__(self, cohort) -> None:
        self._cohort = cohort

    def sample(self, key, importance, round_index=0):
        return self._cohort

    def metrics(self, num_clients, round_index):
        return {}
