"""Planted peeks, in both directions, are found; what both ends know is told once and counted."""

from dataclasses import dataclass, replace

import pytest
import torch

from fedcomp.algorithm.bicompfl.bicompfl_cfl import BiCompFLCFL
from fedcomp.algorithm.downlinks.downlink import DenseModel
from fedcomp.algorithm.heterogeneity.feddyn import FedDyn
from fedcomp.algorithm.learnt_bits.deltamask import DeltaMask
from fedcomp.algorithm.updates.local_training import train_locally
from fedcomp.check import world
from fedcomp.check.algorithm import AlgorithmCase
from fedcomp.check.failed import Failed
from fedcomp.check.trajectory import check_client_ends, check_server_end
from fedcomp.compressor.fuse_filter import FuseFilter
from fedcomp.wire import Field, Ledger, Payload
from fedcomp.wire.coding import Float
from tests.looped import looped
from tests.parts import Adam, Compressor, Dense, ErrorFeedback, FedAvg, ServerSgd, Sgd, Sign

SGD, DENSE, SIGN = Sgd(lr=0.1, batch_size=4), Compressor(Dense()), Compressor(Sign(), ErrorFeedback())


@dataclass(frozen=True)
class ServerPeeks(FedAvg):
    """The server adds what clients' error memories, which stay at home, hold in the mean."""

    def round(self, state, cohort, ctx):
        new, metrics = super().round(state, cohort, ctx)
        return replace(new, theta=new.theta + 0.01 * new.uplink.sender.mean(0)), metrics


@dataclass(frozen=True)
class ClientPeeks(FedAvg):
    """Clients add to their errors that of the server, which did not go down."""

    def round(self, state, cohort, ctx):
        sender = state.uplink.sender + 0.01 * state.downlink.sender
        return super().round(replace(state, uplink=replace(state.uplink, sender=sender)), cohort, ctx)


@dataclass(frozen=True)
class KeepsItsOwn(DenseModel):
    """Sends the model, and goes on with the server's own tensor, which has the same bits."""

    def model(self, theta, memory, cohort, ctx):
        super().model(theta, memory, cohort, ctx)
        return theta, memory


@dataclass(frozen=True)
class UnreadModel(FedAvg):
    """Clients that train from a tensor that no link returned."""

    sends: str = "model"

    @property
    def down(self):
        return type("Down", (KeepsItsOwn,), {"sends": "model", "held": lambda self, *_: {}})()


@dataclass(frozen=True)
class Untold(FedDyn):
    """Clients that compute with their weights without having been told."""

    told_weights = "none"


@dataclass(frozen=True)
class SecretPlaces(FedAvg):
    """Clients send entries at places that they alone draw, and the server puts them there; the seed does not go up."""

    def round(self, state, cohort, ctx):
        theta, stats = ctx.send_model(state.theta, state.stats, cohort)
        local, stats = train_locally(self.client, theta, stats, cohort, ctx)
        places = ctx.sender_key("entries").choice(cohort.ids, 5, len(theta))
        (values,) = ctx.link.up(Payload({"values": Field(local.value.gather(1, places), Float())})).expect(values=5)
        step = cohort.weight @ torch.zeros_like(local.value).scatter(1, places, values)
        return replace(state, theta=state.theta + step, stats=stats), {"train/loss": local.loss}


def _ends(algorithm, module=world.mlp, participation=None) -> list[str]:
    """Which of the two checks find something, with what they say."""
    found, case = [], AlgorithmCase("one", algorithm, module=module, participation=participation)
    for check in (check_server_end, check_client_ends):
        try:
            check(case)
        except Failed as failed:
            found.append(f"{check.__name__}: {failed}")
    return found


@looped(
    "algorithm, wanted",
    [
        (ServerPeeks(SGD, ServerSgd(), SIGN, SIGN), "check_server_end: round 1: the model test.theta"),
        (ClientPeeks(SGD, ServerSgd(), SIGN, SIGN), "check_client_ends: round"),
        (UnreadModel(SGD, ServerSgd(), SIGN, DENSE), "check_client_ends: round"),
        (SecretPlaces(SGD, ServerSgd(), DENSE, DENSE), "check_server_end: both ends draw by ctx.sender_key('entries')"),
        (Untold(SGD, Compressor(Dense()), weights="samples"), "check_client_ends: round 1"),
    ],
)
def test_a_peek_is_found(algorithm, wanted: str) -> None:
    found = _ends(algorithm)
    assert found[0].startswith(wanted)


def test_a_layout_that_the_receiver_cannot_know_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = FuseFilter.encode
    method = DeltaMask(Adam(lr=0.3, batch_size=4))
    assert _ends(method) == []

    def untold(self, sets, ids, key):
        payload = encode(self, sets, ids, key)
        cells = replace(payload.fields["cells"], count_from=None)
        return Payload({**payload.fields, "cells": cells})

    monkeypatch.setattr(FuseFilter, "encode", untold)
    (found,) = _ends(method)
    assert "the server cannot read it from the bytes and what it knows" in found


@looped(
    "algorithm, down",
    [
        (FedDyn(SGD, DENSE, weights="samples"), 32),
        (BiCompFLCFL(SGD, ServerSgd(), SIGN, weights="samples"), 32 * world.NUM_CLIENTS),
    ],
)
def test_numbers_of_samples_are_told_once_and_counted(algorithm, down: int) -> None:
    assert _ends(algorithm, participation=world.FULL) == []
    sim = world.simulation(algorithm, participation=world.FULL)
    state, counts = sim.init(), []
    for index in range(2):
        ledger = Ledger()
        state, _ = sim.round(index, state, ledger)
        counts.append(ledger.counters())
    more = {name: counts[0][name] - counts[1][name] for name in ("uplink", "downlink", "broadcast", "paper/uplink")}
    num = world.NUM_CLIENTS
    assert more == {"uplink": 32 * num, "downlink": down * num, "broadcast": down, "paper/uplink": 0}
    assert torch.isfinite(state.theta).all()
