"""How the local learning rate changes over rounds."""

from __future__ import annotations

import math

SCHEDULES = ("constant", "linear", "cosine", "inverse_sqrt", "exponential")


def learning_rate_factor(schedule: str, final: float, round_index: int, num_rounds: int) -> float:
    """The factor on the learning rate in round `round_index` (0 is the first) of `num_rounds`.

    constant: 1. linear, cosine: from 1 in the first round to `final` in the last. inverse_sqrt: 1 / sqrt(round + 1).
    exponential: final ** round.
    """
    done = round_index / max(num_rounds - 1, 1)
    if schedule == "linear":
        return 1 + (final - 1) * done
    if schedule == "cosine":
        return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * done))
    if schedule == "inverse_sqrt":
        return 1 / math.sqrt(round_index + 1)
    if schedule == "exponential":
        return final**round_index
    return 1.0
