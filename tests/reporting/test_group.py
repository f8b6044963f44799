"""Grouping over seeds, and names made of what differs."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedcomp.core.choices import choices
from fedcomp.records.reader import read_runs
from fedcomp.reporting.group import group, regroup
from fedcomp.reporting.labels import flatten, in_order, labels
from fedcomp.reporting.names import setting_text
from fedcomp.reporting.notes import left_out
from tests.looped import looped
from tests.records.synthetic_runs import MakeRun

TOPK, SIGN = "fedcomp.compressor.sparsifiers.topk.TopK", "fedcomp.compressor.quantisers.sign.Sign"
SIGN_PART, TOPK_PART = {"_target_": SIGN}, {"_target_": TOPK, "fraction": 0.03}
ONE_SIGN = {"compressor": SIGN_PART, "downlink": SIGN_PART}
ONE_TOPK = {"compressor": TOPK_PART, "downlink": SIGN_PART}
DENSE_PART = {"_target_": "fedcomp.compressor.dense.Dense"}
FEDAVG, FEDMRN = (
    {"algorithm": {"_target_": f"fedcomp.algorithm.{name}"}} for name in ("fedavg.FedAvg", "fedmrn.FedMRN")
)
RANDK = {"_target_": "fedcomp.compressor.sparsifiers.randk.RandK", "fraction": 0.03}
FADING = {"_target_": "fedcomp.compressor.feedback.ErrorFeedback", "decay": 0.95}
"""A node in the place of a feedback's name."""
DENSE_DOWN, SIGN_DOWN = {"downlink": DENSE_PART}, {"downlink": SIGN_PART}


def test_runs_that_differ_by_seed_are_one_group(make_run: MakeRun, tmp_path: Path) -> None:
    for seed in (10, 2, 0):
        config = {"device": f"cuda:{seed}", "dataset": {"root": f"/{seed}"}, "tracker": {"x": seed}}
        make_run("sign", seed, [0.1, 0.5], config=config)
    make_run("topk", 0, [0.1, 0.6])
    groups = group(read_runs([tmp_path]))
    assert [(one.label, [run.seed for run in one.runs]) for one in groups] == [("sign", [0, 2, 10]), ("topk", [0])]


def test_who_is_left_out_and_why(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.5])
    make_run("topk", 0, [0.1], state="failed", error="boom")
    make_run("randk", 0, [])
    twin = {"compressor": {"_target_": "fedcomp.compressor.quantisers.sign.Codec"}, "name": "x"}
    make_run("twin", 0, [0.1, 0.5], config=twin)
    runs = read_runs([tmp_path])
    groups = group(runs)
    assert [one.label for one in groups] == ["sign"]
    reasons = {run.folder.parent.name: reason for run, reason in left_out(runs, groups)}
    assert reasons == {
        "topk": "failed",
        "randk": "finished, but has no record: metrics.jsonl is missing or empty",
        "twin": f"repeats seed 0 of {groups[0].runs[0].folder}",
    }


