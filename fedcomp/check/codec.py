"""What every codec must pass. Each check takes a `CodecCase` and raises Failed with the smallest example.

Shape legend: M senders, D entries, S draws.
"""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from fedcomp.check.failed import described, require
from fedcomp.compressor import Codec
from fedcomp.compressor.measured import ERROR, THEORY, MeasuredCodec
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger, Link, Payload, SharedKnowledge, WireLink
from fedcomp.wire.packing import layout

LAYERS = ((1,), (7,), (5, 3, 1, 1), (33, 4, 10), (64, 64))
"""Vectors of odd sizes: D = 1, 7, 10, 47, 128, of which only one is a multiple of 8."""
NEAR = 0.01
"""Relative error below which a codec is nearly lossless: bfloat16 rounds by 0.004 at most."""
TYPICAL = (33, 4, 10)
REMEDIES = {
    "num": ("data of n columns, n =", ": give all as many, zeros behind, and `count` if rows send different numbers"),
    "known_counts": (
        "count",
        ": count_known=True says that both ends know the number without the message, but here it depends on the data: "
        "leave count_known out, and the number is sent, or give count_from=..., if it follows from fields before",
    ),
    "count_from": ("count_from", ", another function in each message: write it outside of encode, or as a partial"),
}
"""What the parts of a field's layout are called, and what helps where they depend on the data."""
UNEVEN = (300, 500, 209)
"""Layers of a vector that is long enough for the closed forms of rotated codecs: they transform 512 entries twice."""


@dataclass(frozen=True)
class CodecCase:
    """A codec with the properties that are checked.

    Attributes:
        name: shown with the results.
        codec: the codec with its options.
        bits: closed form of a row's bits for given layer sizes; None if they depend on the data, or nobody says.
        keeps_zero: whether a zero vector is decoded to zero; None: nobody says.
        lossless: whether every vector is decoded to itself; None: nobody says.
        draws: number of repetitions of the unbiasedness test.
        joint: whether the senders' draws depend on each other. Then the test repeats one message after another;
            otherwise the repetitions are senders of one message.
        bias: allowed bias in addition to the standard error, in units of max |x|, for codecs that are unbiased only for
            a uniformly random rotation.
    """

    name: str
    codec: Codec
    bits: Callable[[tuple[int, ...]], int] | None = None
    keeps_zero: bool | None = True
    lossless: bool | None = False
    draws: int = 4000
    joint: bool = False
    bias: float = 0.0

    @classmethod
    def of_unknown(cls, name: str, codec: Codec) -> "CodecCase":
        """A codec of which only its declarations are known."""
        return cls(name, codec, keeps_zero=None, lossless=None, draws=1500, joint=True)

    def layers(self) -> Iterator[tuple[int, ...]]:
        """The sizes that the codec can send, the smallest first."""
        for layers in LAYERS:
            try:
                self.codec.check_dim(sum(layers))
            except ValueError:
                continue
            yield layers


def rows(num: int, layers: tuple[int, ...], seed: int = 0) -> Tensor:
    """[M, D] vectors with entries of very different magnitude."""
    generator = torch.Generator().manual_seed(seed)
    dim = sum(layers)
    return torch.randn(num, dim, generator=generator) * torch.rand(num, dim, generator=generator).mul(3).exp()


def common(num: int, layers: tuple[int, ...], *path: int | str) -> SharedKnowledge:
    """Shared knowledge of a message of the senders 3, 4, ..., whose client numbers are not their row indices."""
    return SharedKnowledge(Key(("test", *path)), torch.arange(3, 3 + num), layers)


def encode(case: CodecCase, x: Tensor, known: SharedKnowledge) -> Payload:
    """The messages of the rows x [M, D]."""
    return case.codec.encode(x, known, known.key.fold_in("sender"))


