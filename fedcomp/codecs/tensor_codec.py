"""A compressor for tensors of one's own: what it sends is bytes, and it keeps its memory from step to step.

A message names neither its codec nor its step: both ends know them, as in a simulation. Draws are named by seed, step
and sender, with the names of a run's uplink: the messages are those of a run with this seed, whose round is the step
and whose client is the sender. Shape legend: N senders in all, D entries of a tensor.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor

from fedcomp.compressor import Compressor, Memory
from fedcomp.compressor.feedback import NoFeedback
from fedcomp.config.instantiate import build_compressor
from fedcomp.config.options import check_part_keys
from fedcomp.config.schema import READ_BESIDE
from fedcomp.core.choices import choices
from fedcomp.core.cohort import Cohort, server
from fedcomp.core.pytree import flatten, map_tensors, restore
from fedcomp.core.validate import check_count, check_seed, is_whole
from fedcomp.random.keys import Key
from fedcomp.records.run_folder import VERSION
from fedcomp.wire import Payload, SharedKnowledge, WireError
from fedcomp.wire.packing import Layout, layout, pack, unpack


@dataclass(frozen=True)
class Message:
    """One message: its bytes, of which the last is filled up with zeros, and how many bits of them there are."""

    data: bytes
    bits: int


def compressor(name: str, **options: Any) -> Compressor:
    """The compressor of this name in the group `compressor`, with these options.

    Raises ValueError: no such codec or option, or a value that it refuses; one line says what is allowed.
    """
    known = choices("compressor")
    if name not in known:
        raise ValueError(f"there is no codec {name!r}; there are {', '.join(known)}")
    node = OmegaConf.create({**known[name], **options})
    check_part_keys("compressor", node, READ_BESIDE["compressor"])
    node.pop(VERSION, None)
    return build_compressor(node)


def codec(
    name: str, *, seed: int = 0, sender: int = 0, num_senders: int | None = None, **options: Any
) -> "TensorCodec":
    """`TensorCodec` of the compressor of this name, with its options: `codec("eden", bits=2)`."""
    return TensorCodec(compressor(name, **options), seed, sender, num_senders)


class TensorCodec:
    """One end of a compressed link: it encodes what it sends, and decodes what it is sent.

    Attributes:
        compressor: codec, feedback, estimator and predictor.
        seed: of the shared random draws; both ends need the same.
        sender: this end's number among the senders.
        num_senders: N, for compressors whose messages or memories depend on all senders; None: the others.
        step: of the next message to be encoded, which `encode` raises by one.
        name: of the messages, for their draws; another where an end sends several in a step.
    """

    def __init__(
        self,
        compressor: Compressor,
        seed: int = 0,
        sender: int = 0,
        num_senders: int | None = None,
        step: int = 0,
        name: str = "update",
    ) -> None:
        if compressor.predicts:
            raise ValueError("a predictor is a memory of both ends of a run: take predictor=none, and feedback=error")
        check_seed("seed", seed)
        check_count("num_senders", num_senders, meaning="N, or None", or_null=True)
        check_sender(sender, num_senders)
        self.compressor, self.seed, self.sender, self.num_senders = compressor, seed, sender, num_senders
        self.step, self.name = step, name
        self._dim = self._rows = 0  # of the memories: entries of a vector, senders
        self._sent: Memory | None = None
        self._received: Memory | None = None
        self._layouts: dict[tuple[Any, ...], Layout] = {}

    def encode(self, tensor: Tensor, layers: Sequence[int] | None = None) -> Message:
        """The message for a tensor, as float32; what it leaves out is remembered where feedback says so.

        Args:
            layers: sizes of the parameter tensors that lie in it one after another; None: it is one.
        Raises:
            ValueError: it is no tensor of real numbers, or empty; or what is remembered is of another size, or would
                not be finite.
        """
        wanted = "what is sent must be a tensor of one entry or more"
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{wanted}, but is a {type(tensor).__name__}")
        if not tensor.numel():
            raise ValueError(f"{wanted}, not of shape {tuple(tensor.shape)}")
        if tensor.is_complex():
            raise ValueError(f"what is sent must be real, and this tensor is {tensor.dtype}: send torch.view_as_real")
        x = tensor.detach().reshape(1, -1).to(torch.float32)
        if self._sent is None:
            self._sent, self._dim = self.compressor.init(1, x[0]), x.shape[1]
        if any(one.numel() for one in flatten(self._sent).values()):
            if x.shape[1] != self._dim:
                raise ValueError(
                    f"this codec remembers a tensor of {self._dim} entries, and this one has {x.shape[1]}: take a "
                    "codec for each tensor"
                )
            if not x.isfinite().all():
                raise ValueError("the tensor has a value that is not finite, which the codec's memory would keep")
        common = self._common([self.sender], x.shape[1], layers, self.step, x.device)
        here = server(x.device)
        memory = _on(x.device, self._sent)
        payload, self._sent = self.compressor.encode(x, memory, here, common, common.key.fold_in("sender"))
        payload.check_range()
        self.step += 1
        return Message(pack(payload, 0), int(payload.bits[0]))

    def decode(
        self,
        data: bytes,
        shape: Sequence[int],
        *,
        step: int,
        sender: int,
        layers: Sequence[int] | None = None,
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """The float32 tensor of this shape that the message of `sender` in `step` says.

        Raises:
            ValueError: shape, step, sender or layers cannot be.
            WireError: it is no bytes, or the message is cut, damaged, of another codec or of another shape.
        """
        common = self._common([sender], num_entries(shape), layers, step, torch.device(device))
        return self.compressor.decode(self._read([data], common), common)[0].reshape(*shape)

    def mean(
        self,
        messages: Mapping[int, bytes],
        shape: Sequence[int],
        *,
        step: int,
        weights: Mapping[int, float] | None = None,
        layers: Sequence[int] | None = None,
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """The weighted mean of the senders' tensors, decoded jointly where the estimator does so.

        Args:
            messages: a message for each sender's number. weights: they sum to 1; None: all alike.

        Raises:
            ValueError: `messages` are none; or a sender has no weight, or is none of N; or what is remembered is of
                another size, or of fewer senders; or as `decode`.
            WireError: as `decode`.
        """
        if not isinstance(messages, Mapping) or not messages:
            raise ValueError("messages must be the bytes of each sender by its number: {0: message.data, ...}")
        senders, where = sorted(messages), torch.device(device)
        each = _weights_of(senders, weights)
        common = self._common(senders, num_entries(shape), layers, step, where)
        cohort = Cohort.of(senders, torch.tensor(each)).to(where)
        payload = self._read([messages[sender] for sender in senders], common)
        if self._received is None:
            self._rows, self._dim = self.num_senders or senders[-1] + 1, common.dim
            self._received = self._receivers_memory(self._rows, torch.zeros(common.dim, device=where))
        if self._received.receiver.shape[1:].numel():
            if common.dim != self._dim:
                raise ValueError(
                    f"this codec remembers tensors of {self._dim} entries, and these have {common.dim}: take a codec "
                    "for each tensor"
                )
            if senders[-1] >= self._rows:
                raise ValueError(
                    f"this codec remembers {self._rows} senders, and here is sender {senders[-1]}: give num_senders"
                )
        memory = _on(where, self._received)
        estimate, self._received = self.compressor.estimate(payload, memory, cohort, common)
        return estimate.reshape(*shape)

    def length(self, layers: Sequence[int]) -> int | None:
        """Bytes of a message of tensors of these sizes; None: they depend on what it says."""
        common = self._common([self.sender], sum(layers), layers, 0, torch.device("cpu"))
        known = [None if one.ragged else one.coding.fixed_bits(one.num) for one in self._layout(common).values()]
        bits = [one for one in known if one is not None]
        return -(-sum(bits) // 8) if len(bits) == len(known) else None

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to go on with the same bits: the step and the memories of both ends."""
        return {
            "step": self.step,
            "dim": self._dim,
            "rows": self._rows,
            "sent": _tensors(self._sent),
            "received": _tensors(self._received),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave. Raises ValueError: it gave something else, or with another compressor."""
        lacking = {"step", "dim", "rows", "sent", "received"} - state.keys()
        if lacking:
            raise ValueError(
                f"this is no state of a codec, it lacks {', '.join(sorted(lacking))}: give its state_dict()"
            )
        dim, rows, sent, received = int(state["dim"]), int(state["rows"]), state["sent"], state["received"]
        if sent is not None:
            sent = restore(self.compressor.init(1, torch.zeros(dim)), dict(sent))
        if received is not None:
            empty = self._receivers_memory(rows, torch.zeros(dim))
            received = restore(empty, {**received, "sender": empty.sender})  # which had rows in older states
        self.step, self._dim, self._rows = int(state["step"]), dim, rows
        self._sent, self._received = sent, received

    def _receivers_memory(self, rows: int, like: Tensor) -> Memory:
        """Empty memories of a receiver of `rows` senders: it needs none of what these have not sent."""
        return replace(self.compressor, feedback=NoFeedback()).init(rows, like)

    def _read(self, messages: list[bytes], common: SharedKnowledge) -> Payload:
        if not all(isinstance(message, bytes | bytearray | memoryview) for message in messages):
            raise WireError("a message is read from its bytes: give message.data")
        return unpack(messages, self._layout(common), common.ids.device)

    def _layout(self, common: SharedKnowledge) -> Layout:
        """The layout of the messages, which does not depend on what they say: that of zeros."""
        size = (len(common.ids), common.layers, None if common.senders is None else len(common.senders))
        if size not in self._layouts:
            zeros = torch.zeros(len(common.ids), common.dim, device=common.ids.device)
            coder = self.compressor.codec
            self._layouts[size] = layout(coder.encode(zeros, common, common.key.fold_in("sender")))
        return self._layouts[size]

    def _common(
        self, senders: list[int], dim: int, layers: Sequence[int] | None, step: int, device: torch.device
    ) -> SharedKnowledge:
        for sender in senders:
            check_sender(sender, self.num_senders)
        check_count("step", step, least=0)
        if layers and (not all(map(is_whole, layers)) or min(layers) < 0 or sum(layers) != dim):
            raise ValueError(f"layers={list(layers)} must be sizes that add up to the tensor's {dim} entries")
        ids = torch.tensor(senders, dtype=torch.int64, device=device)
        everybody = None if self.num_senders is None else torch.arange(self.num_senders, device=device)
        return SharedKnowledge(run_key(self.seed, step, self.name), ids, tuple(layers or (dim,)), senders=everybody)


def check_sender(sender: object, num_senders: int | None) -> None:
    """Raise ValueError unless this is the number of a sender; of N of them if N is known."""
    most = math.inf if num_senders is None else num_senders - 1
    check_count("sender", sender, least=0, most=most, meaning="its number among the senders")


def num_entries(shape: Sequence[int]) -> int:
    """D of a tensor of this shape. Raises ValueError: it is none."""
    if not isinstance(shape, Sequence) or not all(is_whole(size) and size > 0 for size in shape):
        raise ValueError(f"shape={shape} must be sizes of 1 or more: give tensor.shape")
    return math.prod(shape)


def _weights_of(senders: Sequence[int], weights: Mapping[int, float] | None) -> list[float]:
    """Each sender's weight. Raises ValueError: one has none, or they do not sum to 1."""
    if weights is None:
        return [1 / len(senders)] * len(senders)
    lacking = [sender for sender in senders if sender not in weights]
    if lacking:
        raise ValueError(f"weights lack sender {lacking[0]}: give one for each message")
    each = [float(weights[sender]) for sender in senders]
    if not math.isclose(sum(each), 1, rel_tol=1e-3):
        raise ValueError(f"the weights of the messages sum to {sum(each):g}, and must to 1")
    return each


def run_key(seed: int, step: int, name: str) -> Key:
    """That of the message `name` in round `step` of a run with this seed (`Simulation.round`)."""
    return Key(("run", seed, "round", step, "message", name))


def _on(device: torch.device, memory: Memory) -> Memory:
    """The memory there; one that was loaded is on the host."""
    moved: Memory = map_tensors(lambda tensor: tensor.to(device), memory)
    return moved


def _tensors(memory: Memory | None) -> dict[str, Tensor] | None:
    return None if memory is None else {name: tensor.clone() for name, tensor in flatten(memory).items()}
