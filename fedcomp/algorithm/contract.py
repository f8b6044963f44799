"""What a federated algorithm is, and what it sees of the world.

Shape legend: M clients of the cohort, N clients in all, D parameters, C running statistics.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from fedcomp.algorithm.models import Models
from fedcomp.algorithm.sent_messages import SentMessages
from fedcomp.client.solver import LocalSolver
from fedcomp.compressor import Compressor, Memory
from fedcomp.compressor.dense import Dense
from fedcomp.core.cohort import Cohort, Everyone, Receivers, server
from fedcomp.core.folders import name_of
from fedcomp.core.parameter_layout import ParameterTensor
from fedcomp.core.ranges import CheckedOptions
from fedcomp.evaluation.personal import PersonalModels
from fedcomp.model.contract import NETWORK
from fedcomp.random.keys import Key
from fedcomp.wire import Link, SharedKnowledge

Rows = TypeVar("Rows")
Weights = Literal["samples", "tokens", "uniform"]
"""What a client counts by: its number of samples, of the targets that they have, or as every other."""
Metrics = Mapping[str, Tensor]
"""Named values of a round: scalars, or [M] one a client (logged as their mean; one that is not finite ends the run)."""


@dataclass(frozen=True)
class Setup:
    """What an algorithm's first state depends on.

    Attributes:
        num_clients: N. tensors: the parameter tensors, which the D columns come from. task, num_outputs: the data's.
        key: for the draws of the first state; both ends know the run's seed, so nothing is sent for them.
    """

    num_clients: int
    tensors: tuple[ParameterTensor, ...]
    key: Key
    task: str = "classification"
    num_outputs: int = 1


class Clients(Protocol):
    """The clients with their data and the model they train.

    Attributes:
        num_clients: N. layers: sizes of the parameter tensors, sum D. tensors: the same with what they are.
    """

    @property
    def num_clients(self) -> int: ...
    @property
    def layers(self) -> tuple[int, ...]: ...
    @property
    def tensors(self) -> tuple[ParameterTensor, ...]: ...

    def map_clients(self, work: Callable[..., Rows], cohort: Cohort, *rows: Tensor) -> Rows:
        """`work(data, *rows)` for the cohort, in chunks of clients.

        Args:
            work: gets a chunk's `LocalData` and its part of every `rows` tensor; returns a tensor, dataclass or tuple
                of tensors with one row a client.
            rows: tensors with one row a client of the cohort [M, ...].
        Returns: the results of all chunks, in the order of the cohort.
        """

    def moved(self, change: Tensor) -> "Clients":
        """The same clients over adapted matrices W + change: [n], each in the model's order, row by row [o, i]."""

    def parallel_map(self, function: Callable[[Any], Any], pieces: Sequence[Any]) -> Iterable[Any]:
        """`map(function, pieces)` over the executor's threads, for functions that release the interpreter's lock."""


@dataclass
class AskedNumRounds:
    """Whether any round of a run has asked how many there are. One in which none has can be continued by more."""

    yes: bool = False


