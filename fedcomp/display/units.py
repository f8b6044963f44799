"""Quantities as people read them: three significant digits and a unit."""

import math

BIT_UNITS = ("bit", "kbit", "Mbit", "Gbit", "Tbit", "Pbit", "Ebit")


def significant(value: float) -> str:
    """Three significant digits: 0.0312, 1.00, 32.0, 123; all digits from 1000 on; 2.70e-06 below 1e-4; 0 for zero."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    if abs(value) >= 999.5:
        return f"{value:.0f}"
    return f"{value:#.3g}".rstrip(".")


def mean_and_deviation(mean: float, deviation: float) -> str:
    """`4.5820 ± 0.0044`: two significant digits of the deviation, and the mean to the same decimal."""
    exponent = f"{deviation:.1e}".partition("e")[2]
    if deviation <= 0 or not exponent or int(exponent) < -6:  # equal values, no number, or rows of zeros
        return f"{significant(mean)} ± {significant(deviation)}"
    decimals = max(0, 1 - int(exponent))
    return f"{mean:.{decimals}f} ± {deviation:.{decimals}f}"


def bits(count: float) -> str:
    """A number of bits in decimal units: 812 bit, 61.7 kbit, 1.24 Gbit."""
    if not math.isfinite(count):
        return f"{count} bit"
    power = 0
    while abs(count) >= 999.5 and power < len(BIT_UNITS) - 1:
        count, power = count / 1000, power + 1
    whole = power == 0 and count == int(count)
    return f"{int(count) if whole else significant(count)} {BIT_UNITS[power]}"


def size(num_bytes: int) -> str:
    """A number of bytes in decimal units: 812 B, 61.7 kB, 1.24 GB."""
    return bits(num_bytes).replace("bit", "B")


def duration(seconds: float) -> str:
    """A time in its two largest units: 0.25 s, 12.3 s, 1 m 20 s, 2 h 05 m, 3 d 04 h."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    minutes, whole_seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {whole_seconds:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours < 24:
        return f"{hours} h {minutes:02d} m"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days} d {hours:02d} h"


def percent(fraction: float) -> str:
    """A fraction in percent with two decimals, without the percent sign: 0.97312 -> 97.31."""
    return f"{100 * fraction:.2f}"


def power(value: float) -> str:
    """One digit times a power of ten: 10⁵, 2·10⁻⁴."""
    mantissa, _, exponent = f"{value:.0e}".partition("e")
    digits = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{digits}" if mantissa == "1" else f"{mantissa}·10{digits}"


def counted(number: int, word: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
