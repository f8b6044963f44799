"""`reference.py` for GPUs: candidates are computed and scored in registers; nothing synchronises with the device.

Thresholds, log odds, the table of Gumbel noise (64 KiB, which stays in the cache) and indices are in memory. The
kernels use integer operations and one conversion of an integer to float32, so indices are those of the reference.

Shape legend: M rows (clients), D coordinates, B blocks, R repetitions, C = COLUMNS rows that share candidates,
L = LANES candidates (or coordinates, in decoding) at once.
"""
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedcomp.compressor.mrc.candidates import NOISE, Prior
from fedcomp.compressor.mrc.fixed_point import ENTRIES, FINEST, OCTAVE, gumbel_table

MAX_COLUMNS = 8
"""Maximum senders that one program scores against the same candidates: with 16, registers spill on an H200."""
MAX_LANES = 256
"""Maximum candidates that it scores at once."""
DECODE_LANES = 1024
"""Coordinates that one program decodes."""
CHANGING = ["num_rows", "num_summed", "dim", "base", "first", "repetitions", "num_blocks", "shift"]
CHANGING += ["prior_stride", "key_stride", "domain", "noise_domain"]
"""Arguments whose values do not cause a recompilation, which takes up to 1.6 s."""


@triton.jit(do_not_specialize=CHANGING)
def encode_kernel(
    thresholds,
    log_odds,
    offsets,
    keys,
    noise_keys,
    gumbel,
    out,
    num_rows,
    dim,
    base,
    first,
    repetitions,
    num_blocks,
    prior_stride,
    key_stride,
    domain,
    noise_domain,
    shift,
    NUM: tl.constexpr,
    BITS: tl.constexpr,
    COLUMNS: tl.constexpr,
    LANES: tl.constexpr,
    OCTAVE: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    """out [M, R, B]: one program chooses for one block, one repetition and C rows; see `encode`."""
    SIZE: tl.constexpr = 128 // BITS
    EACH: tl.constexpr = 32 // BITS
    block, repetition, leader = tl.program_id(0), tl.program_id(1), tl.program_id(2) * COLUMNS
    rows = (leader + tl.arange(0, COLUMNS)).to(tl.int64)
    live = rows < num_rows
    begin, end = tl.load(offsets + block), tl.load(offsets + block + 1)
    seed = _seed(keys + leader * key_stride)
    noise_key = _seed(noise_keys + 2 * tl.minimum(rows, num_rows - 1))
    prior = thresholds + leader.to(tl.int64) * prior_stride - base
    steps = log_odds + rows * dim - base
    best = tl.full([COLUMNS], -(2**31), tl.int32)
    chosen = tl.zeros([COLUMNS], tl.int32)
    for tile in range(0, NUM, LANES):
        lane = tile + tl.arange(0, LANES)
        score = tl.zeros([COLUMNS, LANES], tl.int32)
        for group in range(begin // SIZE, (end - 1) // SIZE + 1):
            w0, w1, w2, w3 = _philox(seed, group, lane, repetition, domain)
            for part in tl.static_range(SIZE):
                e = group * SIZE + part
                inside = (e >= begin) & (e < end)
                threshold = tl.load(prior + e, mask=inside, other=0).to(tl.uint32)
                step = tl.load(steps + e, mask=live & inside, other=0)
                word = (w0, w1, w2, w3)[part // EACH]
                ones = _part(word, BITS * (part % EACH), BITS) < threshold
                score += tl.where(ones[None, :], step[:, None], 0)
        number = lane[None, :] + tl.zeros([COLUMNS, LANES], tl.int32)
        counter = first + block
        w0, w1, w2, w3 = _philox(noise_key[:, None], counter // 4, number, repetition, noise_domain)
        which = counter % 4
        word = tl.where(which == 0, w0, tl.where(which == 1, w1, tl.where(which == 2, w2, w3)))
        total = score + (_gumbel(word, gumbel, OCTAVE, ENTRIES) >> shift)
        total = tl.where(number < NUM, total, -(2**31))
        top, at = tl.max(total, 1), tl.argmax(total, 1, tie_break_left=True)
        chosen = tl.where(top > best, tile + at, chosen)
        best = tl.maximum(top, best)
    tl.store(out + (rows * repetitions + repetition) * num_blocks + block, chosen, mask=live)


@triton.jit(do_not_specialize=CHANGING)
def decode_kernel(
    indices,
    thresholds,
    owner,
    keys,
    out,
    num_summed,
    dim,
    base,
    repetitions,
    num_blocks,
    prior_stride,
    key_stride,
    domain,
    BITS: tl.constexpr,
    LANES: tl.constexpr,
):
    """out [M, D] or [1, D] int32 += bits: one program sums L coordinates of `num_summed` rows."""
    SIZE: tl.constexpr = 128 // BITS
    EACH: tl.constexpr = 32 // BITS
    position = tl.program_id(0) * LANES + tl.arange(0, LANES)
    inside = position < dim
    into = out + tl.program_id(1).to(tl.int64) * dim + position
    coordinate = base + position
    block = tl.load(owner + position, mask=inside, other=0)
    total = tl.load(into, mask=inside, other=0)
    for one in range(num_summed):
        row = (tl.program_id(1) + one).to(tl.int64)
        seed = _seed(keys + row * key_stride)
        threshold = tl.load(thresholds + row * prior_stride + position, mask=inside, other=0).to(tl.uint32)
        for repetition in range(repetitions):
            at = (row * repetitions + repetition) * num_blocks + block
            number = tl.load(indices + at, mask=inside, other=0).to(tl.int32)
            w0, w1, w2, w3 = _philox(seed, coordinate // SIZE, number, repetition, domain)
            part = coordinate % SIZE
            which = part // EACH
            word = tl.where(which == 0, w0, tl.where(which == 1, w1, tl.where(which == 2, w2, w3)))
            total += (_part(word, BITS * (part % EACH), BITS) < threshold).to(tl.int32)
    tl.store(into, total, mask=inside)


@triton.jit
def _seed(words):
    """The 64-bit key whose lower and upper 32 bits `words` points at."""
    return tl.load(words) | (tl.load(words + 1) << 32)


@triton.jit
def _philox(seed, counter, number, repetition, domain):
    """Philox4x32-10(seed; counter, number, repetition, domain), in the shape of `number`."""
    zero = number * 0
    return tl.philox(seed, (zero + counter).to(tl.int32), number, (zero + repetition).to(tl.int32), zero + domain)


@triton.jit
def _part(word, right, BITS: tl.constexpr):
    """`BITS` bits of uint32 words from bit `right` on."""
    CUT: tl.constexpr = (1 << BITS) - 1
    return (word >> right) & CUT


@triton.jit
def _gumbel(word, table, OCTAVE: tl.constexpr, ENTRIES: tl.constexpr):
    """`fixed_point.gumbel` with F = FINEST."""
    REST: tl.constexpr = 23 - OCTAVE
    t = ((word & 0x7FFFFFFF) | 1).to(tl.int32).to(tl.float32)
    position = t.to(tl.int32, bitcast=True) - 0x3F800000
    at = (position >> REST) + (word >> 31).to(tl.int32) * ENTRIES
    low = tl.load(table + at)
    return low + ((tl.load(table + at + 1) - low) * (position & ((1 << REST) - 1)) >> REST)


def encode(log_odds: Tensor, prior: Prior, noise_keys: Tensor, repetitions: int, fraction: int) -> Tensor:
    """[M, R, B] int32 chosen candidates; see `coder.encode`."""
    num_rows, dim = log_odds.shape
    thresholds, blocks, candidates = prior.thresholds.contiguous(), prior.blocks, prior.candidates
    chosen = torch.empty(num_rows, repetitions, blocks.num, dtype=torch.int32, device=log_odds.device)
    shared = len(candidates.keys) == 1 and len(thresholds) == 1
    columns = min(MAX_COLUMNS, triton.next_power_of_2(num_rows)) if shared else 1
    noise_keys = noise_keys.contiguous()
    encode_kernel[(blocks.num, repetitions, triton.cdiv(num_rows, columns))](
        thresholds,
        log_odds.contiguous(),
        blocks.offsets,
        candidates.keys.contiguous(),
        noise_keys,
        gumbel_table(log_odds.device),
        chosen,
        num_rows,
        dim,
        blocks.begin,
        blocks.first,
        repetitions,
        blocks.num,
        dim if len(thresholds) > 1 else 0,
        2 if len(candidates.keys) > 1 else 0,
        candidates.domain,
        NOISE,
        FINEST - fraction,
        NUM=candidates.num,
        BITS=candidates.bits,
        COLUMNS=columns,
        LANES=min(MAX_LANES, triton.next_power_of_2(candidates.num)),
        OCTAVE=OCTAVE,
        ENTRIES=ENTRIES,
    )
    return chosen


def decode(indices: Tensor, prior: Prior, out: Tensor) -> None:
    """Add the bits that indices [M, R, B] encode to out [M or 1, n] int32; see `coder.decode`."""
    num_rows, repetitions, num_blocks = indices.shape
    thresholds, blocks, candidates = prior.thresholds.contiguous(), prior.blocks, prior.candidates
    assert out.is_contiguous()
    num_summed = num_rows if len(out) == 1 else 1
    decode_kernel[(triton.cdiv(blocks.dim, DECODE_LANES), len(out))](
        indices.contiguous(),
        thresholds,
        blocks.owner(),
        candidates.keys.contiguous(),
        out,
        num_summed,
        blocks.dim,
        blocks.begin,
        repetitions,
        num_blocks,
        blocks.dim if len(thresholds) > 1 else 0,
        2 if len(candidates.keys) > 1 else 0,
        candidates.domain,
        BITS=candidates.bits,
        LANES=DECODE_LANES,
    )
