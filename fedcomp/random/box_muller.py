"""The Box-Muller transform: normal draws from random words, with the same bits on every device.

G. Box, M. Muller, "A note on the generation of random normal deviates", 1958: for words w and w' of 32 bits,

    u = (w + 1/2) 2^-32,  v = w' 2^-32,  sqrt(-2 ln u) cos(2 pi v)  and  sqrt(-2 ln u) sin(2 pi v).

Libraries differ in the last bits of ln, cos and sin. Here these are power series in float64, evaluated in a fixed order
with operations that IEEE 754 rounds exactly: additions, multiplications, one division, one square root. Their relative
error is about 1e-13; the result is then rounded to float32. `philox_numba.normal` takes the same steps bit for bit.
"""

import math

import torch
from torch import Tensor

LOG = tuple(2.0 / (2 * power + 1) for power in range(7, -1, -1))
"""ln m = 2 (s + s^3/3 + s^5/5 + ...) with s = (m - 1) / (m + 1): coefficients, the highest first."""
COSINE = tuple((-1) ** power / math.factorial(2 * power) for power in range(7, -1, -1))
SINE = tuple((-1) ** power / math.factorial(2 * power + 1) for power in range(7, -1, -1))
"""cos x and sin x / x in powers of x^2, |x| <= pi/4."""
LN2 = math.log(2.0)
ANGLE = 2.0 * math.pi * 2.0**-32
"""Radians per unit of a word: 2^32 units are a full turn."""
SQRT_HALF_BITS = int(torch.tensor(math.sqrt(0.5), dtype=torch.float64).view(torch.int64))
"""The bits of sqrt(1/2) as an integer: u = m 2^e with sqrt(1/2) <= m < sqrt(2)."""


def box_muller(words: Tensor) -> Tensor:
    """[M, n] float32 normal draws from words [M, n] int64 with n even: draws 2t and 2t + 1 from words 2t and 2t + 1."""
    u = (words[:, 0::2].to(torch.float64) + 0.5) * 2.0**-32
    bits = u.view(torch.int64)
    exponent = (bits - SQRT_HALF_BITS) >> 52
    mantissa = (bits - (exponent << 52)).view(torch.float64)
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    log = _series(LOG, ratio * ratio) * ratio + exponent.to(torch.float64) * LN2
    radius = torch.sqrt(log * -2.0)

    quarter = (words[:, 1::2] + (1 << 29)) >> 30
    angle = (words[:, 1::2] - (quarter << 30)).to(torch.float64) * ANGLE
    square = angle * angle
    cosine, sine = _series(COSINE, square), _series(SINE, square) * angle
    odd = (quarter & 1) == 1
    first = torch.where(odd, sine, cosine) * (1 - ((quarter + 1) & 2)).to(torch.float64)
    second = torch.where(odd, cosine, sine) * (1 - (quarter & 2)).to(torch.float64)
    return torch.stack((radius * first, radius * second), 2).flatten(1).to(torch.float32)


def _series(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    total = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total
