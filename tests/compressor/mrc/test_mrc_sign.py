"""Signs by minimal random coding as a compressor; the conformance suite has the rest."""

import torch

from fedcomp.compressor.mrc.mrc_sign import MRCSign
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge

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
