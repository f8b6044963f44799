"""The networks of a command line: `network=lte,5g network.rtt_s=0.01,0.1` are four."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fedcomp.config.compose import compose
from fedcomp.config.instantiate import build, check_keys, check_kind
from fedcomp.config.overrides import each_value
from fedcomp.config.schema import with_contents
from fedcomp.network.links.contract import Network


@dataclass(frozen=True)
class NamedNetwork:
    """One network.

    Attributes:
        words: the overrides that chose it. network: what it is. node: its part of a config.
    """

    words: tuple[str, ...]
    network: Network
    node: dict[str, Any]

    @property
    def shown(self) -> dict[str, Any]:
        """The part as a table names it: the choice, which may be a preset, and the options that were given."""
        given = {key.removeprefix("network."): value for key, _, value in (word.partition("=") for word in self.words)}
        return {"_target_": given.pop("network"), **given}


def networks(words: Sequence[str], config_dir: Path | None = None) -> list[NamedNetwork]:
    """Every combination of the values, as in a grid, of `network=` and `network.<option>=`.

    Args:
        config_dir: of networks of one's own.
    Raises:
        ValueError: an unknown network or option, a wrong value, a deadline, or no network.
    """
    if not any(word.startswith("network=") for word in words):
        raise ValueError("no network: give network=<name>, such as network=lte; fedcomp --help network lists them")
    return [_one(tuple(chosen), config_dir) for chosen in itertools.product(*map(each_value, words))]


def _one(words: tuple[str, ...], config_dir: Path | None) -> NamedNetwork:
    config = compose(words, config_dir)
    check_keys(config)
    network = build(config.network)
    if network is None:
        raise ValueError("network=none has no clock: give another network; fedcomp --help network lists them")
    check_kind(config.network, network, Network)
    if network.deadline is not None:
        raise ValueError(
            f"network.deadline={network.deadline} changes who learns: a replay cannot say what a run under it would do"
        )
    node = OmegaConf.to_container(config.network, resolve=True)
    assert isinstance(node, dict)
    return NamedNetwork(words, network, with_contents({str(key): value for key, value in node.items()}))
