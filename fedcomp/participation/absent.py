"""Clients that were drawn for a round and are absent from it: those that a run between processes lost."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from fedcomp.core.cohort import Cohort
from fedcomp.core.fingerprint import fingerprint
from fedcomp.core.parse import parse_json
from fedcomp.core.validate import is_whole
from fedcomp.participation.contract import Participation
from fedcomp.random.keys import Key


@dataclass(frozen=True)
class WithoutAbsent(Participation):
    """Another rule's cohorts without those who are absent; the weights of the others are scaled to the same sum.

    Attributes:
        drawn: the rule. absent: {round: clients}; the first round is 0.
    """

    drawn: Participation
    absent: Mapping[int, Collection[int]]

    def check(self, num_clients: int) -> None:
        """As the rule's."""
        self.drawn.check(num_clients)

    def inclusion(self, num_clients: int, round_index: int = 0) -> Tensor:
        """[N] as the rule's: who will be absent is not known before."""
        return self.drawn.inclusion(num_clients, round_index)

    def sample(self, key: Key, importance: Tensor, round_index: int = 0) -> Cohort:
        """As `Participation.sample`."""
        return self.drawn.sample(key, importance, round_index).without(self.absent.get(round_index, ()))

    def metrics(self, num_clients: int, round_index: int) -> dict[str, float]:
        """As the rule's."""
        return self.drawn.metrics(num_clients, round_index)


class AbsentOfFile(WithoutAbsent):
    """`WithoutAbsent` of the `absent.json` that a run between processes left in its folder; `drawn`: its rule."""

    def __init__(self, drawn: Participation, path: str, contents: str | None = None) -> None:
        if not path:
            raise ValueError("participation.path is empty: give the absent.json of a run between processes")
        absent = read_absent(Path(path))
        if contents is not None and contents != fingerprint(path):
            raise ValueError(
                f"participation.contents={contents} is not the fingerprint of {path}: the file has changed; leave "
                "participation.contents out"
            )
        super().__init__(drawn, absent)

    def check(self, num_clients: int) -> None:
        """As the rule's; and the file's clients must be of this run."""
        super().check(num_clients)
        for index, clients in self.absent.items():
            if strange := [client for client in clients if client >= num_clients]:
                raise ValueError(
                    f"participation.path: client {strange[0]} was absent from round {index}, but num_clients="
                    f"{num_clients}: give the options of the run that wrote the file"
                )


def read_absent(path: Path) -> dict[int, tuple[int, ...]]:
    """{round: the clients that were left out}, of a run between processes; the first round is 0.

    Raises ValueError: the file cannot be read, or holds something else.
    """
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict) or not all(map(_is_row, content, content.values())):
        raise ValueError(f'{path} is no list of absent clients: it must be as {{"3": [0, 5]}}, by round')
    return {int(index): tuple(clients) for index, clients in content.items()}


def _is_row(index: str, clients: object) -> bool:
    return index.isdecimal() and isinstance(clients, list) and all(is_whole(one) and one >= 0 for one in clients)