def check_wire(case: CodecCase) -> None:
    """A message decodes to the same floats from its bytes; it has as many bits as are counted, of declared types."""
    for layers in case.layers():
        known, where = common(3, layers), f"3 vectors of {sum(layers)} entries"
        payload = encode(case, rows(3, layers), known)
        direct = case.codec.decode(Link(Ledger()).up(payload), known)
        received = WireLink(Ledger()).up(payload)
        again = case.codec.decode(received, known)
        require(torch.equal(again, direct), f"{where}: decoded from bytes, {_differ('x', again, direct)}")
        require(
            torch.equal(received.bits, payload.bits),
            f"{where}: {received.bits.tolist()} bits arrive of {payload.bits.tolist()}",
        )


def check_layout(case: CodecCase) -> None:
    """The layout of a message, which the receiver knows in advance, does not depend on the data."""
    for layers in case.layers():
        payloads = [encode(case, rows(3, layers, seed), common(3, layers)) for seed in range(6)]
        for payload in payloads[1:]:
            differ = _layouts_differ(payloads[0], payload)
            require(
                not differ, f"two sets of vectors of {sum(layers)} entries have messages of different layouts: {differ}"
            )


def check_receiver(case: CodecCase) -> None:
    """A new receiver decodes the same, also after other messages: nothing passes beside the message."""
    for layers in case.layers():
        known = common(3, layers)
        payload = encode(case, rows(3, layers), known)
        mine = case.codec.decode(payload, known)
        encode(case, rows(3, layers, seed=5), known)
        fresh = replace(case.codec)  # type: ignore[type-var]
        again = fresh.decode(payload, common(3, layers))
        where = f"vectors of {sum(layers)} entries, decoded after other vectors were encoded"
        require(torch.equal(again, mine), f"{where}: {_differ('x', again, mine)}")


def check_rows(case: CodecCase) -> None:
    """A row's message does not depend on the other rows of the chunk."""
    for layers in case.layers():
        known, x = common(4, layers), rows(4, layers)
        whole = encode(case, x, known)
        for first in (0, 1, 3):
            part = SharedKnowledge(known.key, known.ids[first : first + 1], layers, senders=known.ids)
            alone = encode(case, x[first : first + 1], part)
            for name, field in alone.fields.items():
                both = field.data[0], whole.fields[name].data[first]
                where = f"row {first} of 4 vectors of {sum(layers)} entries, alone"
                require(torch.equal(*both), f"{where}: {_differ(name, *both)}")


def check_bits(case: CodecCase) -> None:
    """Bits follow the closed form where there is one, and the total is their sum."""
    for layers in case.layers():
        payload = encode(case, rows(3, layers), common(3, layers))
        bits, total, where = payload.bits.tolist(), int(payload.total_bits), f"3 vectors of {sum(layers)} entries"
        require(total == sum(bits), f"{where}: {total} bits in all of rows of {bits}")
        if case.bits is not None:
            require(bits == [case.bits(layers)] * 3, f"{where}: {bits} bits instead of {case.bits(layers)} each")


def check_zero(case: CodecCase) -> None:
    """A zero vector gives no NaN, and is decoded to zero where the codec keeps zeros."""
    for layers in case.layers():
        known = common(2, layers)
        decoded = case.codec.decode(encode(case, torch.zeros(2, sum(layers)), known), known)
        where = f"a vector of {sum(layers)} zeros is decoded to {decoded[0].tolist()[:8]}"
        require(torch.isfinite(decoded).all(), where)
        require(not case.keeps_zero or not decoded.any(), where)


def check_shapes(case: CodecCase) -> None:
    """One sender and none: [M, D] float32 in and out, and the input is not modified."""
    for layers in case.layers():
        for num in (1, 0):
            x, known = rows(num, layers), common(num, layers)
            before = x.clone()
            decoded = case.codec.decode(encode(case, x, known), known)
            where = f"{num} vectors of {sum(layers)} entries"
            given = f"{decoded.dtype} {tuple(decoded.shape)}"
            require(decoded.shape == x.shape and decoded.dtype == torch.float32, f"{where}: decoded to {given}")
            require(torch.equal(x, before), f"{where}: the encoder writes into its input")


