"""Every memory of errors is recorded: its length is that of the state's rows, after the message."""

from typing import Any

import torch

from fedcomp.algorithm.bicompfl.bicompfl_cfl import BiCompFLCFL
from fedcomp.algorithm.bidirectional.cser import CSER
from fedcomp.algorithm.bidirectional.doublesqueeze import DoubleSqueeze
from fedcomp.algorithm.bidirectional.liec import LIEC
from fedcomp.algorithm.bidirectional.m3 import M3
from fedcomp.algorithm.bidirectional.memsgd import MemSGD
from fedcomp.algorithm.bidirectional.neolithic import Neolithic
from fedcomp.algorithm.contract import Algorithm
from fedcomp.algorithm.fedmrn import FedMRN
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.looped import looped
from tests.parts import DENSE, Compressor, ErrorFeedback, FedAvg, MRCSign, PermK, ServerSgd, Sgd, Sign, TopK

CLIENT, SERVER = Sgd(lr=0.1, batch_size=4), ServerSgd(0.5)
SIGN = Compressor(Sign())
TOPK, FED = Compressor(TopK(0.2, "index")), Compressor(Sign(), ErrorFeedback())
CODED = Compressor(MRCSign(block=8, value=0.05), ErrorFeedback())
UP, DOWN = "memory/norm", "memory/norm_down"

CASES: dict[str, tuple[Algorithm, set[str]]] = {
    "fedavg": (FedAvg(CLIENT, SERVER, SIGN, DENSE), set()),
    "up": (FedAvg(CLIENT, SERVER, FED, DENSE), {UP}),
    "fading": (FedAvg(CLIENT, SERVER, Compressor(Sign(), ErrorFeedback(0.5)), DENSE), {UP}),
    "down": (FedAvg(CLIENT, SERVER, SIGN, FED), {DOWN}),
    "beside": (FedAvg(CLIENT, SERVER, world.spared(FED), world.spared(FED)), {UP, DOWN}),
    "memsgd": (MemSGD(CLIENT, SERVER, TOPK, DENSE), {UP}),
    "doublesqueeze": (DoubleSqueeze(CLIENT, SERVER, SIGN, SIGN), {UP, DOWN}),
    "neolithic": (Neolithic(CLIENT, SERVER, SIGN, SIGN), {UP, DOWN}),
    "cser": (CSER(CLIENT, SERVER, TOPK, FED, 3), {UP, DOWN}),
    "liec": (LIEC(CLIENT, SERVER, TOPK, SIGN, 3), {DOWN}),
    "cfl": (BiCompFLCFL(CLIENT, SERVER, CODED), {UP}),
    "cfl-ef21": (BiCompFLCFL(CLIENT, SERVER, TOPK, ef21=True), {UP}),
    "m3-ef21": (M3(CLIENT, SERVER, TOPK, Compressor(PermK()), differences="ef21", uplink_entries="compressor"), {UP}),
    "m3": (M3(CLIENT, SERVER, Compressor(TopK()), Compressor(PermK())), set()),
    "fedmrn": (FedMRN(CLIENT, SERVER, FED), {DOWN}),
}


def _rows(state: Any, algorithm: Algorithm) -> torch.Tensor | None:
    """What the method itself keeps of its clients' errors; None where only the updates tell."""
    if isinstance(algorithm, CSER):
        return state.error
    return state.uplink.sender if hasattr(state, "uplink") and state.uplink.sender.numel() else None


@looped("name", CASES)
def test_lengths_are_those_of_the_memories(name: str) -> None:
    algorithm, wanted = CASES[name]
    everybody = algorithm.full_participation
    module = world.with_batch_norm if name == "beside" else world.mlp
    sim = world.simulation(algorithm, module, world.FULL if everybody else world.SOME)
    state = sim.init()
    for index in range(3):
        state, result = sim.round(index, state, Ledger())
        assert {key for key in result.metrics if key.startswith("memory/")} == wanted
        rows = _rows(state, algorithm)
        if UP in wanted and rows is not None:
            assert torch.allclose(result.metrics[UP], rows[result.cohort.ids].norm(dim=1))
        if UP in wanted:
            assert result.metrics[UP].shape == result.metrics["update/norm"].shape == (result.cohort.size,)
        if DOWN in wanted:
            assert torch.allclose(result.metrics[DOWN], state.downlink.sender[0].norm())
            assert float(result.metrics["update/norm_down"]) > 0
    if wanted and name != "liec":  # whose third round empties it
        assert all(float(result.metrics[key].max()) > 0 for key in wanted)


def test_what_ef21_leaves_out_is_the_difference_to_what_everybody_knows() -> None:
    """With messages that lose nothing it is nothing, and what is left of a first message is at most the update."""
    for uplink, most in ((DENSE, 1e-6), (TOPK, 1.0)):
        for algorithm in (
            BiCompFLCFL(CLIENT, SERVER, uplink, ef21=True),
            M3(CLIENT, SERVER, uplink, DENSE, p_up=0.0, differences="ef21", uplink_entries="compressor"),
        ):
            sim = world.simulation(algorithm, participation=world.FULL)
            _, result = sim.round(0, sim.init(), Ledger())
            assert bool((result.metrics[UP] <= most * result.metrics["update/norm"]).all())
            if uplink is TOPK and isinstance(algorithm, BiCompFLCFL):
                assert bool((result.metrics[UP] > 0).all())
