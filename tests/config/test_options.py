"""Words where switches and numbers belong: one line that names the option."""

import functools
import re

import pytest

from fedcomp.config.compose import compose
from fedcomp.config.instantiate import build, build_compressor, check_keys
from fedcomp.config.options import check_types
from tests.looped import looped
from tests.refused import one_line_error


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


class Half:
    """A part of one's own, with an option."""

    def __init__(self, share: float = 0.5) -> None:
        self.share = share


@looped(
    "group, default, folder",
    [("compressor", "dense", "compressor"), ("downlink", "dense", "compressor"), ("client", "sgd", "client")],
)
def test_a_node_in_the_place_of_a_choice_is_said_to_be_merged(group: str, default: str, folder: str) -> None:
    merged = f"; it is one of {group}={default}, with whose .*Half, .* write a YAML .* {folder}/tests.yaml, and choose"
    config = compose([f"{group}={{_target_:tests.config.test_options.Half}}"])
    with one_line_error(f"^there is no option '{group}.*{merged} {group}=tests$"):
        check_keys(config)
    config[group] = {"_target_": "fedcomp.client.sgd.Sgd", "lr": 0.1, "fixed_samples": 1}  # a property that it inherits
    with one_line_error(f"^there is no option '{group}.fixed_samples' [^;]*$"):
        check_keys(config)
    config[group] = {"_target_": "tests.config.test_options.Half", "shar": 0.1, "share": 0.5}  # as of a YAML
    with one_line_error(f"^there is no option '{group}.shar'; did you mean 'share'[^;]*$"):
        check_keys(config)
    config[group] = {"_target_": "tests.config.test_options.Half", "precision": 0.1, "lr": 0.1}
    with one_line_error(f"^there is no option '{group}.[^;]*$"):
        check_keys(config)