def check_loss(case: CodecCase) -> None:
    """Lossless codecs are exact, and near-lossless ones nearly. Others are not, and do not decode to zero."""
    layers = _typical(case)
    known, x = common(3, layers), rows(3, layers)
    decoded = case.codec.decode(encode(case, x, known), known)
    where = f"3 vectors of {sum(layers)} entries"
    if case.lossless is not None:
        exact = torch.equal(decoded, x)
        require(exact == case.lossless, f"{where} are decoded {'exactly' if exact else 'with an error'}")
    require((decoded.abs().sum(1) > 0).all(), f"{where}: one is decoded to zero")
    if case.codec.near_lossless:
        error = float(((decoded - x).norm(dim=1) / x.norm(dim=1)).max())
        require(error < NEAR, f"{where}: the largest error is {error:.3g} of the vector, although near_lossless=True")


def check_contractive(case: CodecCase) -> None:
    """E||C(x) - x||^2 < ||x||^2, if declared, and no more than `omega` says of an unbiased codec; mean over draws."""
    layers, num = _typical(case), 50
    omega = case.codec.omega(layers, 1 if case.joint else num) if case.codec.unbiased else None
    if not case.codec.contractive and omega is None:
        return
    for x in rows(6, layers):
        errors = (_draws(case, x, layers, num) - x).square().sum(1) / x.square().sum()
        mean, deviation = float(errors.mean()), float(errors.std()) / len(errors) ** 0.5
        where = (
            f"a vector of {sum(layers)} entries: ||C(x) - x||^2 is {mean:.3g} ||x||^2, standard error {deviation:.2g}"
        )
        require(mean < 1 or not case.codec.contractive, f"{where}, although contractive=True")
        bound = math.inf if omega is None else 1.001 * omega + 5 * deviation + 1e-6
        require(mean <= bound, f"{where}, although omega={omega}")


def check_limit(case: CodecCase) -> None:
    """Of Gaussian entries no code of R bits an entry has a smaller squared error than 2^(-2 R), unless more passes.

    C. Shannon, "Coding theorems for a discrete source with a fidelity criterion", 1959: for vectors of every size.
    Entries are floats, so the bound says nothing of codes that are near their resolution.
    """
    layers = _typical(case)
    num, dim = 64, sum(layers)
    x, known = torch.randn(num, dim, generator=torch.Generator().manual_seed(2)), common(num, layers, "limit")
    payload = encode(case, x, known)
    rate = float(payload.bits.double().mean()) / dim
    errors = (case.codec.decode(payload, known).double() - x).square().mean(1)
    least, mean, deviation = 2 ** (-2 * rate), float(errors.mean()), float(errors.std()) / num**0.5
    require(
        least < 1e-8 or mean >= least - 5 * deviation,
        f"{rate:.3g} bits an entry cannot tell Gaussian vectors of {dim} entries to a squared error of {mean:.3g} an "
        f"entry, at best to {least:.3g}: something passes beside the message",
    )


def check_unbiased(case: CodecCase) -> None:
    """|mean of C(x) - x| < 5 standard errors in every entry if declared unbiased; not in every entry otherwise."""
    layers = _typical(case)
    x = rows(1, layers)[0]
    few = _draws(case, x, layers, 4)
    draws = few if torch.equal(few, few[:1].expand_as(few)) else _draws(case, x, layers, case.draws)
    mean, deviation = draws.double().mean(0), draws.double().std(0) / len(draws) ** 0.5
    allowed = 5 * deviation + (1e-6 + case.bias) * x.abs().max()
    off = (mean - x).abs()
    if case.codec.unbiased:
        worst = int((off / allowed).argmax())
        require(
            (off <= allowed).all(),
            f"the mean of {len(draws)} draws of entry {worst} is {float(mean[worst]):.4g} instead of "
            f"{float(x[worst]):.4g}, {float(off[worst]):.2g} off at a standard error of {float(deviation[worst]):.2g}, "
            "although unbiased=True",
        )
    elif case.lossless is not None:
        require(not (off <= allowed).all(), f"the mean of {len(draws)} draws is x, although unbiased=False")


