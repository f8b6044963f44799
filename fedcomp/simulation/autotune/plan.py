"""How a run computes its clients, which it keeps: forms round differently, and a resumed run computes as before."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fedcomp.model.tunable import ClientForms, TunableModel
from fedcomp.records.atomic_write import write_atomically
from fedcomp.simulation.simulation import Simulation

FILE = "plan.json"
GAIN = 0.95
"""A candidate is preferred to the first one if it needs at most this share of its time."""


@dataclass(frozen=True)
class Plan:
    """The chosen algorithms.

    Attributes:
        forms: of each convolution, in order; empty: all are grouped. chunk_size: clients at once.
        client_form: of several clients, where the model has `ClientForms`; "": its default.
    """

    forms: tuple[str, ...]
    chunk_size: int
    client_form: str = ""

    def applied_to(self, simulation: Simulation) -> Simulation:
        """The simulation with this plan. Its model, a `TunableModel` or one of `ClientForms`, is changed in place."""
        if self.forms:
            assert isinstance(simulation.model, TunableModel)
            simulation.model.set_conv_algorithms(self.forms)
        if self.client_form:
            assert isinstance(simulation.model, ClientForms)
            simulation.model.client_form = self.client_form
        return replace(simulation, chunk_size=self.chunk_size)

    def __str__(self) -> str:
        forms = f", convolutions {', '.join(self.forms)}" if self.forms else ""
        clients = f", clients {self.client_form}" if self.client_form and self.chunk_size > 1 else ""
        return f"plan: chunks of {self.chunk_size}{forms}{clients}"

    def write(self, path: Path) -> None:
        """Keep it for those who resume the run."""
        write_atomically(path, json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, path: Path) -> "Plan":
        """A plan that was kept."""
        content = json.loads(path.read_text())
        return cls(tuple(content["forms"]), int(content["chunk_size"]), content.get("client_form", ""))
