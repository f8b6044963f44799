"""Dense: rounding, clamping, and its check."""

import torch

from fedcomp.compressor.dense import Dense
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge


def test_half_precision_rounds_and_clamps() -> None:
    x = torch.tensor([[1.0, 1e6, -1e6, 1 + 2**-12]])
    known = SharedKnowledge(Key(), torch.arange(1), (4,))
    codec = Dense("float16")
    assert codec.decode(codec.encode(x, known, Key()), known).tolist() == [[1.0, 65504.0, -65504.0, 1.0]]
