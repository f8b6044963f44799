"""Adapters learn: ten rounds of the roles of tinyshakespeare, from the small Llama of `scripts/pretrain_small.py`."""

from pathlib import Path

import pytest

from fedcomp.api import run
from fedcomp.model.hf.folder import SMALL
from tests.bare import DATA

pytest.importorskip("transformers", reason="pip install 'fedcomp[hf]'")

BASE = f"{SMALL}660e13be"
"""The folder that `python scripts/pretrain_small.py` makes, and that the experiment names."""

# Perplexities of ten rounds with seeds 0, 1 and 2, from a base of 4.803, on one machine:
#     fedit 4.599 4.613 4.600, ffa_lora 4.629 4.633 4.613, topk (10 % both ways, with error feedback) 4.610 4.633 4.608
# The widths are three standard deviations to either side. With fedit a server that moves by .3 of the step ends at
# 4.629, and two local steps instead of five at 4.648 (seed 0), which are outside.
GAINS = {"fedit": (0.175, 0.225), "ffa_lora": (0.145, 0.21), "topk": (0.145, 0.23)}
BITS_A_ROUND = {"fedit": 8 * 1_114_112, "ffa_lora": 8 * 589_824, "topk": 1_024_178}


@pytest.mark.slow
@pytest.mark.data("tinyshakespeare.txt", BASE)
@pytest.mark.parametrize("method", list(GAINS))
def test_ten_rounds_of_the_roles(method: str, tmp_path: Path) -> None:
    """Perplexity before and after, bits up, and how far the mean of products is from the product of means."""
    choices = f"experiment/fine_tuning/method@_global_={method}", "rounds=10", "eval_every=10", "record_traffic=false"
    given = "experiment=fine_tuning/shakespeare_lora", f"dataset.root={DATA}", f"output_root={tmp_path}"
    first, last = run([*given, *choices]).lines
    before, after = first["test/perplexity"], last["test/perplexity"]
    least, most = GAINS[method]
    assert 4.75 < before < 4.88  # 4.803 here, 4.830 of a base that another machine had trained
    assert least < before - after < most, (before, after)
    assert last["bits/uplink"] == pytest.approx(10 * BITS_A_ROUND[method], rel=0.01 if method == "topk" else 0)
    if method == "fedit":
        assert 0.1 < last["adapter/bias"] < 0.6  # .32 of the exact step
