"""Signs by minimal random coding as a compressor; the conformance suite has the rest."""

from __future__ import annotations

import pytest
import torch

from fedcomp.compressor.mrc.mrc_sign import MRCSign
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.looped import looped

U = torch.randn(1, 20_000, generator=torch.Generator().manual_seed(0))
KNOWN = SharedKnowledge(Key(("signs",)), torch.arange(1), (5000, 15_000))


def test_decoded_signs_have_the_value_and_lean_to_the_update() -> None:
    agreement = []
    for num_candidates in (2, 16, 256):
        codec = MRCSign(num_candidates=num_candidates, value=0.25)
        payload = codec.encode(U, KNOWN, Key(("coin",)))
        decoded = codec.decode(payload, KNOWN)
        assert decoded.unique().tolist() == [-0.25, 0.25]
        assert payload.bits.tolist() == [79 * (num_candidates - 1).bit_length()]
        agreement.append(float((decoded * U.sign()).mean() / 0.25))
    # Standard error 0.007. More candidates follow the update better; all of them only in part.
    assert 0.0 < agreement[0] < agreement[1] - 0.02 < agreement[2] - 0.04
    assert agreement[2] < float((2 * torch.sigmoid(U.abs() / U.abs().mean()) - 1).mean())


@looped(
    "options, message",
    [
        ({"value": 0.0}, "value=0.0 must be a positive number"),
        ({"K": "max"}, "K=max must be one of mean_abs, block_max, capacity, or K itself"),
        ({"num_candidates": 0}, "num_candidates=0 must be a whole number, 1 or more"),
        ({"block": 0}, "block 0 must be a whole number of entries"),
        ({"candidates": "mine"}, "candidates=mine must be one of shared, per_client"),
        ({"bits": 9}, "bits=9 must be one of 8, 16, 32"),
    ],
)
def test_options_are_checked(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        MRCSign(**options)
