"""Every codec against the suite. A new codec adds one line to CASES."""

from __future__ import annotations

import pytest

from fedcomp.compressor.dense import Dense
from fedcomp.compressor.induced import Induced
from fedcomp.compressor.randk import RandK
from fedcomp.compressor.sign import Sign
from fedcomp.compressor.topk import TopK
from fedcomp.compressor.wangni import Wangni
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
    CodecCase("randk", RandK(0.2), lambda layers: 32 * _kept(layers) + 64),
    CodecCase("randk-derived", RandK(0.2, seed="derived"), lambda layers: 32 * _kept(layers)),
    CodecCase("randk-unscaled", RandK(0.2, scale="none", seed="derived"), lambda layers: 32 * _kept(layers)),
    CodecCase(
        "randk-index",
        RandK(0.2, places="index"),
        lambda layers: _kept(layers) * (32 + (sum(layers) - 1).bit_length()),
    ),
    CodecCase("randk-rice", RandK(0.2, places="rice"), None),
    CodecCase("wangni", Wangni(0.2), None),
    CodecCase("wangni-sign", Wangni(0.2, values="sign"), None),
    CodecCase("induced", Induced(0.2, positions="index"), None),
    CodecCase("induced-restricted", Induced(0.2, restricted=True, seed="derived"), None),
]


def _kept(layers: tuple[int, ...]) -> int:
    return max(1, round(0.2 * sum(layers)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_codec(case: CodecCase, check) -> None:
    check(case)
