"""The bound omega of unbiased codecs: it holds, and vectors that reach it show that it is not too large."""

import pytest
import torch
from torch import Tensor

from fedcomp.compressor import Codec, Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.quantisers.fp4 import FP4
from fedcomp.compressor.quantisers.qsgd import QSGD
from fedcomp.compressor.quantisers.sign import Sign
from fedcomp.compressor.quantisers.stochastic_sign import StochasticSign
from fedcomp.compressor.quantisers.terngrad import TernGrad
from fedcomp.compressor.rotations.eden import Eden
from fedcomp.compressor.sparsifiers.permk import PermK
from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.compressor.sparsifiers.random_mask import RandomMask
from fedcomp.compressor.sparsifiers.topk import TopK
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.conformance import world
from tests.looped import looped

LAYERS = (36, 4)
SENDERS, DRAWS = 4, 500


def _spread() -> Tensor:
    """Equal entries: the worst case of signs of scale max is another one."""
    return torch.ones(40)


def _one_large() -> Tensor:
    """One entry beside small ones, in the ratio that TernGrad makes the most of in a block of 36: sqrt(m) + 1 to 1."""
    return torch.cat((torch.tensor([7.0]), torch.ones(35), torch.zeros(4)))


def _alone() -> Tensor:
    return torch.cat((torch.tensor([3.0]), torch.zeros(39)))


CASES = [
    ("dense", Dense(), 0.0, _spread(), 1.0),
    ("randk", RandK(k=4), 9.0, _one_large(), 1.0),
    ("random_mask", RandomMask(0.2), 4.0, _spread(), 1.0),
    ("permk", PermK(), 3.0, _one_large(), 1.0),
    ("terngrad", TernGrad(), (36**0.5 - 1) / 2, _one_large(), 1.0),
    ("stochastic_sign", StochasticSign(), 35.0, _alone(), 1.0),
    ("stochastic_sign-l2", StochasticSign("l2", granularity="model"), 39.0, _spread(), 1.0),
    ("fp4", FP4("stochastic"), 1 / 8 + 35 / 128**2, _one_large(), 0.0),
    ("qsgd-one", QSGD(1, "model"), 40**0.5, _spread(), 0.8),
    ("qsgd-few", QSGD(2, "model"), 40**0.5 / 2, _spread(), 0.6),
    ("qsgd-many", QSGD(20), 36 / 400, _one_large(), 0.0),
]
"""(name, codec, omega for LAYERS and SENDERS, a vector, the least share of omega that its error reaches)."""


@looped("name, codec, omega, x, reached", CASES)
def test_the_error_is_at_most_omega(name: str, codec: Codec, omega: float, x: Tensor, reached: float) -> None:
    assert codec.omega(LAYERS, SENDERS) == pytest.approx(omega)
    for given, least in ((x, reached), (torch.randn(40, generator=torch.Generator().manual_seed(1)), 0.0)):
        errors = []
        for draw in range(DRAWS // SENDERS):
            common = SharedKnowledge(Key(("omega", draw)), torch.arange(SENDERS), LAYERS)
            rows = given.expand(SENDERS, -1).contiguous()
            payload = codec.encode(rows, common, common.key.fold_in("sender"))
            errors.append((codec.decode(payload, common) - rows).square().sum(1) / given.square().sum())
        all_errors = torch.stack(errors).mean(1)  # PermK's senders depend on each other
        tolerance = 4 * float(all_errors.std()) / len(errors) ** 0.5 + 1e-6
        assert least * omega - tolerance <= float(all_errors.mean()) <= omega + tolerance


def test_none_for_biased_codecs_and_those_without_a_closed_form() -> None:
    for codec in (Sign(), TopK(), RandK(scale="none"), StochasticSign("mean_abs"), Eden(), TernGrad(2.5)):
        assert Compressor(codec).omega(LAYERS, SENDERS) is None, codec


def test_what_is_sent_dense_beside_the_message_does_not_count() -> None:
    spared = world.spared(Compressor(RandK(k=4)))
    assert spared.omega(tuple(tensor.size for tensor in world.BATCH_NORM_TENSORS), 3) == (20 + 12 + 3) / 4 - 1
