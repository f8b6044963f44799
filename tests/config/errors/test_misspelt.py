"""A part of the user's own whose optional method is misspelt is refused; one that has other names of its own is not."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from omegaconf import OmegaConf

from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.client.sgd import Sgd
from fedcomp.compressor.dense import Dense
from fedcomp.config.errors.misspelt import ALGORITHM, CLIENT, CODEC, ESTIMATOR, check_spelling
from fedcomp.config.instantiate import build_compressor


def _part(names: dict[str, object], bases: tuple[type, ...] = (), annotations: dict[str, str] | None = None) -> object:
    """An object of a class with these names, which is not built by its constructor."""
    kind = type("Mine", bases, {**names, "__annotations__": annotations or {}, "__module__": "mine"})
    return object.__new__(kind)


def method(*_: object) -> None:
    """Any method."""


WRONG = [
    ({"weigthed_sum": method}, CODEC, "weighted_sum"),
    ({"check_dims": method}, CODEC, "check_dim"),
    ({"checkDim": method}, CODEC, "check_dim"),
    ({"check_eror_feedback": method}, CODEC, "check_error_feedback"),
    ({"expected_eror": method}, CODEC, "expected_error"),
    ({"probability": method, "sample": method}, CODEC, "sampled"),
    ({"check_weight": method}, ESTIMATOR, "check_weights"),
    ({"use_correlation": True}, ESTIMATOR, "uses_correlation"),
    ({"full_particpation": True}, ALGORITHM, "full_participation"),
    ({"learn": "centres"}, ALGORITHM, "learns"),
    ({"remember": property(method)}, ALGORITHM, "remembers"),
    ({"fixed_sample": True}, CLIENT, "fixed_samples"),
]


@pytest.mark.parametrize(("names", "abilities", "meant"), WRONG)
def test_a_misspelt_ability_is_refused(names, abilities, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"^Mine\.\w+ looks like {meant}, which is optional and would be missing"):
        check_spelling(_part(names), abilities)
    check_spelling(_part({f"_{name}": value for name, value in names.items()}), abilities)


def test_it_is_found_in_a_subclass_too_though_the_class_beneath_has_it() -> None:
    with pytest.raises(ValueError, match="looks like fixed_samples"):
        check_spelling(_part({"fixed_sample": True}, (Sgd,)), CLIENT)
    with pytest.raises(ValueError, match="looks like full_participation"):
        check_spelling(_part({}, (FedAvg,), {"full_participations": "bool"}), ALGORITHM)


@pytest.mark.parametrize(
    ("names", "abilities"),
    [
        ({"weighted_sum": method, "check_dim": method, "probability": method, "sampled": method}, CODEC),
        ({"sample": method}, CODEC),  # half of what `Sampling` is
        ({"probability": 0.5, "places": method, "check": method}, CODEC),
        ({"learn": method, "clients": method, "weights": "samples", "rounds": method}, ALGORITHM),
        ({"batch_size": 8, "steps": 3}, CLIENT),
    ],
)
def test_other_names_are_free(names, abilities) -> None:
    check_spelling(_part(names), abilities)


@dataclass(frozen=True)
class Slow(Dense):
    """A codec with a misspelt method."""

    def weighted_summ(self, payload, common, weight):
        raise AssertionError


def test_it_is_refused_where_the_part_is_built() -> None:
    node = OmegaConf.create({"_target_": f"{__name__}.Slow"})
    with pytest.raises(ValueError, match=r"^Slow\.weighted_summ looks like weighted_sum"):
        build_compressor(node)
