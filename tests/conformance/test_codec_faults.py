"""A planted fault in each property makes the codec suite fail: the suite is tested, not only used."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch

from fedcomp.check import codec as suite
from fedcomp.check.codec import CodecCase
from fedcomp.check.failed import Failed
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.quantisers.sign import Sign
from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.compressor.sparsifiers.topk import TopK
from fedcomp.wire import Field, Payload, WireError
from fedcomp.wire.coding import Float, Unsigned


@dataclass(frozen=True)
class Smuggles(Dense):
    """Hands the vector to the receiver beside the payload."""

    beside: list = field(default_factory=list)

    def encode(self, x, common, sender_key):
        self.beside[:] = [x]
        return super().encode(x, common, sender_key)

    def decode(self, payload, common):
        return self.beside[0]


@dataclass(frozen=True)
class Whispers(Sign):
    """Sends signs, and hands over the vector beside them."""

    beside: list = field(default_factory=list)

    def encode(self, x, common, sender_key):
        self.beside[:] = [x]
        return super().encode(x, common, sender_key)

    def decode(self, payload, common):
        return self.beside[0]


@dataclass(frozen=True)
class TooWide(Dense):
    """Declares 8 bits for codes that need more."""

    def encode(self, x, common, sender_key):
        return Payload({"codes": Field(torch.full_like(x, 300, dtype=torch.int64), Unsigned(8))})

    def decode(self, payload, common):
        return payload.fields["codes"].data.float()


@dataclass(frozen=True)
class HalfDeclared(Dense):
    """Sends float32 but declares float16."""

    def encode(self, x, common, sender_key):
        return Payload({"values": Field(x, Float(torch.float16))})


@dataclass(frozen=True)
class Peeks(TopK):
    """Chooses the form of its message from the data without saying so."""

    def encode(self, x, common, sender_key):
        form = "index" if x[0, 0] > 0 else "bitmap"
        return replace(TopK(self.fraction, form)).encode(x, common, sender_key)


@dataclass(frozen=True)
class Neighbours(Sign):
    """Scales each row by what the others hold."""

    def encode(self, x, common, sender_key):
        return super().encode(x / x.abs().mean(), common, sender_key)


@dataclass(frozen=True)
class DividesByNorm(Dense):
    """Makes NaN of a zero vector."""

    def encode(self, x, common, sender_key):
        return super().encode(x / x.norm(dim=1, keepdim=True), common, sender_key)


@dataclass(frozen=True)
class Shrinks(Dense):
    """Declared unbiased, but sends 99 %."""

    def decode(self, payload, common):
        return 0.99 * super().decode(payload, common)


@dataclass(frozen=True)
class Overshoots(Sign):
    """Declared contractive, but four times too long."""

    def decode(self, payload, common):
        return 4 * super().decode(payload, common)


@dataclass(frozen=True)
class WritesInput(Dense):
    """Changes the sender's vector."""

    def encode(self, x, common, sender_key):
        return super().encode(x.mul_(2), common, sender_key)


@dataclass(frozen=True)
class Zero(Sign):
    """Sends bits, decodes nothing."""

    def decode(self, payload, common):
        return torch.zeros_like(super().decode(payload, common))


@dataclass(frozen=True)
class DropsTail(Dense):
    """Works in blocks of four and forgets what is left over."""

    def decode(self, payload, common):
        values = super().decode(payload, common)
        return values[:, : values.shape[1] // 4 * 4]


@dataclass(frozen=True)
class NeedsSomebody(Dense):
    """Cannot take an empty cohort."""

    def encode(self, x, common, sender_key):
        assert x.abs().amax() >= 0
        return super().encode(x, common, sender_key)


@dataclass(frozen=True)
class OneForAll(Dense):
    """Sums up the first sender's vector for everybody."""

    def weighted_sum(self, payload, common, weight):
        values = self.decode(payload, common)
        return weight @ values[:1].expand(values.shape[0], -1) if values.shape[0] else values.sum(0)


@dataclass(frozen=True)
class Boasts(RandK):
    """States half of its error."""

    def expected_error(self, x):
        return super().expected_error(x) / 2


def _dense_bits(layers):
    return 32 * sum(layers)


FAULTS = [
    (suite.check_wire, CodecCase("too wide", TooWide(), None)),
    (suite.check_wire, CodecCase("half declared", HalfDeclared(), None)),
    (suite.check_receiver, CodecCase("smuggles", Smuggles(), None)),
    (suite.check_layout, CodecCase("peeks", Peeks(0.2), None)),
    (suite.check_rows, CodecCase("neighbours", Neighbours(), None)),
    (suite.check_bits, CodecCase("free scales", Sign(), lambda layers: sum(layers))),
    (suite.check_zero, CodecCase("divides by norm", DividesByNorm(), None)),
    (suite.check_zero, CodecCase("fixed sign", Sign("fixed"), None, keeps_zero=True)),
    (suite.check_shapes, CodecCase("writes its input", WritesInput(), None)),
    (suite.check_shapes, CodecCase("drops its tail", DropsTail(), None)),
    (suite.check_shapes, CodecCase("needs somebody", NeedsSomebody(), None)),
    (suite.check_loss, CodecCase("zero", Zero(), None)),
    (suite.check_loss, CodecCase("identity posing as sign", Dense(), _dense_bits, lossless=False)),
    (suite.check_contractive, CodecCase("overshoots", Overshoots(), None)),
    (suite.check_limit, CodecCase("whispers", Whispers(), None)),
    (suite.check_unbiased, CodecCase("shrinks", Shrinks(), None)),
    (suite.check_sum, CodecCase("one for all", OneForAll(), None)),
    (suite.check_error, CodecCase("boasts", Boasts(0.2), None)),
]


@pytest.mark.parametrize(("check", "case"), FAULTS, ids=lambda value: getattr(value, "name", None))
def test_fault_is_found(check, case) -> None:
    with pytest.raises((Failed, RuntimeError, IndexError, WireError)):
        check(case)


def test_sound_codecs_pass_the_checks_used_above() -> None:
    for check in suite.CHECKS:
        check(CodecCase("dense", Dense(), _dense_bits, lossless=True))
