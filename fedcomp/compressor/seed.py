"""Where the randomness that both ends of a message share comes from: a seed in the message, or the message's name."""

from __future__ import annotations

from torch import Tensor

from fedcomp.keys import Key
from fedcomp.wire import Common, Field, Payload
from fedcomp.wire.coding import Unsigned

SEEDS = ("sent", "derived")
"""sent: 64 bits in every message, drawn by its sender; derived: from the run's seed, the round and the sender's number,
which both ends know, and so for nothing."""


def seed_field(choice: str, common: Common, coin: Key) -> dict[str, Field]:
    """The field that carries the seed, to stand in front of a message's others; none if it is derived."""
    return {"seed": Field(coin.fold("seed").words(common.ids, 2), Unsigned(32))} if choice == "sent" else {}


def seed_layout(choice: str) -> dict[str, int]:
    """Name and number of entries of that field, for `Payload.expect`."""
    return {"seed": 2} if choice == "sent" else {}


def shared_source(payload: Payload, common: Common) -> tuple[Key, Tensor]:
    """(key, [M] numbers) for `key.words(numbers, n)` and the like: what names the draws that both ends make."""
    if "seed" not in payload.fields:
        return common.key, common.ids
    words = payload.fields["seed"].data
    return Key(("seed",)), (words[:, 0] << 32) | words[:, 1]
