"""What the search for the fastest forms (`simulation/autotune`) needs of a model: of each convolution, and of several
clients at once.

Shape legend: M clients at once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

FORMS = ("grouped", "looped", "unfolded", "streamed")
"""What a convolution may be computed as; `batched/convolution.py` says what each is. The first is the default, and on
a CPU it leaves small networks to their compiled blocks (`batched/backward/compiled_network.py`)."""

IN_BATCH, VMAP = "folded", "vmap"
"""How several clients go through one network: in one batch over a frozen network with adapters, or by
`torch.func.vmap`."""


@dataclass(frozen=True)
class Workload:
    """The size of one step: M clients at once, samples of each, shape of a sample, and where it runs."""

    clients: int
    batch: int
    shape: tuple[int, ...]
    device: torch.device


@dataclass(frozen=True)
class TunableOperation:
    """One operation on inputs of its own size.

    Attributes:
        about: plain values, all that the time of a candidate depends on besides the device.
        candidates: forms that are worth measuring there, the default first; a single one leaves no choice.
        run: computes the operation forwards and backwards in one of these forms: the output and all gradients.
        tolerance: what two of them may differ by, as a share of the norm. exact: the same in float64.
    """

    about: dict[str, Any]
    candidates: tuple[str, ...]
    run: Callable[[str], tuple[Tensor, ...]]
    tolerance: float
    exact: Callable[[], tuple[Tensor, ...]] | None = None


@runtime_checkable
class TunableModel(Protocol):
    """A model whose operations (convolutions) can each be computed in several forms."""

    @property
    def conv_algorithms(self) -> tuple[str, ...]:
        """The form of each operation, in order."""

    def set_conv_algorithms(self, forms: Sequence[str]) -> None:
        """Compute the operations in these of `FORMS`, one for each."""

    def tunable_operations(self, size: Workload) -> Iterator[TunableOperation]:
        """The operations in order, each with inputs that the forms in use give it."""

    def step(self, size: Workload) -> Callable[[], object]:
        """A function that computes one gradient of all M clients."""

    def tuning_key(self, size: Workload) -> dict[str, Any]:
        """Plain values, all that the time of `step` depends on besides forms and device."""


@runtime_checkable
class ClientForms(Protocol):
    """A model of which several clients can be computed in more than one way; a single client has one.

    Attributes:
        client_form: the way in use, of `client_forms`.
    """

    client_form: str

    @property
    def client_forms(self) -> tuple[str, ...]:
        """`IN_BATCH` and `VMAP`, as far as the network allows them; the default first."""
