"""Grouping over seeds, and names made of what differs."""

from pathlib import Path
from typing import Any

import pytest

from fedcomp.report.group import flatten, group, labels, left_out
from fedcomp.report.runs import find

from .conftest import MakeRun

TOPK = "fedcomp.compressor.topk.TopK"
SIGN = "fedcomp.compressor.sign.Sign"


def test_runs_that_differ_by_seed_are_one_group(make_run: MakeRun, tmp_path: Path) -> None:
    for seed in (10, 2, 0):
        make_run(
            "sign",
            seed,
            [0.1, 0.5],
            config={"device": f"cuda:{seed}", "dataset": {"root": f"/{seed}"}, "tracker": {"x": seed}},
        )
    make_run("topk", 0, [0.1, 0.6])
    groups = group(find([tmp_path]))
    assert [(one.label, [run.seed for run in one.runs]) for one in groups] == [("sign", [0, 2, 10]), ("topk", [0])]


def test_who_is_left_out_and_why(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.5])
    make_run("topk", 0, [0.1], state="failed", error="boom")
    make_run("randk", 0, [])
    make_run("twin", 0, [0.1, 0.5], config={"compressor": {"_target_": "fedcomp.compressor.sign.Codec"}, "name": "x"})
    runs = find([tmp_path])
    groups = group(runs)
    assert [one.label for one in groups] == ["sign"]
    reasons = {run.folder.parent.name: reason for run, reason in left_out(runs, groups)}
    assert reasons == {"topk": "failed", "randk": "no evaluation", "twin": "repeats a seed"}


def test_an_explicit_label_wins_and_a_repeated_one_is_numbered(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("a", 0, [0.1, 0.5], config={"label": "ours"})
    make_run("b", 0, [0.1, 0.5], config={"label": "ours"})
    make_run("c", 0, [0.1, 0.5], config={"label": None})
    assert [one.label for one in group(find([tmp_path]))] == ["c", "ours #1", "ours #2"]


@pytest.mark.parametrize(
    ("configs", "names"),
    [
        (
            [{"compressor": {"_target_": TOPK, "fraction": 0.03}}, {"compressor": {"_target_": SIGN}}],
            ["topk fraction=0.03", "sign"],
        ),
        (
            [{"compressor": {"_target_": TOPK, "fraction": f}, "lr": 0.1} for f in (0.03, 0.1)],
            ["fraction=0.03", "fraction=0.1"],
        ),
        (
            [
                {"compressor": {"_target_": SIGN}, "downlink": {"_target_": SIGN}},
                {"compressor": {"_target_": TOPK, "fraction": 0.03}, "downlink": {"_target_": SIGN}},
                {"compressor": {"_target_": SIGN}, "downlink": {"_target_": TOPK, "fraction": 0.03}},
            ],
            ["sign ↑↓", "topk ↑ fraction=0.03 sign ↓", "sign ↑ topk ↓ fraction=0.03"],
        ),
        (
            [
                {"compressor": {"_target_": SIGN}, "downlink": {"_target_": SIGN}},
                {"compressor": {"_target_": TOPK, "fraction": 0.03}, "downlink": {"_target_": SIGN}},
            ],
            ["sign", "topk fraction=0.03"],
        ),
        ([{"a": {"lr": 1}, "b": {"lr": 2}}, {"a": {"lr": 3}, "b": {"lr": 4}}], ["a.lr=1 b.lr=2", "a.lr=3 b.lr=4"]),
        ([{"algorithm": {"_target_": "fedcomp.algorithm.fedpm.FedPM", "rate": 1}, "lr": 1}], ["fedpm"]),
        (
            [
                {"compressor": {"_target_": SIGN, "scale": "fixed", "feedback": f}, "downlink": {"feedback": g}}
                for f, g in (("none", "none"), ("error", "none"), ("error", "error"))
            ],
            ["feedback=none ↑↓", "feedback=error ↑ feedback=none ↓", "feedback=error ↑↓"],
        ),
        ([{"compressor": {"_target_": "fedcomp.compressor.mrc.codec.Codec"}}], ["mrc.codec"]),
        ([{"compressor": {"_target_": "mine.Codec"}}, {"compressor": {"_target_": "Codec"}}], ["mine", "Codec"]),
        ([{"lr": 1}], ["run"]),
    ],
)
def test_labels(configs: list[dict[str, Any]], names: list[str]) -> None:
    assert labels([flatten(config) for config in configs]) == names
