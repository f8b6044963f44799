"""Words where switches and numbers belong: one line that names the option."""

import functools
import re
from dataclasses import replace

import pytest

from fedcomp.algorithm.masks.frozen_weights import FrozenWeights
from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.config.instantiate import build, build_compressor
from fedcomp.config.options import check_types
from fedcomp.launcher.joblib import Joblib
from fedcomp.runtime.process_settings import pick_device
from tests.looped import looped
from tests.parts import Adam, ServerAdam, ServerSgd, Sgd


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("choice", "option"),
    [
        ("algorithm=fedmrn", "algorithm.sm"),
        ("algorithm=fedmrn", "algorithm.mask_batchnorm"),
        ("algorithm=fedpm", "algorithm.persist_optimizer"),
        ("algorithm=bicompfl_pr", "algorithm.optimise_prior"),
        ("compressor=masked_noise", "compressor.stochastic"),
        ("compressor=induced", "compressor.restricted"),
        ("compressor@downlink=masked_noise", "downlink.stochastic"),
        ("client=sgd", "client.replacement"),
        ("model=mlp", "model.bias"),
        ("dataset=mnist", "dataset.download"),
    ],
)
@pytest.mark.parametrize("word", ["off", "no", "1", "null"])
def test_a_switch_takes_true_or_false_alone(choice: str, option: str, word: str) -> None:
    group = option.split(".")[0]
    config = compose([choice, f"{option}={word}"])
    make = functools.partial(build_compressor, group=group) if group in ("compressor", "downlink") else build
    with pytest.raises(ValueError, match=rf"^{option}=\w+ must be true or false$"):
        make(config[group])
    check_types(compose([choice, f"{option}=true"])[group])


def test_a_number_is_no_switch() -> None:
    with pytest.raises(ValueError, match=r"^algorithm\.sm=1 must be true or false$"):
        check_types(compose(["algorithm=fedmrn", "algorithm.sm=1"]).algorithm)


@looped(
    "overrides, line",
    [
        (["compressor=topk", "compressor.match_bits=abc"], "compressor.match_bits=abc must be a positive number"),
        (["compressor=sign", "compressor.scale=fixed", "compressor.value=abc"], "compressor.value=abc must be"),
        (["compressor=topk", "compressor.fraction=abc"], r"compressor.fraction=abc must be a number in \(0, 1\]"),
        (["compressor=masked_noise", "compressor.mask=foo"], "compressor.mask=foo must be one of binary, signed"),
        (
            ["compressor@downlink=masked_noise", "downlink.seed_cost=foo"],
            "downlink.seed_cost=foo must be one of sent, derived",
        ),
        (["algorithm=fedmrn", "algorithm.seed_cost=foo"], "algorithm.seed_cost=foo must be one of sent, derived"),
    ],
)
def test_a_wrong_option_goes_by_its_own_name(overrides: list[str], line: str) -> None:
    config = compose(overrides)
    with pytest.raises(ValueError, match=f"^{line}"):
        build_simulation(config, pick_device("cpu"))


@looped(
    "option, line",
    [
        ("model.hidden=32", "model.hidden=32 must be a list of whole numbers, such as model.hidden=[32]"),
        ("model.hidden=abc", "model.hidden=abc must be a list of whole numbers, such as model.hidden=[32,16]"),
        ("model.hidden=[3.5]", "model.hidden=[3.5] must be a list of whole numbers, such as model.hidden=[32,16]"),
        (
            "client.lr='\"0.1\"'",
            "client.lr='\"0.1\"' is a string, but must be a number: write client.lr=0.1, without quotes",
        ),
        ("client.lr='0.1'", "client.lr='0.1' is a string, but must be a number: write client.lr=0.1, without quotes"),
        (
            "client.epochs='2'",
            "client.epochs='2' is a string, but must be a whole number, or null: write client.epochs=2, without quotes",
        ),
    ],
)
def test_lists_and_strings_are_named_as_such(option: str, line: str) -> None:
    group = option.split(".")[0]
    with pytest.raises(ValueError, match=f"^{re.escape(line)}$"):
        build(compose([option])[group])


def test_lists_that_are_lists_pass() -> None:
    for option in ("model.hidden=[]", "model.hidden=[8,4]"):
        build(compose([option]).model)


@looped(
    "word, now",
    [
        ("normalisation=compressed", "batchnorm_messages"),
        ("algorithm.downlink=model", "algorithm.sends"),
        ("downlink.seed=derived", "downlink.seed_cost"),
    ],
)
def test_an_old_name_is_refused_with_the_new_one(word: str, now: str) -> None:
    with pytest.raises(ValueError, match=rf"^there is no option '[a-z.]+': it is called {now} now$"):
        compose(["algorithm=fedscalar", "compressor@downlink=randk", word])


PARTS = [
    *((Adam(lr=0.1), "client", name) for name in ("beta1", "beta2", "eps", "weight_decay", "lr_final")),
    *((Sgd(lr=0.1), "client", name) for name in ("momentum", "weight_decay", "lr_final")),
    *((ServerAdam(), "server", name) for name in ("lr", "beta1", "beta2", "eps")),
    *((ServerSgd(), "server", name) for name in ("lr", "momentum")),
    *((Joblib(), "launcher", name) for name in ("n_jobs", "runs_per_gpu")),
]


@looped("part, group, name", PARTS)
@looped("value", ["abc", None, -2.5])
def test_an_option_that_is_no_number_is_named(part, group, name, value):
    with pytest.raises(ValueError, match=f"^{group}.{name}={value} must be"):
        replace(part, **{name: value})


def test_adams_eps_is_above_0_and_true_is_no_number():
    with pytest.raises(ValueError, match="client.eps=0"):
        Adam(lr=0.1, eps=0)
    with pytest.raises(ValueError, match="client.weight_decay=True"):
        Sgd(lr=0.1, weight_decay=True)


def test_first_probabilities_that_are_none():
    with pytest.raises(ValueError, match="algorithm.theta0=None must be"):
        FrozenWeights(theta0=None)  # type: ignore[arg-type]
