"""Every codec against the suite. A new codec adds one line to CASES."""

from __future__ import annotations

import pytest

from fedcomp.compressor.dense import Dense
from fedcomp.compressor.drive import Drive
from fedcomp.compressor.eden import Eden
from fedcomp.compressor.sign import Sign
from fedcomp.compressor.topk import TopK
from tests.conformance.codec import CHECKS, CodecCase

CASES = [
    CodecCase("dense", Dense(), lambda layers: 32 * sum(layers), lossless=True),
    CodecCase("dense-fp16", Dense("float16"), lambda layers: 16 * sum(layers)),
    CodecCase("dense-bf16", Dense("bfloat16"), lambda layers: 16 * sum(layers)),
    CodecCase("sign", Sign(), lambda layers: sum(layers) + 32 * len(layers)),
    CodecCase("sign-model", Sign(granularity="model"), lambda layers: sum(layers) + 32),
    CodecCase("sign-fixed", Sign("fixed", 0.5), sum, keeps_zero=False),
    CodecCase("topk-index", TopK(0.2, "index"), lambda layers: _kept(layers) * (32 + (sum(layers) - 1).bit_length())),
    CodecCase("topk-bitmap", TopK(0.2, "bitmap"), lambda layers: 32 * _kept(layers) + sum(layers)),
    CodecCase("topk-rice", TopK(0.2, "rice"), None),
    CodecCase("topk-auto", TopK(0.2), None),
    # Over 40,000 draws the mean is off by 0.037 max |x| for drive-unbiased and eden-0.5, 0.024 for eden-1.5, 0.013 for
    # eden-2 and 0.005 with two rotations: `bias` is what 1000 draws show beside five standard errors.
    CodecCase("drive", Drive(), lambda layers: sum(layers) + 96),
    CodecCase("drive-unbiased", Drive("unbiased"), lambda layers: sum(layers) + 96, draws=1000, bias=0.01),
    CodecCase("drive-rotated-twice", Drive("unbiased", 2), lambda layers: sum(layers) + 96, draws=1000),
    CodecCase("eden-min-mse", Eden(3, "min_mse", seed="derived"), lambda layers: 3 * sum(layers) + 32),
    CodecCase("eden-2", Eden(2), lambda layers: 2 * sum(layers) + 96, draws=1000),
    CodecCase("eden-1.5", Eden(1.5), lambda layers: sum(layers) + round(0.5 * sum(layers)) + 96, draws=1000),
    CodecCase("eden-0.5", Eden(0.5), lambda layers: max(1, round(0.5 * sum(layers))) + 96, draws=1000),
]


def _kept(layers: tuple[int, ...]) -> int:
    return max(1, round(0.2 * sum(layers)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_codec(case: CodecCase, check) -> None:
    check(case)
