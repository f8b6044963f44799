"""Inside a round nothing is read back from the device: no `.item()` and its kin, counted on a CPU stand-in."""

from dataclasses import replace
from functools import partial

import torch

from fedcomp.algorithm.bicompfl.bicompfl_cfl import BiCompFLCFL
from fedcomp.algorithm.bicompfl.bicompfl_gr import BiCompFLGR
from fedcomp.algorithm.bicompfl.bicompfl_pr import BiCompFLPR
from fedcomp.algorithm.bidirectional.cser import CSER
from fedcomp.algorithm.bidirectional.liec import LIEC
from fedcomp.algorithm.bidirectional.neolithic import Neolithic
from fedcomp.algorithm.fedmrn import FedMRN
from fedcomp.algorithm.fedpm import FedPM
from fedcomp.algorithm.fedscalar import FedScalar
from fedcomp.algorithm.tasks.kmeans import KMeans
from fedcomp.algorithm.tasks.mean_estimation import MeanEstimation
from fedcomp.algorithm.tasks.power_iteration import PowerIteration
from fedcomp.client.adam import Adam as LocalAdam
from fedcomp.core.cohort import Receivers
from fedcomp.evaluation.per_client import PerClient
from fedcomp.model.tasks.centres import Centres
from fedcomp.model.tasks.mean_vector import MeanVector
from fedcomp.model.tasks.principal_direction import PrincipalDirection
from fedcomp.network.traffic.recorder import TrafficRecorder
from fedcomp.server.adam import Adam
from fedcomp.simulation.async_metrics import to_host
from fedcomp.wire import Ledger, Link, Payload
from tests.conformance import world
from tests.looped import looped
from tests.operations import Operations
from tests.parts import Codec, Compressor, Dense, ErrorFeedback, FedAvg, MRCSign, ServerSgd, Sgd, Sign, TopK

READS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::unique", "aten::masked_select", "aten::is_nonzero")
"""What makes the host wait for a GPU: reads of values, and shapes that depend on them."""


def reads(name, args, names=READS) -> bool:
    """Whether the operation makes the host wait; a mask as an index is looked up as `nonzero` is, out of sight."""
    masks = name in ("aten::index", "aten::index_put", "aten::index_put_") and any(
        one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1]
    )
    return name in names or masks


SCORES, DENSE = LocalAdam(lr=0.1, batch_size=4), Compressor(Dense())
MASKS = [
    FedMRN(Sgd(lr=0.1), ServerSgd(), DENSE),
    FedMRN(Sgd(lr=0.1), ServerSgd(), Compressor(Sign()), "signed", "gaussian", pm=False, mask_batchnorm=True),
    FedPM(SCORES),
    FedPM(SCORES, batchnorm_training="trained", coding="arithmetic"),
    BiCompFLGR(client=SCORES, block=8),
    BiCompFLGR(client=SCORES, block=8, reconstruct=True, candidates="per_client", relay="xor"),
    BiCompFLPR(client=SCORES, block=8),
    BiCompFLPR(client=SCORES, block=8, optimise_prior=True),
    BiCompFLCFL(Sgd(lr=0.1), ServerSgd(), Compressor(MRCSign(block=8))),
]
"""Not among them, since they do read: FedSparsify (its epochs), FedPM's counts, adaptive blocks."""


TASKS = [
    (PowerIteration, PrincipalDirection),
    (PowerIteration, partial(PrincipalDirection, centre="global")),
    (KMeans, partial(Centres, num_clusters=3)),
    (lambda up, down: MeanEstimation(up), MeanVector),
]


def _both_ways(codec: Codec) -> FedAvg:
    """With memories at both ends; a trained client whose gradients are clipped."""
    uplink = Compressor(codec, ErrorFeedback())
    return FedAvg(Sgd(lr=0.1, momentum=0.9, clip_norm=1.0), Adam(), uplink, Compressor(Sign()))


UPLINKS = [Dense(), Sign(), TopK(0.2, "index"), TopK(0.2, "bitmap"), TopK(0.2, "rice")]
MODELS = [
    (_both_ways(Dense()), world.mlp),
    *((_both_ways(codec), world.with_batch_norm) for codec in UPLINKS),
    *(
        (method(Sgd(lr=0.1), ServerSgd(), Compressor(Sign()), Compressor(Sign())), world.with_batch_norm)
        for method in (Neolithic, partial(CSER, period=2), partial(LIEC, period=2))
    ),
    *(
        (FedScalar(Sgd(lr=0.01), vector, "sphere", 2, directions, seed_cost=seed, sends=down), world.with_batch_norm)
        for vector, directions in (("shared", "independent"), ("per_agent", "orthonormal"))
        for seed, down in (("sent", "model"), ("derived", "scalar"))
    ),
    *((algorithm, world.with_batch_norm) for algorithm in MASKS),
    *(
        (make(Compressor(TopK(0.2, "index"), ErrorFeedback()), Compressor(downlink)), module)
        for make, module in TASKS
        for downlink in (Dense(), Sign())
    ),
]


@looped("algorithm, module", MODELS)
def test_a_round_reads_nothing_and_stays_on_the_device(algorithm, module) -> None:
    """With another default device, a tensor made without naming the run's device would meet the others and fail."""
    fixed = _everybody(world.simulation(algorithm, module, chunk_size=2))
    state, ledger = fixed.init(), Ledger()
    state, _ = fixed.round(0, state, ledger)  # the first one reads: it checks that every entry fits its coding
    with Operations(reads) as counter:
        before, _ = fixed.round(1, state, ledger)
        expected, _ = fixed.round(2, before, ledger)
    assert counter.names == []
    with torch.device("meta"):
        after, _ = fixed.round(2, before, Ledger())
        fixed.test_metrics(3, after)
    assert torch.equal(after.theta, expected.theta)


@looped("codec", UPLINKS)
def test_a_recorded_round_reads_nothing_and_its_ledger_only_bits_that_depend_on_data(codec) -> None:
    fixed = _everybody(world.simulation(_both_ways(codec), chunk_size=2))
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
    fixed = replace(_everybody(sim), per_client=PerClient(source))
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


def _everybody(sim):
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
