"""Where the randomness that both ends of a message share comes from: a seed in the message, or the message's name."""

from typing import Literal

import torch
from torch import Tensor

from fedcomp.random.keys import Key
from fedcomp.random.philox import MASK
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Unsigned

SeedCost = Literal["sent", "derived"]
"""sent: 64 bits in every message, drawn by its sender; derived: from the run's seed, the round and the sender's number,
which both ends know, and so for nothing."""


def seed_field(choice: str, common: SharedKnowledge, sender_key: Key) -> dict[str, Field]:
    """The field that carries the seed, to stand in front of a message's others; none if it is derived."""
    return {"seed": Field(sender_key.fold_in("seed").bits(common.ids, 2), Unsigned(32))} if choice == "sent" else {}


def seed_layout(choice: str) -> dict[str, int]:
    """Name and number of entries of that field, for `Payload.expect`."""
    return {"seed": 2} if choice == "sent" else {}


def shared_source(payload: Payload, common: SharedKnowledge) -> tuple[Key, Tensor]:
    """(key, [M] ids) for `key.bits(ids, n)` and the like: what names the draws that both ends make."""
    if "seed" in payload.fields:
        return Key(("seed",)), seed_number(payload.fields["seed"].data)
    if common.seed is not None:
        return Key(("seed",)), common.seed
    return common.key, common.ids


def seed_number(words: Tensor) -> Tensor:
    """[M] int64 seeds from their two words of 32 bits [M, 2]."""
    return (words[:, 0] << 32) | words[:, 1]


def seed_words(number: Tensor) -> Tensor:
    """[M, 2] int64: the words of 32 bits of the seeds [M]; undoes `seed_number`."""
    return torch.stack((number >> 32, number), 1) & MASK