@dataclass(frozen=True)
class Context:
    """What a round works with.

    Attributes:
        round: 0 for the first. key: names every draw of this round. sent: the messages so far.
        link: carries and counts messages. clients: the executor. asked: notes that `num_rounds` was read.
    """

    round: int
    _num_rounds: int
    key: Key
    link: Link
    clients: Clients
    asked: AskedNumRounds = field(default_factory=AskedNumRounds)
    sent: SentMessages = field(default_factory=SentMessages)

    @property
    def num_rounds(self) -> int:
        """Of the whole run. A method that reads it cannot go on with more rounds when it is finished."""
        self.asked.yes = True
        return self._num_rounds

    @property
    def progress(self) -> Iterable[int]:
        """(round, num_rounds), as schedules take it, read one after the other."""
        return _Progress(self)

    def common(self, name: str, cohort: Cohort, side_information: Tensor | None = None) -> SharedKnowledge:
        """What sender and receivers know about the message called `name` before it is sent."""
        return SharedKnowledge(self.key.fold_in(name), cohort.ids, self.clients.layers, side_information)

    def sender_key(self, name: str) -> Key:
        """Randomness for the message called `name` that only its sender knows."""
        return self.key.fold_in(name, "sender")

    def send_up(
        self, name: str, uplink: Compressor, x: Tensor, memory: Memory, cohort: Cohort
    ) -> tuple[Tensor, Memory]:
        """The cohort sends x [M, D] in the message called `name`; the server's weighted sum [D], and the memories."""
        found = uplink.send_up(x, memory, cohort, self.link, self.common(name, cohort), self.sender_key(name))
        return self.sent.noted(name, memory, found)

    def send_down(
        self, name: str, downlink: Compressor, x: Tensor, memory: Memory, receivers: Receivers
    ) -> tuple[Tensor, Memory]:
        """The server sends x [D] in the message called `name` to `receivers`; what each decodes [D], and its memory."""
        sender = self.server(x)
        common, sender_key = self.common(name, sender), self.sender_key(name)
        found = downlink.send_down(x, memory, sender, receivers, self.link, common, sender_key)
        return self.sent.noted(name, memory, found)

    def send_dense(self, name: str, x: Tensor, receivers: Receivers, paper_bits: int | None = None) -> Tensor:
        """The server sends x [D] uncompressed; as received. No entries, no message. `paper_bits` as in `Payload`."""
        if not x.shape[0]:
            return x
        codec, common = Dense(), replace(self.common(name, self.server(x)), layers=(x.shape[0],))
        payload = replace(codec.encode(x[None], common, self.sender_key(name)), paper_bits=paper_bits)
        return codec.decode(self.link.broadcast(payload, receivers), common)[0]

    def gather_dense(self, name: str, x: Tensor, cohort: Cohort, paper_bits: int | None = None) -> Tensor:
        """The cohort sends x [M, D] uncompressed; the server's mean [D], by weights that are made to sum to 1."""
        if not x.shape[1]:
            return x.new_zeros(0)
        codec, common = Dense(), replace(self.common(name, cohort), layers=(x.shape[1],))
        payload = replace(codec.encode(x, common, self.sender_key(name)), paper_bits=paper_bits)
        received = codec.decode(self.link.up(payload), common)
        return torch.mv(received.t(), cohort.weight / cohort.weight.sum())

    def send_stats(self, stats: Tensor, receivers: Receivers) -> Tensor:
        """The server sends running statistics [C], which no paper counts; the ledger does."""
        return self.send_dense("stats", stats, receivers, paper_bits=0)

    def gather_stats(self, stats: Tensor, cohort: Cohort) -> Tensor:
        """The cohort sends running statistics [M, C]; the server's mean [C]. `train_cohort` does it."""
        return self.gather_dense("stats", stats, cohort, paper_bits=0)

    def send_model(self, theta: Tensor, stats: Tensor, receivers: Receivers) -> tuple[Tensor, Tensor]:
        """The server sends its model, theta [D] and statistics [C], uncompressed; both as received."""
        return self.send_dense("model", theta, receivers), self.send_stats(stats, receivers)

    @property
    def everyone(self) -> Everyone:
        """All N clients as receivers of a broadcast; the cohort itself is the other usual one."""
        return Everyone(self.clients.num_clients)

    def server(self, like: Tensor) -> Cohort:
        """The server as sender, on the device of `like`."""
        return server(like.device)


@dataclass(frozen=True)
class _Progress:
    ctx: Context

    def __iter__(self) -> Iterator[int]:
        yield self.ctx.round
        yield self.ctx.num_rounds


