"""What a round of an algorithm of one's own returns is checked in the first one, as the participation's cohorts are."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedcomp.algorithm.bicompfl.bicompfl_cfl import BiCompFLCFL
from fedcomp.algorithm.bidirectional.cser import CSER
from fedcomp.algorithm.contract import Algorithm
from fedcomp.algorithm.heterogeneity.scallion import Scallion
from fedcomp.algorithm.models import Models
from fedcomp.algorithm.updates.decoded_messages import send_decoded
from fedcomp.algorithm.updates.fragments import Fragment
from fedcomp.check import world
from fedcomp.wire import Field, Ledger, Payload
from fedcomp.wire.coding import Float, Unsigned
from tests.looped import looped
from tests.parts import Codec, Compressor, Dense, ErrorFeedback, FedAvg, ServerSgd, Sgd, Sign
from tests.refused import one_line_error

PARTS = Sgd(lr=0.1, batch_size=4), ServerSgd(), Compressor(Dense()), Compressor(Dense())
REMEMBERS = (*PARTS[:2], Compressor(Sign(), ErrorFeedback()), PARTS[3])


@dataclass(frozen=True)
class Own(FedAvg):
    """FedAvg whose round returns something else."""

    what: str = ""

    def round(self, state, cohort, ctx):
        if self.what == "1-d":
            ctx.send_up("more", self.uplink, state.theta, state.uplink, cohort)
        if self.what == "same name":
            ctx.send_down("update", self.downlink, state.theta, state.downlink, cohort)
        if self.what == "same decoded":
            send_decoded("update", Compressor(Dense()), torch.ones(cohort.size, len(state.theta)), cohort, ctx)
        if self.what == "same fragment":
            whole = Fragment.of(ctx.clients.tensors, lambda tensor: True)
            whole.send_down("update", self.downlink, state.theta, state.downlink, ctx)
        if self.what == "decoded memory":
            x = torch.ones(cohort.size, len(state.theta))
            send_decoded("more", Compressor(Sign(), ErrorFeedback()), x, cohort, ctx)
        new, metrics = super().round(state, cohort, ctx)
        if self.what == "begun anew":
            begun = self.uplink.init(world.NUM_CLIENTS, state.theta)
            ctx.send_up("more", self.uplink, torch.ones(cohort.size, len(state.theta)), begun, cohort)
        if self.what == "in place":
            state.theta.mul_(0.9)
        returned: dict[str, Any] = {
            "alone": new,
            "none": (new, None),
            "float": (new, {**metrics, "own": 1.0}),
            "count": (new, {**metrics, "own": torch.tensor(3)}),
            "matrix": (new, {**metrics, "own": torch.ones(cohort.size, 2)}),
            "everybody": (new, {**metrics, "own": torch.ones(world.NUM_CLIENTS)}),
            "no loss": (new, {"own": torch.ones(())}),
            "mean loss": (new, {"train/loss": metrics["train/loss"].mean()}),
            "double": (replace(new, theta=new.theta.double()), metrics),
            "swapped": (replace(new, theta=new.stats, stats=new.theta), metrics),
            "number": (replace(new, stats=3), metrics),
            "graph": (replace(new, theta=new.theta.clone().requires_grad_()), metrics),
            "old memory": (replace(new, uplink=state.uplink), metrics),
            "taken name": (new, {**metrics, "round": torch.ones(())}),
            "taken folder": (new, {**metrics, "test/accuracy": torch.ones(())}),
        }
        return returned.get(self.what, (new, metrics))

    def evaluation_models(self, state, key):
        if self.what == "other name":
            return {"server": Models(state.theta[None], state.stats[None])}
        if self.what == "train":
            return {**super().evaluation_models(state, key), "train": Models(state.theta[None], state.stats[None])}
        if self.what == "one model":
            return {"test": Models(state.theta, state.stats)}
        if self.what == "no theta":
            return Algorithm.evaluation_models(self, (state.theta,), key)
        return super().evaluation_models(state, key)


FORM = r"state.theta is torch.float32 \(39,\) before it and torch.float"


@looped(
    "what, words",
    [
        ("alone", r"round returned a \w+, but must return \(state, a dict of metrics\)"),
        ("none", r"round returned a tuple of \w+, NoneType"),
        ("float", "metric own is a float, but must be a tensor of floats: a scalar, or \\[3\\]"),
        ("count", r"metric own is torch.int64 \(\), but must be a tensor of floats"),
        ("matrix", r"metric own is torch.float32 \(3, 2\)"),
        ("everybody", r"metric own is torch.float32 \(7,\)"),
        ("no loss", r"must give the metric train/loss \[M\]"),
        ("mean loss", r"must give the metric train/loss \[M\]"),
        ("double", rf"{FORM}64 \(39,\) after it"),
        ("swapped", r"round: state.stats is torch.float32 \(0,\) before it and torch.float32 \(39,\) after it"),
        ("number", "state.stats is a int, but a state holds tensors alone"),
        ("in place", r"round writes into state.theta, but the state that it is given stays as it is"),
        ("graph", r"state.theta requires a gradient, .* take .detach\(\) of it"),
        ("old memory", "has the compressor's memory from before the message 'update', so that error feedback adds"),
        ("begun anew", "memory before the message 'more' is not that of the state, nor is the one after it in the new"),
        ("same name", "^two messages of a round are called 'update', so that their codecs draw the same numbers"),
        ("same decoded", "^two messages of a round are called 'update'"),
        ("same fragment", "^two messages of a round are called 'update'"),
        ("decoded memory", "^compressor.feedback must be none: the algorithm remembers at the clients what was sent"),
        ("taken name", "a metric cannot be called round, which is something else in metrics.jsonl"),
        ("taken folder", "metric cannot be called test/accuracy, .* another name, such as own/test_accuracy"),
        ("1-d", r"compressor: what is sent is torch.float32 \(39,\), but must be torch.float32 \(3, 39\).*`Fragment`"),
        ("other name", "evaluation_models must return a dict of Models by name, of which `test` is the main one"),
        ("one model", r"test has parameters \(39,\) and statistics \(0,\), but K models are \[K, D\]"),
        ("no theta", "the state of Own has no theta and stats that are the model to test"),
    ],
)
def test_what_no_run_can_go_on_with_is_one_line(what: str, words: str) -> None:
    simulation = world.simulation(Own(*(REMEMBERS if what in ("old memory", "begun anew") else PARTS), what=what))
    for donate_state in (False, True):
        with one_line_error(words):
            state, _ = simulation.round(0, simulation.init(), Ledger(), donate_state)
            simulation.test_metrics(1, state)


def test_a_model_and_a_metric_of_one_name_are_refused() -> None:
    simulation = world.simulation(Own(*PARTS, what="train"))
    state, result = simulation.round(0, simulation.init(), Ledger())
    with one_line_error("^algorithm=test_round_check: train/loss is both a metric of a round and one of the model"):
        simulation.evaluate(1, state, result)


def test_what_is_right_passes() -> None:
    simulation = world.simulation(Own(*REMEMBERS))
    state, _ = simulation.round(0, simulation.init(), Ledger())
    assert "test/loss" in simulation.test_metrics(1, state)


@dataclass(frozen=True)
class Wrong(Codec):
    """Sends x, and decodes something else."""

    what: str = ""
    contractive = True

    def encode(self, x, common, sender_key):
        if self.what == "in place":
            x *= 0.5
        if self.what == "infinite scale":
            x = torch.where(torch.arange(common.dim) == 3, torch.inf, x)
        return Payload({"values": Field(x, Float())})

    def decode(self, payload, common) -> Tensor:
        (x,) = payload.expect(values=common.dim)
        if self.what == "0 / 0":
            x = torch.where(torch.arange(common.dim) == 5, torch.nan, x)
        return {"mean": x.mean(1, keepdim=True), "double": x.double()}.get(self.what, x)


@looped("feedback", [None, ErrorFeedback()])
@looped(
    "what, words",
    [
        ("in place", "^Wrong.encode writes into its input"),
        ("mean", r"^Wrong.decode returned torch.float32 \(3, 1\), but must return torch.float32 \(3, 39\)"),
        ("double", r"^Wrong.decode returned torch.float64 \(3, 39\)"),
        ("0 / 0", r"^compressor: Wrong.decode made nan of the message 'update', whose entries are finite: correct it"),
        (
            "infinite scale",
            r"^compressor: Wrong.encode put inf into the field values of the message 'update', though wha",
        ),
    ],
)
def test_a_codec_of_ones_own_is_held_to_its_shapes(what: str, words: str, feedback) -> None:
    codec = Wrong(what)
    uplink = Compressor(codec) if feedback is None else Compressor(codec, feedback)
    simulation = world.simulation(FedAvg(*PARTS[:2], uplink, PARTS[3]))
    with one_line_error(words):
        simulation.round(0, simulation.init(), Ledger())


@dataclass(frozen=True)
class Narrow(Codec):
    """Row 2 sends, or every receiver is sent, a number that its coding cannot write."""

    def encode(self, x, common, sender_key):
        codes = 2 * torch.arange(len(x))[:, None] if len(x) > 1 else torch.tensor([[9]])
        return Payload({"codes": Field(codes, Unsigned(2))})

    def decode(self, payload, common) -> Tensor:
        return payload.fields["codes"].data.expand(-1, common.dim).float()


def test_whose_message_in_which_round_cannot_be_written_is_said() -> None:
    up = world.simulation(FedAvg(*PARTS[:2], Compressor(Narrow()), PARTS[3]))
    client = up.cohort(7).clients[2]
    with one_line_error(f"^round 8, client {client}: field codes of row 2: an entry of 4 where 0 to 3 are allowed"):
        up.round(7, up.init(), Ledger())
    down = world.simulation(FedAvg(*PARTS[:3], Compressor(Narrow())))
    with one_line_error("^round 8: field codes: an entry of 9 where"):
        down.round(7, down.init(), Ledger())


WRONG = Compressor(Wrong("0 / 0"))


@looped(
    "algorithm, words",
    [
        (
            FedAvg(*PARTS[:3], replace(WRONG, group="downlink")),
            "^downlink: Wrong.decode made nan of the message 'step'",
        ),
        (CSER(*PARTS[:2], WRONG, PARTS[3]), "^compressor: Wrong.decode made nan of the message 'update'"),
        (
            Scallion(*PARTS[:2], WRONG, PARTS[3], alpha=0.5),
            "^compressor: Wrong.decode made nan of the message 'control'",
        ),
        (BiCompFLCFL(*PARTS[:2], WRONG), "^compressor: Wrong.decode made nan of the message 'update'"),
    ],
)
def test_who_made_values_that_are_not_finite_is_said_of_every_method(algorithm: Algorithm, words: str) -> None:
    simulation = world.simulation(algorithm)
    with one_line_error(words):
        simulation.round(0, simulation.init(), Ledger())


def test_values_are_looked_at_in_the_first_round_and_where_they_were_finite_alone() -> None:
    simulation = world.simulation(FedAvg(*PARTS[:2], WRONG, PARTS[3]))
    simulation.round(1, simulation.init(), Ledger())
    simulation = world.simulation(FedAvg(Sgd(lr=1e38, batch_size=4), PARTS[1], WRONG, PARTS[3]))
    _, result = simulation.round(0, simulation.init(), Ledger())
    assert not result.metrics["update/norm"].isfinite().all(), "the clients made them"
