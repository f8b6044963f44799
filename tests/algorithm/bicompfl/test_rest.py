"""SplitDL's other blocks: mixtures in whole numbers, and that a client's own messages are enough to follow them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import floor
from typing import Any

import pytest
import torch
from torch import Tensor

from fedcomp.algorithm.bicompfl.bicompfl_pr import BiCompFLPR
from fedcomp.algorithm.bicompfl.rest import STEPS, Rest
from fedcomp.algorithm.contract import Context
from fedcomp.algorithm.masks.coded import MaskEstimate
from fedcomp.client.adam import Adam
from fedcomp.compressor.mrc.candidates import DOWNLINK
from fedcomp.compressor.mrc.split import SplitMRC, groups, rotated
from fedcomp.core.cohort import Cohort
from fedcomp.participation.contract import Participation
from fedcomp.wire import Field, Ledger, Link, Payload, SharedKnowledge
from tests.conformance import world
from tests.looped import looped

NUM = world.NUM_CLIENTS
SCORES = Adam(lr=0.2, batch_size=4, epochs=2)


@looped("n_ul", [1, 3])
@looped("share", [0.2, 0.03, 1.0])
def test_a_mixture_is_the_nearest_code(share: float, n_ul: int) -> None:
    """Of every code and count, against fractions; theta_0 = 1/4 stands where nothing is known yet."""
    rest = Rest("mix", share)
    num = rest.resolution(10)
    estimate, theta0 = MaskEstimate(num), torch.full((1,), 0.25)
    eta = Fraction(rest.eta(7), STEPS)
    assert (num, float(eta)) == (250, pytest.approx(share, abs=1e-6))
    for sent in range(n_ul + 1):
        codes = torch.arange(num + 2, dtype=torch.uint8)[:, None]
        found = rest.codes(codes, torch.full_like(codes, sent), n_ul, theta0, estimate, 7)[:, 0].tolist()
        old = [*map(Fraction, range(num + 1)), Fraction(63)]  # 250 * 64 / 256 = 62.5, rounded up
        assert found == [floor((1 - eta) * one + eta * Fraction(num * sent, n_ul) + Fraction(1, 2)) for one in old]


def test_the_share_falls_and_ends() -> None:
    rest = Rest("mix", 0.4, mix_half_after=10, mix_until=50)
    assert [rest.eta(t) / STEPS for t in (0, 10, 30, 50, 90)] == pytest.approx([0.4, 0.2, 0.1, 0, 0], abs=1e-6)
    assert Rest("mix").eta(10**6) == Rest("mix").eta(0) == round(0.2 * STEPS)
    codes = torch.tensor([[3, 251]], dtype=torch.uint8)
    kept = rest.codes(codes, torch.ones_like(codes), 1, torch.full((2,), 0.5), MaskEstimate(250), 50)
    assert torch.equal(kept, codes)
    assert [Rest("mix").resolution(n) for n in (1, 7, 100, 254)] == [253, 252, 200, 254]


SEEN: list[tuple[str, Any]] = []
"""Keys and messages of the rounds, in their order."""


class Watched(BiCompFLPR):
    """Notes the key of each message, which its ends share."""

    def common(self, name: str, cohort: Cohort, prior: Tensor, ctx: Context) -> SharedKnowledge:
        SEEN.append((name, known := super().common(name, cohort, prior, ctx)))
        return known


class Tapped(Link):
    """Notes the messages."""

    def up(self, payload: Payload, senders: Any = None) -> Payload:
        SEEN.append(("up", payload))
        return super().up(payload, senders)

    def unicast(self, payload: Payload) -> Payload:
        SEEN.append(("down", payload))
        return super().unicast(payload)


def _own(payload: Payload, row: int, num: int) -> Payload:
    """One client's message of `num` indices."""
    field = payload.fields["indices"]
    return Payload({"indices": Field(field.data[row : row + 1, :num], field.coding)})


@pytest.mark.parametrize("participation", [world.FULL, world.SOME])
def test_a_client_follows_its_estimate_by_its_own_messages(participation: Participation) -> None:
    """From theta_0, its own indices both ways and the keys it shares, a client has what the server holds of it."""
    algorithm = Watched(
        client=SCORES, block=3, n_ul=2, split_downlink=True, rest="mix", mix_share=0.3, mix_half_after=2, mix_until=3
    )
    sim = world.simulation(algorithm, link=Tapped, participation=participation)
    state, estimate, down = sim.init(), algorithm.estimate(NUM), replace(algorithm.codec, domain=DOWNLINK)
    down = replace(down, repetitions=algorithm.samples_down(NUM))
    theta0, held = state.theta0, state.codes.clone()
    every = groups(down.cut(len(theta0), world.DEVICE).num, NUM)
    for t in range(5):
        SEEN.clear()
        state, result = sim.round(t, state, Ledger())
        seen = dict(SEEN)
        for row, client in enumerate(result.cohort.clients):
            codes = held[client : client + 1]
            prior = estimate.thresholds(codes, theta0)
            up, mean = (
                replace(seen[name], ids=seen[name].ids[row : row + 1], side_information=prior)
                for name in ("update", "mean")
            )
            sent = algorithm.codec.counts(_own(seen["up"], row, seen["up"].fields["indices"].data.shape[1]), up)
            (part,) = rotated([client], t, NUM)
            split = SplitMRC(down, (every[part],))
            num = down.repetitions * (every[part][1] - every[part][0])
            got, inside = split.counts(_own(seen["down"], row, num), mean)
            other = algorithm.others.codes(codes, sent, algorithm.n_ul, theta0, estimate, t)
            held[client] = torch.where(inside, got * (estimate.num // down.repetitions), other)[0].to(held.dtype)
        assert torch.equal(held, state.codes), t


@looped("name", ["mix_share", "mix_half_after", "mix_until"])
def test_a_schedule_is_above_zero(name: str) -> None:
    with pytest.raises(ValueError, match=rf"algorithm\.{name}=0 must be"):
        BiCompFLPR(client=SCORES, split_downlink=True, rest="mix", **{name: 0})  # type: ignore[arg-type]