class Algorithm(CheckedOptions, ABC):
    """A method: a frozen dataclass of options. Nothing persists on it; state goes in and comes out.

    `init` and `round` are the method. What follows them says what it needs of a run, and has a default that fits most
    methods: a class that differs overrides it by a field, a class attribute or a property. A field `client` is its
    local solver; fields `uplink` and `downlink` are its compressors.
    """

    prefix = "algorithm."

    @abstractmethod
    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> Any:
        """First state, from the model's first parameters [D] and statistics [C]; tensors follow theta's device.

        Raises ValueError: the options do not fit such a model or so many clients.
        """

    @abstractmethod
    def round(self, state: Any, cohort: Cohort, ctx: Context) -> tuple[Any, Metrics]:
        """One round with a cohort of at least one client; must give `train/loss` [M] if it trains."""

    def evaluation_models(self, state: Any, key: Key) -> Mapping[str, Models]:
        """The models to evaluate, by the prefix of their metrics; "test" is the main one.

        The default is one model: the state's `theta` [D] with its `stats` [C].
        """
        try:
            theta, stats = state.theta, state.stats
        except AttributeError:
            raise ValueError(
                f"the state of {type(self).__name__} has no theta and stats that are the model to test: name its "
                "fields so, or override evaluation_models"
            ) from None
        return {"test": Models(theta[None], stats[None])}

    @property
    def config_name(self) -> str:
        """The name by which it is chosen, for errors: that of its file, unless several choices have one class."""
        return name_of(self)

    personalised: ClassVar[bool] = False
    """Whether every client has a model of its own, which its own samples judge, and there is no common one."""

    def personal_models(self, state: Any) -> PersonalModels:
        """The clients' models, of a method that is `personalised`."""
        raise TypeError(f"{type(self).__name__} has one model for all clients")

    @property
    def weights(self) -> str:
        """A client's weight in `cohort.weight`, one of `Weights`: its number of samples or of their targets, or 1."""
        return "samples"

    @property
    def full_participation(self) -> bool:
        """Whether every client must take part in every round."""
        return False

    @property
    def several_uplinks(self) -> bool:
        """Whether clients send, get an answer and send again within a round; then a network cannot have a deadline."""
        return False

    @property
    def normalises_weights(self) -> bool:
        """Whether halving all weights changes nothing; a network's `deadline_weights` can then be renormalise alone."""
        return False

    @property
    def told_weights(self) -> str:
        """Whose weights the clients compute with: "none", "own" or "all".

        Unless `weights="uniform"` the numbers that they follow from are sent and counted once, before the first round.
        """
        return "none"

    @property
    def client_models(self) -> Mapping[str, Sequence[str]]:
        """{evaluation model that the server cannot compute: fields of the state, [N, ...], whose rows clients have}."""
        return {}

    @property
    def servers_metrics(self) -> tuple[str, ...]:
        """Names of its metrics, of any shape, that follow from what the server holds: between processes it has them."""
        return ()

    @property
    def remembers(self) -> bool:
        """Whether the compressors' memories are kept from round to round."""
        return True

    @property
    def predicts(self) -> bool:
        """Whether it takes compressors with a predictor, and tells them the mean (`Compressor.observe`)."""
        return False

    @property
    def exact_losses(self) -> bool:
        """Whether it takes differences of nearly equal losses, so that products of low precision are refused."""
        return False

    @property
    def learns(self) -> str:
        """The `kind` of the model that it learns: a network, or that of a `TaskModel`."""
        return NETWORK

    @property
    def needs(self) -> Mapping[str, type]:
        """The class that a part must be of, such as {"client": Svrg}."""
        return {}

    @property
    def batch_size(self) -> int | None:
        """Samples of a client that it processes at once; None: its clients load none."""
        return self.solver.most_samples if self.solver else None

    @property
    def when_slow(self) -> str:
        """What a run says beside an accuracy near chance, to end a line: why it is slow, and the option to change."""
        return ""

    def notes(self, tensors: tuple[ParameterTensor, ...]) -> Sequence[str]:
        """Lines that the user is told before the first round, of what the options come to with this model."""
        return ()

    def remarks(self, last: Mapping[str, float]) -> Sequence[str]:
        """Lines that the user is told after the last round, of the metrics that were recorded of it."""
        return ()

    def check_cohort(self, size: int | None) -> None:
        """Raise ValueError, before the first round, if it cannot work with `size` clients a round (None: it varies)."""
        return

    @property
    def solver(self) -> LocalSolver | None:
        """Its field `client`; None: it has no local solver."""
        return vars(self).get("client")

    @property
    def compressors(self) -> dict[str, Compressor]:
        """Those of its fields `uplink` and `downlink` that are compressors."""
        parts = {name: vars(self).get(name) for name in ("uplink", "downlink")}
        return {name: part for name, part in parts.items() if isinstance(part, Compressor)}