def test_an_explicit_label_wins_and_a_repeated_one_says_what_differs(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("a", 0, [0.1, 0.5], config={"label": "ours"})
    make_run("b", 0, [0.1, 0.5], config={"label": "ours"})
    make_run("c", 0, [0.1, 0.5], config={"label": None})
    assert [one.label for one in group(read_runs([tmp_path]))] == ["c", "ours a", "ours b"]


@looped(
    "configs, names",
    [
        ([{"compressor": TOPK_PART}, {"compressor": SIGN_PART}], ["topk fraction=0.03", "sign"]),
        ([{"compressor": {"_target_": f"mine.{name}"}} for name in ("First", "Last")], ["mine.First", "mine.Last"]),
        ([{"a": {"_target_": TOPK, "fraction": f}, "lr": 0.1} for f in (0.03, 0.1)], ["fraction=0.03", "fraction=0.1"]),
        (
            [ONE_SIGN, ONE_TOPK, {"compressor": SIGN_PART, "downlink": TOPK_PART}],
            ["sign ↑↓", "topk ↑ fraction=0.03 sign ↓", "sign ↑ topk ↓ fraction=0.03"],
        ),
        ([ONE_SIGN, ONE_TOPK], ["sign", "topk fraction=0.03"]),
        ([{"a": {"lr": 1}, "b": {"lr": 2}}, {"a": {"lr": 3}, "b": {"lr": 4}}], ["a.lr=1 b.lr=2", "a.lr=3 b.lr=4"]),
        ([{"algorithm": {"_target_": "fedcomp.algorithm.fedpm.FedPM", "rate": 1}, "lr": 1}], ["fedpm"]),
        (
            [
                {"compressor": {"_target_": SIGN, "scale": "fixed", "feedback": f}, "downlink": {"feedback": g}}
                for f, g in (("none", "none"), ("error", "none"), ("error", "error"))
            ],
            ["feedback=none ↑↓", "feedback=error ↑ feedback=none ↓", "feedback=error ↑↓"],
        ),
        ([{"compressor": {"_target_": "fedcomp.compressor.mrc.codec.Codec"}}], ["codec"]),
        ([{"compressor": {"_target_": "mine.Codec"}}, {"compressor": {"_target_": "Codec"}}], ["mine", "Codec"]),
        ([{"lr": 1}], ["run"]),
        # A method that does not use a compressor has no word for it.
        ([FEDAVG | {"compressor": DENSE_PART}, FEDMRN], ["fedavg", "fedmrn"]),
        ([FEDAVG | {"compressor": TOPK_PART}, FEDMRN], ["fedavg topk fraction=0.03", "fedmrn"]),
        (
            [FEDAVG | {"compressor": SIGN_PART} | DENSE_DOWN, FEDMRN | DENSE_DOWN, FEDMRN],
            ["fedavg sign", "fedmrn", "fedmrn"],
        ),
        ([FEDMRN | SIGN_DOWN, FEDMRN | DENSE_DOWN], ["sign ↓", "dense ↓"]),
        # A feedback that is a node is a setting, as its name is.
        (
            [
                {"compressor": {"_target_": TOPK, "fraction": f, "feedback": g}}
                for f, g in ((0.03, "error"), (0.05, FADING))
            ],
            ["fraction=0.03 feedback=error", "fraction=0.05 feedback=ErrorFeedback decay=0.95"],
        ),
        (
            [
                {"compressor": {"_target_": "mine.Half", "feedback": "error"}},
                {"compressor": TOPK_PART | {"feedback": {"_target_": "mine.Late", "after": 3}}},
            ],
            ["mine", "topk fraction=0.03"],
        ),
        (
            [
                {"compressor": {"_target_": "mine.Half", "feedback": {"decay": 0.95} | FADING}},
                {"compressor": SIGN_PART},
            ],
            ["mine", "sign"],
        ),
        (
            [{"compressor": TOPK_PART | {"feedback": {"_target_": f"{file}.Late"}}} for file in ("one", "two")],
            ["feedback=one.Late", "feedback=two.Late"],
        ),
        # A part within another that not all have is named behind it.
        (
            [{"compressor": RANDK | {"estimator": own}} for own in ("weighted_sum", {"_target_": "mine.temporal.T"})],
            ["randk fraction=0.03", "randk fraction=0.03 temporal"],
        ),
    ],
)
def test_labels(configs: list[dict[str, Any]], names: list[str]) -> None:
    assert labels([flatten(config) for config in configs]) == names


def test_a_compressor_that_the_algorithm_does_not_use_is_in_no_name(make_run: MakeRun, tmp_path: Path) -> None:
    for name, part, unused in (("a", FEDMRN, ["compressor"]), ("b", FEDAVG, []), ("c", FEDAVG, None)):
        codec = DENSE_PART if part is FEDMRN else SIGN_PART | {"scale": name}
        folder = make_run(name, 0, [0.1, 0.5], config=part | {"compressor": codec, "downlink": DENSE_PART})
        if unused is not None:  # c is of an earlier version
            known = {"data": {}, "code": {}, "sessions": [], "since": 0, "unused": unused}
            (folder / "provenance.json").write_text(json.dumps(known))
    names = [one.label for one in group(read_runs([tmp_path]))]
    assert names == ["fedmrn", "sign scale=b fedavg", "sign scale=c fedavg"]


def _on(dataset: str, **rest: Any) -> dict[str, Any]:
    return {"dataset": {"_target_": f"fedcomp.dataset.{dataset}.load"}, "client": rest}


def test_what_methods_are_compared_on_is_no_part_of_their_names(make_run: MakeRun, tmp_path: Path) -> None:
    for dataset, lr in (("digits", 0.1), ("mnist", 0.2)):
        for method in ("sign", "topk"):
            make_run(method, 0, [0.1, 0.5], config=_on(dataset, lr=lr), folder=f"{dataset}-{method}")
    groups = group(read_runs([tmp_path]))
    wanted = [(dataset, method) for dataset in ("digits", "mnist") for method in ("sign", "topk")]
    assert [(one.place, one.label) for one in groups] == wanted, (
        "the learning rate, which goes with the dataset, is none"
    )


def test_one_method_on_many_settings_is_one_picture_named_by_the_settings(make_run: MakeRun, tmp_path: Path) -> None:
    for alpha in (0.1, 1.0, 10.0):
        partition = {"_target_": "fedcomp.partition.dirichlet.Dirichlet", "alpha": alpha}
        make_run("sign", 0, [0.1, 0.5], config={"partition": partition}, folder=f"{alpha}")
    found = [(one.setting, one.label) for one in group(read_runs([tmp_path]))]
    assert found == [((), "alpha=0.1"), ((), "alpha=1"), ((), "alpha=10")]


@pytest.mark.parametrize("methods", [("sign", "topk"), ("sign",)])
def test_a_network_has_the_name_of_its_preset(make_run: MakeRun, tmp_path: Path, methods: tuple[str, ...]) -> None:
    """Alone or as a setting, with the options that are not the preset's; changed rates make it the kind itself."""
    options = choices("network")
    networks = {
        "5g": options["5g"],
        "lte": options["lte"],
        "lte jitter=0.5": options["lte"] | {"jitter": 0.5},
        "lognormal": options["lte"] | {"rtt_s": 0.1},
        "cell_20": options["shared"] | {"capacity_bps": 2e7},
    }
    for number, network in enumerate(networks.values()):
        for method in methods:
            make_run(method, 0, [0.1, 0.5], config={"network": network}, folder=f"{method}-{number}")
    found = group(read_runs([tmp_path]))
    names = [setting_text(one.setting).removeprefix("network ") or one.label for one in found]
    assert sorted(set(names)) == sorted(networks)
    assert len(names) == len(networks) * len(methods)


def test_two_methods_of_one_class_have_the_names_of_their_choices(make_run: MakeRun, tmp_path: Path) -> None:
    """Also where each is alone among others in its setting."""
    for dataset, method in (("a", "marina"), ("b", "dasha"), ("c", "marina_p"), ("d", "m3")):
        data = {"dataset": {"_target_": f"mine.{dataset}.load"}}
        make_run("sign", 0, [0.1, 0.5], config=data | {"algorithm": choices("algorithm")[method]}, folder=method)
        make_run("sign", 0, [0.1, 0.5], config=data | FEDAVG, folder=dataset)
    assert {one.label for one in group(read_runs([tmp_path]))} == {"marina", "dasha", "marina_p", "m3", "fedavg"}


def test_parts_have_the_names_of_their_choices(make_run: MakeRun, tmp_path: Path) -> None:
    """Not those of the functions that make them, `classifier`, `own` and `network`, or of their files."""
    models = {"torchvision": {"name": "resnet18"}, "module": {"path": "mine.Net"}, "hf": {"path": "base"}}
    for name, own in models.items():
        for codec in ("rand_proj_spatial", "dense"):
            config = {"model": choices("model")[name] | own, "compressor": choices("compressor")[codec]}
            make_run(codec, 0, [0.1, 0.5], config=config, folder=f"{name}-{codec}")
    found = group(read_runs([tmp_path]))
    assert {dict(one.setting)["model"].split()[0] for one in found} == set(models)
    assert {one.label.split()[0] for one in found} == {"rand_proj_spatial", "dense"}


def test_a_setting_in_words() -> None:
    assert setting_text((("dataset", "mnist"), ("num_clients", "1"))) == "mnist · 1 client"
    assert setting_text((("num_clients", "10"), ("case", ""), ("network", "lte"))) == "10 clients · network lte"


def test_options_without_effect_and_how_a_run_happens_split_no_group(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.5], config={"wire": "counted", "chunk_size": 5}, folder="before")
    later = {"tf32": None, "figures": [{"name": "x", "y": "mse"}], "wire": "packed", "chunk_size": None}
    make_run("sign", 1, [0.1, 0.5], config=later, folder="after")
    (one,) = group(read_runs([tmp_path]))
    assert [run.seed for run in one.runs] == [0, 1]


