"""The conformance suite of codecs. Each check takes a `CodecCase` and fails with an assertion.

Shape legend: M senders, D entries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.compressor import Codec, SumsMessages
from fedcomp.compressor.contract import HasClosedFormError
from fedcomp.compressor.measured import ERROR, THEORY, MeasuredCodec
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger, Link, Payload, SharedKnowledge, WireLink
from fedcomp.wire.packing import layout

LAYERS = ((33, 4, 10), (7,), (1,), (64, 64), (5, 3, 1, 1))
"""Vectors of odd sizes: D = 47, 7, 1, 128, 10, of which only one is a multiple of 8."""
UNEVEN = (300, 500, 209)
"""Layers of a vector that is long enough for the closed forms of rotated codecs: they transform 512 entries twice."""


@dataclass(frozen=True)
class CodecCase:
    """A codec with the properties that the suite checks.

    Attributes:
        name: shown by pytest.
        codec: the codec with its options.
        bits: closed form of a row's bits for given layer sizes; None if they depend on the data.
        keeps_zero: whether a zero vector is decoded to zero.
        lossless: whether every vector is decoded to itself.
        draws: number of repetitions of the unbiasedness test.
        joint: whether the senders' draws depend on each other. Then the test repeats one message after another;
            otherwise the repetitions are senders of one message.
        bias: allowed bias in addition to the standard error, in units of max |x|, for codecs that are unbiased only for
            a uniformly random rotation.
    """

    name: str
    codec: Codec
    bits: Callable[[tuple[int, ...]], int] | None
    keeps_zero: bool = True
    lossless: bool = False
    draws: int = 4000
    joint: bool = False
    bias: float = 0.0


def rows(num: int, layers: tuple[int, ...], seed: int = 0) -> Tensor:
    """[M, D] vectors with entries of very different magnitude."""
    generator = torch.Generator().manual_seed(seed)
    dim = sum(layers)
    return torch.randn(num, dim, generator=generator) * torch.rand(num, dim, generator=generator).mul(3).exp()


def common(num: int, layers: tuple[int, ...], *path: int | str) -> SharedKnowledge:
    """Shared knowledge of a message of the senders 3, 4, ..., whose client numbers are not their row indices."""
    return SharedKnowledge(Key(("test", *path)), torch.arange(3, 3 + num), layers)


def encode(case: CodecCase, x: Tensor, known: SharedKnowledge) -> Payload:
    return case.codec.encode(x, known, known.key.fold_in("sender"))


def check_wire(case: CodecCase) -> None:
    """Packing a message into bytes and unpacking it does not change the decoded floats."""
    for layers in LAYERS:
        known = common(3, layers)
        payload = encode(case, rows(3, layers), known)
        direct = case.codec.decode(Link(Ledger()).up(payload), known)
        received = WireLink(Ledger()).up(payload)
        assert torch.equal(case.codec.decode(received, known), direct)
        assert torch.equal(received.bits, payload.bits)


def check_layout(case: CodecCase) -> None:
    """The layout, which the receiver knows in advance, does not depend on the data."""
    for layers in LAYERS:
        payloads = [encode(case, rows(3, layers, seed), common(3, layers)) for seed in range(6)]
        assert all(layout(payload) == layout(payloads[0]) for payload in payloads)
        assert all(payload.paper_bits == payloads[0].paper_bits for payload in payloads)


def check_receiver(case: CodecCase) -> None:
    """A new receiver decodes the same, also after other messages: nothing passes from sender to receiver."""
    for layers in LAYERS:
        known = common(3, layers)
        x = rows(3, layers)
        payload = encode(case, x, known)
        mine = case.codec.decode(payload, known)
        encode(case, rows(3, layers, seed=5), known)
        fresh = type(case.codec)(**{name: getattr(case.codec, name) for name in _options(case.codec)})
        assert torch.equal(fresh.decode(payload, common(3, layers)), mine)


def check_chunks(case: CodecCase) -> None:
    """A row's message does not depend on the other rows of the chunk."""
    for layers in LAYERS:
        known, x = common(4, layers), rows(4, layers)
        whole = encode(case, x, known)
        for first in (0, 1, 3):
            part = SharedKnowledge(known.key, known.ids[first : first + 1], layers, senders=known.ids)
            alone = encode(case, x[first : first + 1], part)
            for name, field in alone.fields.items():
                assert torch.equal(field.data[0], whole.fields[name].data[first])


def check_bits(case: CodecCase) -> None:
    """Bits follow the closed form, and the total is their sum."""
    for layers in LAYERS:
        payload = encode(case, rows(3, layers), common(3, layers))
        assert int(payload.total_bits) == int(payload.bits.sum())
        if case.bits is not None:
            assert payload.bits.tolist() == [case.bits(layers)] * 3


