"""A planted fault in each property makes the codec suite fail: the suite is tested, not only used."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
import torch
from torch import Tensor

from fedcomp.check import codec as suite
from fedcomp.check import messages
from fedcomp.check.codec import CodecCase
from fedcomp.check.failed import Failed
from fedcomp.compressor.contract import CodecWrapper
from fedcomp.wire import Field, Payload, WireError
from fedcomp.wire.coding import Coding, Float, Unsigned
from tests.looped import looped
from tests.parts import Dense, RandK, Sign, TopK


@dataclass(frozen=True)
class Planted(CodecWrapper):
    """`codec` with a fault in what it encodes, or in what it decodes."""

    encodes: Callable[[Tensor], Tensor] = lambda x: x
    decodes: Callable[[Tensor], Tensor] = lambda values: values

    def encode(self, x, common, sender_key):
        return self.codec.encode(self.encodes(x), common, sender_key)

    def decode(self, payload, common):
        return self.decodes(self.codec.decode(payload, common))


def needs_somebody(x: Tensor) -> Tensor:
    assert x.abs().amax() >= 0
    return x


@dataclass(frozen=True)
class Understates(RandK):
    """Says that its errors are a hundredth of what they are."""

    def omega(self, layers, num_senders):
        return 0.01 * super().omega(layers, num_senders)


@dataclass(frozen=True)
class Smuggles(CodecWrapper):
    """Hands the vector to the receiver beside the message."""

    beside: list = field(default_factory=list)

    def encode(self, x, common, sender_key):
        self.beside[:] = [x]
        return self.codec.encode(x, common, sender_key)

    def decode(self, payload, common):
        return self.beside[0]


@dataclass(frozen=True)
class Declares(Dense):
    """Sends entries of another type or range than `coding` writes."""

    coding: Coding = field(default_factory=Float)
    entries: Callable[[Tensor], Tensor] = lambda x: x

    def encode(self, x, common, sender_key):
        return Payload({"values": Field(self.entries(x), self.coding)})


@dataclass(frozen=True)
class Peeks(TopK):
    """Chooses the form of its message from the data without saying so."""

    def encode(self, x, common, sender_key):
        form = "index" if x[0, 0] > 0 else "bitmap"
        return replace(TopK(self.fraction, form)).encode(x, common, sender_key)


@dataclass(frozen=True)
class OneForAll(Dense):
    """Sums up the first sender's vector for everybody."""

    def weighted_sum(self, payload, common, weight):
        values = self.decode(payload, common)
        return weight @ values[:1].expand(values.shape[0], -1) if values.shape[0] else values.sum(0)


@dataclass(frozen=True)
class Reads(Dense):
    """Takes the first field of any message."""

    def decode(self, payload, common):
        values = next(iter(payload.fields.values())).data.float()
        return torch.nn.functional.pad(values, (0, common.dim))[:, : common.dim]


@dataclass(frozen=True)
class Boasts(RandK):
    """States half of its error."""

    def expected_error(self, x):
        return super().expected_error(x) / 2