def test_an_option_added_later_splits_no_seeds_of_one_hash(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("sign", 0, [0.1, 0.5], folder="0a")
    folder = make_run("sign", 1, [0.1, 0.5], config={"network": {"_target_": "none"}}, folder="0a")
    assert len(group(read_runs([tmp_path]))) == 2
    (folder.parent / "identity.json").write_text("{}")
    (one,) = group(read_runs([tmp_path]))
    assert [run.seed for run in one.runs] == [0, 1]


def test_numbers_in_names_are_sorted_as_numbers(make_run: MakeRun, tmp_path: Path) -> None:
    for clients in (100, 5, 20):
        for levels in (16, 2, 128):
            config = {"num_clients": clients, "compressor": {"_target_": TOPK, "levels": levels}}
            make_run("topk", 0, [0.1, 0.5], config=config, folder=f"{clients}-{levels}")
    names = [(one.place, one.label) for one in group(read_runs([tmp_path]))]
    assert names == [(f"{clients} clients", f"levels={n}") for clients in (5, 20, 100) for n in (2, 16, 128)]


def test_regrouped_names_leave_keys_out(make_run: MakeRun, tmp_path: Path) -> None:
    for fraction in (0.1, 0.2):
        for method in ("randk", "topk"):
            config = {"compressor": {"_target_": f"fedcomp.compressor.{method}.Codec", "fraction": fraction}}
            make_run(method, 0, [0.1, 0.5], config=config, folder=f"{method}{fraction}")
    groups = group(read_runs([tmp_path]))
    assert [one.label for one in groups] == [f"{m} fraction={f}" for m in ("randk", "topk") for f in (0.1, 0.2)]
    assert [one.label for one in regroup(groups, {"compressor.fraction"})] == ["randk", "randk", "topk", "topk"]


def test_methods_are_named_by_their_first_word() -> None:
    labels = ["dense", "topk fraction=0.1", "qsgd bits=2", "qsgd bits=4"]
    wanted = ["topk fraction=0.1", "qsgd bits=4", "dense", "qsgd bits=2"]
    assert list(in_order(labels, ["topk", "qsgd bits=4"])) == wanted
    commas = ["sign", "FedAvg, 32 bits", "top 3 %, error feedback, 16 bits"]
    assert list(in_order(commas, ["top 3 %", "error feedback", "16 bits", "FedAvg"])) == commas[::-1]
    assert in_order(labels, ["Ours"], {"topk": "Ours"})["topk fraction=0.1"] == "Ours"
    assert list(in_order(labels, ["qsgd"])) == ["qsgd bits=2", "qsgd bits=4", "dense", "topk fraction=0.1"]
    with pytest.raises(ValueError, match="qsgd bits=2 and qsgd bits=4 would both be Ours"):
        in_order(labels, (), {"qsgd": "Ours"})
