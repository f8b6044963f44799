"""Whether the parts of a run fit together: what an algorithm or a solver says it needs, against what was chosen."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from fedcomp.dataset.contract import Dataset
from fedcomp.model.contract import AnyModel

NETWORK = "network"
"""What models are that say nothing else by `kind`: they have gradients and outputs."""


def check_needs(algorithm: Any, config: DictConfig) -> None:
    """An algorithm may say by `needs` which class a part of it must be of, {"client": Svrg}: else it is another one.

    Raises:
        ValueError: the part is of another class.
    """
    for group, kind in getattr(algorithm, "needs", {}).items():
        if not isinstance(getattr(algorithm, group), kind):
            name, chosen = file_name(config.algorithm), file_name(config[group])
            wanted = kind.__module__.split(".")[-1]
            raise ValueError(
                f"algorithm={name} needs {group}={wanted}, but {group}={chosen} was chosen: leave {group} out, or take "
                "another algorithm"
            )


def check_learns(algorithm: Any, model: AnyModel, config: DictConfig) -> None:
    """An algorithm may say by `learns` which kind of model it is made for; without it, it trains networks.

    Raises:
        ValueError: the model is of another kind.
    """
    learns, kind = getattr(algorithm, "learns", NETWORK), getattr(model, "kind", NETWORK)
    if learns != kind:
        name, chosen = (file_name(config[group]) for group in ("algorithm", "model"))
        remedy = f"model={learns}" if learns != NETWORK else f"a network, or the algorithm that learns {chosen}"
        raise ValueError(
            f"algorithm={name} needs a model of kind {learns}, but model={chosen} is of kind {kind}: take {remedy}"
        )


def check_participation(algorithm: Any, participation: Any, config: DictConfig) -> None:
    """An algorithm may say by `full_participation` that it needs every client in every round.

    Raises:
        ValueError: some client may be left out.
    """
    needed = getattr(algorithm, "full_participation", False)
    if needed and any(float(participation.inclusion(config.num_clients, at).min()) < 1 for at in range(config.rounds)):
        name, chosen = (file_name(config[group]) for group in ("algorithm", "participation"))
        raise ValueError(
            f"algorithm={name} needs every client in every round, but participation={chosen} leaves some out: take "
            "participation=full"
        )


def check_samples(algorithm: Any, dataset: Dataset, config: DictConfig) -> None:
    """A local solver may say by `fixed_samples` that it needs its samples as they are.

    Raises:
        ValueError: the dataset changes them at random.
    """
    if dataset.augments and getattr(getattr(algorithm, "client", None), "fixed_samples", False):
        name, chosen = (file_name(config[group]) for group in ("client", "dataset"))
        raise ValueError(
            f"client={name} needs the same samples in every gradient, but dataset={chosen} changes them at random: "
            "take dataset.crop_padding=0 and dataset.flip=false, or client=sgd"
        )


def file_name(node: DictConfig) -> str:
    """The file of what a node builds, which is its config's name."""
    return str(node.get("_target_")).split(".")[-2:][0]
