"""The models of clients that have one each, as a method hands them to an evaluation.

Shape legend: N clients in all, D parameters, C running statistics.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class PersonalModels:
    """A model for each client.

    Attributes:
        took_part: [N] bool, on the host, who has taken part so far: the others' models have learnt nothing.
        of_client: parameters [D] and statistics [C] of the client with this number.
    """

    took_part: Tensor
    of_client: Callable[[int], tuple[Tensor, Tensor]]