TAIL = Planted(Dense(), decodes=lambda values: values[:, : values.shape[1] // 4 * 4])
FAULTS = [
    (
        suite.check_wire,
        "8 bits for 300",
        Declares(coding=Unsigned(8), entries=lambda x: torch.full_like(x, 300).long()),
    ),
    (suite.check_wire, "float32 as float16", Declares(coding=Float(torch.float16))),
    (suite.check_receiver, "smuggles", Smuggles(Dense())),
    (suite.check_layout, "chooses a form by the data", Peeks(0.2)),
    (suite.check_rows, "scales a row by the others", Planted(Sign(), lambda x: x / x.abs().mean())),
    (suite.check_zero, "NaN of zeros", Planted(Dense(), lambda x: x / x.norm(dim=1, keepdim=True))),
    (suite.check_zero, "signs of zeros", Sign("fixed")),
    (suite.check_shapes, "writes its input", Planted(Dense(), lambda x: x.mul_(2))),
    (suite.check_shapes, "drops its tail", TAIL),
    (suite.check_shapes, "needs somebody", Planted(Dense(), needs_somebody)),
    (suite.check_loss, "decodes nothing", Planted(Sign(), decodes=torch.zeros_like)),
    (suite.check_loss, "identity posing as sign", Dense()),
    (suite.check_contractive, "four times too long", Planted(Sign(), decodes=lambda values: 4 * values)),
    (suite.check_contractive, "understates omega", Understates(0.2)),
    (
        suite.check_loss,
        "nearly lossless but for a tenth",
        Planted(Dense("float16"), decodes=lambda values: 0.9 * values),
    ),
    (suite.check_limit, "whispers", Smuggles(Sign())),
    (suite.check_unbiased, "99 %", Planted(Dense(), decodes=lambda values: 0.99 * values)),
    (suite.check_sum, "one for all", OneForAll()),
    (suite.check_error, "states half of its error", Boasts(0.2)),
    (
        messages.check_damaged,
        "reads what is beyond",
        Planted(TopK(0.2, "index"), decodes=lambda values: values[:, :-1]),
    ),
    (messages.check_foreign, "reads any message", Reads()),
]


@looped("check, name, codec", FAULTS)
def test_fault_is_found(check, name: str, codec) -> None:
    with pytest.raises((Failed, RuntimeError, IndexError, WireError)):
        check(CodecCase(name, codec))


@dataclass(frozen=True)
class Varies(Planted):
    """Sends the first entries, by the data fewer or more, in a layout that depends on them."""

    fault: str = "count"

    def encode(self, x, common, sender_key):
        many = bool(x.sum() > 0)
        num = torch.full((len(x),), x.shape[1] - many)
        data = torch.where(torch.arange(x.shape[1]) < num[:, None], x, 0)
        form = {
            "count": lambda: Field(data, Float(), num, count_known=True),
            "count_from": lambda: Field(data, Float(), num, count_known=True, count_from=lambda row: len(row)),
            "partial": lambda: Field(data, Float(), num, count_known=True, count_from=partial(max, 3 - 2 * many)),
            "same partial": lambda: Field(data, Float(), num, count_known=True, count_from=partial(max, 3)),
            "columns": lambda: Field(data[:, : int(num[0])] if len(num) else data, Float()),
            "name": lambda: Field(data, Float()),
            "sound": lambda: Field(data, Float(), num),
        }[self.fault]
        return Payload({"many" if self.fault == "name" and many else "few": form()})


@looped(
    "fault, words",
    [
        ("count", r"field few has count \(\d, \d, \d\) and .*: count_known=True says .* leave count_known out,"),
        *((fault, "field few has count_from .* write it outside of encode") for fault in ("count_from", "partial")),
        ("columns", "field few has data of n columns, n = [01] and [01]: give all as many, .* `count`"),
        ("name", "fields (few, and fields many|many, and fields few)$"),
    ],
)
def test_what_differs_in_a_layout_is_said(fault: str, words: str) -> None:
    with pytest.raises(Failed, match=f"^two sets of vectors of 1 entries have messages of different layouts: {words}"):
        suite.check_layout(CodecCase("varies", Varies(Dense(), fault=fault)))
    for sound in ("sound", "same partial"):
        suite.check_layout(CodecCase("varies", Varies(Dense(), fault=sound)))


def test_free_scales_are_found() -> None:
    with pytest.raises(Failed):
        suite.check_bits(CodecCase("free scales", Sign(), sum))


def test_sound_codecs_pass_the_checks_used_above() -> None:
    for check in (*suite.CHECKS, *messages.CHECKS):
        check(CodecCase("dense", Dense(), lambda layers: 32 * sum(layers), lossless=True))
        check(CodecCase("planted with nothing", Planted(Sign())))