def check_sum(case: CodecCase) -> None:
    """`weighted_sum` is the weighted sum of the decoded rows, for several senders, one and none."""
    for layers in case.layers():
        for num in (3, 1, 0):
            known, weight = common(num, layers), torch.arange(1.0, num + 1)
            payload = encode(case, rows(num, layers), known)
            wanted = weight @ case.codec.decode(payload, known)
            bound, summed = 1e-5 * float(wanted.abs().max()), case.codec.weighted_sum(payload, known, weight)
            close = torch.allclose(summed, wanted, rtol=0, atol=bound)
            require(close, f"{num} vectors of {sum(layers)} entries: {_differ('their sum', summed, wanted)}")


def check_error(case: CodecCase) -> None:
    """What messages measure of their error is its closed form, if it has one, for layers of unequal size and scale."""
    if case.codec.expected_error(rows(1, UNEVEN)) is None:
        return
    scale = torch.cat([torch.full((size,), one) for size, one in zip(UNEVEN, (1.0, 0.05, 0.3))])
    x, codec = (rows(1, UNEVEN) * scale).expand(5, -1), MeasuredCodec(case.codec)
    draws = [common(5, UNEVEN, "error", draw) for draw in range(20)]  # senders of one message may share a rotation
    measured = [codec.encode(x, known, known.key.fold_in("sender")).measured for known in draws]
    error, theory = (torch.cat([one[name] for one in measured]) for name in (ERROR, THEORY))
    mean, expected = float(error.mean()), float(theory.mean())
    require(
        abs(mean - expected) <= 5 * float(error.std()) / len(error) ** 0.5 + 0.03 * expected,
        f"the relative squared error of {len(error)} messages is {mean:.4g}, but expected_error says {expected:.4g}",
    )


CHECKS = tuple(check for name, check in list(vars().items()) if name.startswith("check_"))
"""What needs one process and no other codec."""


def _typical(case: CodecCase) -> tuple[int, ...]:
    sizes = tuple(case.layers())
    return TYPICAL if TYPICAL in sizes else sizes[-1]


def _differ(name: str, given: Tensor, wanted: Tensor) -> str:
    return f"{name} {described(given, wanted)}"


def _layouts_differ(one: Payload, other: Payload) -> str:
    """The first thing in which the layouts of two messages differ, and what to do about it; "": nothing."""
    first, second = layout(one), layout(other)
    if first.keys() != second.keys():
        return f"fields {', '.join(first)}, and fields {', '.join(second)}"
    for name, field in first.items():
        for part in fields(field):
            both = getattr(field, part.name), getattr(second[name], part.name)
            if _called(both[0]) != _called(both[1]):
                word, remedy = REMEDIES.get(part.name, (part.name, ""))
                return f"field {name} has {word} {both[0]} and {both[1]}{remedy}"
    paper = one.paper_bits, other.paper_bits
    return "" if paper[0] == paper[1] else f"paper_bits are {paper[0]} and {paper[1]}"


def _called(part: Any) -> Any:
    """A `functools.partial` by what it calls and with what, since two of the same are not equal; all else as it is."""
    return (part.func, part.args, part.keywords) if isinstance(part, functools.partial) else part


def _draws(case: CodecCase, x: Tensor, layers: tuple[int, ...], num: int) -> Tensor:
    """[S, D] decoded vectors of x [D], each with fresh randomness at both ends."""
    if not case.joint:
        return _decoded(case, x.expand(num, -1).contiguous(), common(num, layers))
    return torch.cat([_decoded(case, x[None], common(1, layers, "draw", draw)) for draw in range(num)])


def _decoded(case: CodecCase, x: Tensor, known: SharedKnowledge) -> Tensor:
    return case.codec.decode(encode(case, x, known), known)