def check_zero(case: CodecCase) -> None:
    """A zero vector gives no NaN, and is decoded to zero if `keeps_zero`."""
    for layers in LAYERS:
        known = common(2, layers)
        decoded = case.codec.decode(encode(case, torch.zeros(2, sum(layers)), known), known)
        assert torch.isfinite(decoded).all()
        assert not case.keeps_zero or not decoded.any()


def check_shapes(case: CodecCase) -> None:
    """One sender and none: [M, D] float32 in and out, and the input is not modified."""
    for layers in LAYERS:
        for num in (1, 0):
            known, x = common(num, layers), rows(num, layers)
            before = x.clone()
            decoded = case.codec.decode(WireLink(Ledger()).up(encode(case, x, known)), known)
            assert decoded.shape == x.shape
            assert decoded.dtype == torch.float32
            assert torch.equal(x, before)


def check_loss(case: CodecCase) -> None:
    """Lossless codecs are exact. The others are not, and do not decode to zero: identity and zero would fail."""
    layers = LAYERS[0]
    known, x = common(3, layers), rows(3, layers)
    decoded = case.codec.decode(encode(case, x, known), known)
    assert torch.equal(decoded, x) == case.lossless
    assert (decoded.abs().sum(1) > 0).all()


def check_contractive(case: CodecCase) -> None:
    """E||C(x) - x||^2 < ||x||^2, if declared; mean over draws."""
    if not case.codec.contractive:
        return
    layers = LAYERS[0]
    for x in rows(6, layers):
        error = (_draws(case, x, layers, 50) - x).square().sum(1).mean()
        assert error < x.square().sum()


def check_unbiased(case: CodecCase) -> None:
    """|mean of C(x) - x| < 5 standard errors in every entry if declared unbiased; not in every entry otherwise."""
    layers = LAYERS[0]
    x = rows(1, layers)[0]
    few = _draws(case, x, layers, 4)
    draws = few if torch.equal(few, few[:1].expand_as(few)) else _draws(case, x, layers, case.draws)
    mean, deviation = draws.double().mean(0), draws.double().std(0)
    error = 5 * deviation / len(draws) ** 0.5 + (1e-6 + case.bias) * x.abs().max()
    within = (mean - x).abs() <= error
    assert within.all() if case.codec.unbiased else not within.all()


def check_sum(case: CodecCase) -> None:
    """`weighted_sum` is the weighted sum of the decoded rows, for several senders, one and none."""
    if not isinstance(case.codec, SumsMessages):
        return
    for layers in LAYERS:
        for num in (3, 1, 0):
            known, weight = common(num, layers), torch.arange(1.0, num + 1)
            payload = encode(case, rows(num, layers), known)
            wanted = weight @ case.codec.decode(payload, known)
            bound = 1e-5 * float(wanted.abs().max())
            assert torch.allclose(case.codec.weighted_sum(payload, known, weight), wanted, rtol=0, atol=bound)


def check_error(case: CodecCase) -> None:
    """What messages measure of their error is its closed form, if it has one, for layers of unequal size and scale."""
    if not isinstance(case.codec, HasClosedFormError):
        return
    scale = torch.cat([torch.full((size,), one) for size, one in zip(UNEVEN, (1.0, 0.05, 0.3))])
    x, codec = (rows(1, UNEVEN) * scale).expand(5, -1), MeasuredCodec(case.codec)
    draws = [common(5, UNEVEN, "error", draw) for draw in range(20)]  # senders of one message may share a rotation
    measured = [codec.encode(x, known, known.key.fold_in("sender")).measured for known in draws]
    error, theory = (torch.cat([one[name] for one in measured]) for name in (ERROR, THEORY))
    tolerance = 5 * float(error.std()) / len(error) ** 0.5 + 0.03 * float(theory[0])
    assert abs(float(error.mean() - theory.mean())) <= tolerance


CHECKS = (
    check_wire,
    check_layout,
    check_receiver,
    check_chunks,
    check_bits,
    check_zero,
    check_shapes,
    check_loss,
    check_contractive,
    check_unbiased,
    check_sum,
    check_error,
)


def _draws(case: CodecCase, x: Tensor, layers: tuple[int, ...], num: int) -> Tensor:
    """[S, D] decoded vectors of x [D], each with fresh randomness at both ends."""
    if not case.joint:
        return _decoded(case, x.expand(num, -1).contiguous(), common(num, layers))
    return torch.cat([_decoded(case, x[None], common(1, layers, "draw", draw)) for draw in range(num)])


def _decoded(case: CodecCase, x: Tensor, known: SharedKnowledge) -> Tensor:
    return case.codec.decode(encode(case, x, known), known)


def _options(codec: Codec) -> list[str]:
    import dataclasses

    return [field.name for field in dataclasses.fields(codec) if field.init]  # type: ignore[arg-type]
