"""Clients of a cell share its uplink fairly; their downlinks and own limits are the same for all."""

from dataclasses import dataclass

from fedcomp.network.links.fixed import FixedLinks


@dataclass(frozen=True, kw_only=True)
class SharedLinks(FixedLinks):
    """`FixedLinks` with cells, whose capacity must be given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.links(self.cells or 1)  # raises where a cell has no capacity

    @property
    def shares(self) -> bool:
        return True
