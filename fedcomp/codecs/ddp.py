"""Communication hooks for torch's DistributedDataParallel (DDP): gradients as the messages of any codec.

    state = HookState(model, compressor("topk", fraction=0.01, feedback="error"))
    ddp_model.register_comm_hook(state, all_gather_hook)

A hook gets a bucket of gradients of this process and returns their mean over all processes. DDP fills buckets from the
last layer on, and fills them anew after the first step: what is remembered is kept by parameter. DDP reads the
annotations of a hook, so this file does without `from __future__ import annotations`.
Shape legend: W processes, D entries of a bucket, in the order of the model's parameters.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future

from fedcomp.codecs.tensor_codec import TensorCodec, run_key
from fedcomp.compressor import Compressor
from fedcomp.core.validate import check_count, check_interval


@dataclass
class Count:
    """What this process has sent.

    Attributes:
        bits: of its messages.
        carried: bytes that it gave to collectives: messages filled up to the longest, and their lengths.
    """

    bits: int = 0
    carried: int = 0


class HookState:
    """What a hook of one model keeps from step to step.

    Attributes:
        compressor: of the messages of `all_gather_hook`. fraction: of the entries that `shared_randk_hook` sends.
        rank: of `powersgd_hook`.
        lr: None: gradients are sent, and the optimizer does the rest. A rate: the step -lr g is sent, as a client of a
            simulation does, and what the hook returns is for `torch.optim.SGD(lr=1)`.
        step: number of the next step. count: what this process has sent.
        tensors: memories, by what and of which parameter they are, such as `error.3`.
    """

    def __init__(
        self,
        model: nn.Module,
        compressor: Compressor | None = None,
        *,
        fraction: float = 0.1,
        rank: int = 2,
        seed: int = 0,
        lr: float | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        check_interval("fraction", fraction, "(0, 1]", "the share of entries sent")
        check_count("rank", rank)
        self.compressor, self.fraction, self.rank, self.seed, self.lr = compressor, fraction, rank, seed, lr
        self.group = group or dist.group.WORLD
        self.step, self.count = 0, Count()
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.numbers: dict[Tensor, int] = {parameter: number for number, parameter in enumerate(self.parameters)}
        self.codecs: dict[tuple[int, ...], TensorCodec] = {}
        self.tensors: dict[str, Tensor] = {}

    @property
    def size(self) -> int:
        """W."""
        return dist.get_world_size(self.group)

    def codec(self, numbers: tuple[int, ...]) -> TensorCodec:
        """That of a bucket with these parameters; after DDP changed its buckets, with the memories of the last ones.

        DDP changes them after the first step of a process, and so back and forth where a process goes on from a state.
        """
        if not isinstance(self.compressor, Compressor):
            raise ValueError('all_gather_hook needs a compressor: HookState(model, fc.compressor("topk"))')
        if numbers not in self.codecs or self.codecs[numbers].step != self.step:
            name = "update" if len(numbers) == len(self.parameters) else f"update of {numbers[0]}"
            made = TensorCodec(self.compressor, self.seed, dist.get_rank(self.group), self.size, self.step, name)
            if self.step:
                made.load_state_dict(self._regrouped(numbers))
            self.codecs[numbers] = made
        return self.codecs[numbers]

    def _regrouped(self, numbers: tuple[int, ...]) -> dict[str, Any]:
        """The state of a codec of these parameters, from those of the former buckets, of which the last count."""
        by_step = sorted(self.codecs.items(), key=lambda one: one[1].step)
        states = {old: codec.state_dict() for old, codec in by_step}
        first = next(iter(states.values()))
        made = {**first, "step": self.step, "dim": sum(self.parameters[number].numel() for number in numbers)}
        for end in ("sent", "received"):
            if first[end] is not None:
                pieces = {name: self._pieces(states, end, name) for name in first[end]}
                made[end] = {name: torch.cat([of[number] for number in numbers], 1) for name, of in pieces.items()}
        return made

    def _pieces(self, states: Mapping[tuple[int, ...], Mapping[str, Any]], end: str, name: str) -> dict[int, Tensor]:
        """{number: its columns} of a memory whose rows are vectors, or have no entries."""
        found: dict[int, Tensor] = {}
        for numbers, state in states.items():
            rows = state[end][name]
            sizes = [self.parameters[number].numel() if rows.shape[1] else 0 for number in numbers]
            found |= dict(zip(numbers, rows.split(sizes, 1), strict=True))
        return found

    def error(self, number: int, like: Tensor) -> Tensor:
        """What parameter `number` has not sent so far, flat."""
        return self.tensors.setdefault(f"error.{number}", like.new_zeros(like.numel()))

    def ends_step(self, bucket: dist.GradBucket) -> None:
        """Count a step with its last bucket."""
        self.step += bucket.is_last()

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to go on. Each process saves its own.

        With the same bits where DDP has one bucket; with several, a process makes its first step in one all the same.
        """
        codecs = {numbers: codec.state_dict() for numbers, codec in self.codecs.items()}
        tensors = {name: tensor.clone() for name, tensor in self.tensors.items()}
        return {"step": self.step, "count": asdict(self.count), "codecs": codecs, "tensors": tensors}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave in the process of this rank."""
        self.step, self.count, self.codecs = 0, Count(**state["count"]), {}
        self.tensors = {name: tensor.clone() for name, tensor in state["tensors"].items()}
        for numbers, saved in state["codecs"].items():
            self.codec(numbers).load_state_dict(saved)
        self.step = state["step"]


class _Bucket:
    """A bucket's gradients in the order of the model's parameters."""

    def __init__(self, state: HookState, bucket: dist.GradBucket) -> None:
        self._buffer, self._scale = bucket.buffer(), 1.0 if state.lr is None else -state.lr
        held = list(zip(bucket.parameters(), bucket.gradients(), strict=True))
        held.sort(key=lambda one: state.numbers[one[0]])
        self.numbers = tuple(state.numbers[parameter] for parameter, _ in held)
        self._gradients = [gradient for _, gradient in held]
        self.layers = tuple(gradient.numel() for gradient in self._gradients)

    @property
    def vector(self) -> Tensor:
        """[D] float32 what is sent: the gradients, or the step."""
        return torch.cat([gradient.flatten() for gradient in self._gradients]).mul(self._scale).to(torch.float32)

    def filled(self, mean: Tensor) -> Tensor:
        """The bucket with what all processes received [D] in the place of its gradients."""
        sign = 1.0 if self._scale == 1.0 else -1.0
        for gradient, part in zip(self._gradients, mean.split(self.layers), strict=True):
            gradient.copy_(part.view_as(gradient)).mul_(sign)
        return self._buffer


def all_gather_hook(state: HookState, bucket: dist.GradBucket) -> Future[Tensor]:
    """Every process sends its message to all, and decodes all: for any compressor.

    Where the length of messages is known beforehand, messages are gathered while the backward pass goes on; else their
    lengths are gathered first, and this process waits for them.
    """
    part, step = _Bucket(state, bucket), state.step
    codec = state.codec(part.numbers)
    vector = part.vector
    message = codec.encode(vector, part.layers)
    length = codec.length(part.layers)
    mine = torch.frombuffer(bytearray(message.data), dtype=torch.uint8)
    lengths = [length] * state.size if length is not None else _gathered_lengths(state, len(mine))
    state.count.bits += message.bits
    state.count.carried += max(lengths) + (0 if length is not None else 8)
    device = _device(state, vector)
    sent = torch.zeros(max(lengths), dtype=torch.uint8, device=device)
    sent[: len(mine)] = mine.to(device)
    everyone = torch.empty(state.size, len(sent), dtype=torch.uint8, device=device)
    work = dist.all_gather(list(everyone.unbind()), sent, group=state.group, async_op=True)
    state.ends_step(bucket)

    def decode(_: Future[Any]) -> Tensor:
        rows = everyone.cpu().numpy()
        messages = {rank: row[:size].tobytes() for rank, (row, size) in enumerate(zip(rows, lengths, strict=True))}
        mean = codec.mean(messages, vector.shape, step=step, layers=part.layers, device=vector.device)
        return part.filled(mean)

    return work.get_future().then(decode)


def shared_randk_hook(state: HookState, bucket: dist.GradBucket) -> Future[Tensor]:
    """The same random places at all processes, whose values add up: an all-reduce of k values, with error memory."""
    part = _Bucket(state, bucket)
    vector = part.vector
    errors = [state.error(number, state.parameters[number]).to(vector) for number in part.numbers]
    meant = vector + torch.cat(errors)
    key, num = run_key(state.seed, state.step, f"places of {part.numbers[0]}"), len(vector)
    kept = max(1, round(state.fraction * num))
    (places,) = key.choice(torch.zeros(1, dtype=torch.int64, device=vector.device), kept, num)
    values = meant[places]
    for number, left in zip(part.numbers, meant.index_fill(0, places, 0).split(part.layers), strict=True):
        state.tensors[f"error.{number}"] = left
    state.count.bits += 32 * kept
    state.count.carried += 4 * kept
    state.ends_step(bucket)

    def fill(reduced: Future[Any]) -> Tensor:
        mean = torch.zeros_like(vector)
        mean[places] = _value(reduced) / state.size
        return part.filled(mean)

    return dist.all_reduce(values, group=state.group, async_op=True).get_future().then(fill)


def powersgd_hook(state: HookState, bucket: dist.GradBucket) -> Future[Tensor]:
    """PowerSGD: matrices as products of factors of a low rank, in two all-reduces, with warm start and error memory.

    T. Vogels, S. Karimireddy, M. Jaggi, "PowerSGD", NeurIPS 2019, algorithm 1. Vectors, and matrices that factors would
    not shorten, are sent as they are.
    """
    part = _Bucket(state, bucket)
    matrices: list[tuple[int, Tensor, Tensor]] = []  # number, M [m, n] with its error, Q [n, r]
    dense: list[tuple[int, Tensor]] = []
    for number, flat in zip(part.numbers, part.vector.split(part.layers), strict=True):
        shape = state.parameters[number].shape
        outputs, inputs = (shape[0], shape.numel() // shape[0]) if len(shape) > 1 else (1, shape.numel())
        rank = min(state.rank, outputs, inputs)
        if rank * (outputs + inputs) >= outputs * inputs:
            dense.append((number, flat))
            continue
        meant = (flat + state.error(number, flat).to(flat)).view(outputs, inputs)
        if f"q.{number}" not in state.tensors:
            key, first = run_key(state.seed, 0, f"q of {number}"), torch.zeros(1, dtype=torch.int64, device=flat.device)
            state.tensors[f"q.{number}"] = key.normal(first, inputs * rank).view(inputs, rank)
        matrices.append((number, meant, state.tensors[f"q.{number}"].to(flat)))
    step_ends = bucket.is_last()

    left = [meant @ q for _, meant, q in matrices]
    sent = torch.cat([one.flatten() for one in (*left, *(flat for _, flat in dense))])
    state.count.bits += 32 * len(sent)
    state.count.carried += 4 * len(sent)
    state.step += step_ends
    dist.all_reduce(sent, group=state.group)
    *sums, means = sent.split([*(one.numel() for one in left), sum(flat.numel() for _, flat in dense)])
    p = [torch.linalg.qr(total.view_as(one)).Q for total, one in zip(sums, left, strict=True)]

    right = [meant.mT @ one for (_, meant, _), one in zip(matrices, p, strict=True)]
    again = torch.cat([one.flatten() for one in right]) if right else sent.new_zeros(0)
    state.count.bits += 32 * len(again)
    state.count.carried += 4 * len(again)

    def fill(reduced: Future[Any]) -> Tensor:
        found = dict(zip((number for number, _ in dense), (means / state.size).split([len(f) for _, f in dense])))
        sums = (_value(reduced) / state.size).split([one.numel() for one in right])
        for (number, meant, _), one, own, total in zip(matrices, p, right, sums, strict=True):
            state.tensors[f"q.{number}"] = q = total.view_as(own)
            state.tensors[f"error.{number}"] = (meant - one @ own.mT).flatten()
            found[number] = (one @ q.mT).flatten()
        return part.filled(torch.cat([found[number] for number in part.numbers]))

    return dist.all_reduce(again, group=state.group, async_op=True).get_future().then(fill)


def _value(future: Future[Any]) -> Tensor:
    value = future.value()
    return value[0] if isinstance(value, list) else value


def _gathered_lengths(state: HookState, mine: int) -> list[int]:
    device = _device(state, state.parameters[0])
    lengths = torch.empty(state.size, dtype=torch.int64, device=device)
    dist.all_gather(list(lengths.split(1)), torch.tensor([mine], device=device), group=state.group)
    return lengths.tolist()


def _device(state: HookState, like: Tensor) -> torch.device:
    """Where collectives take tensors: NCCL on the GPU, gloo on the host."""
    return like.device if dist.get_backend(state.group) == "nccl" else torch.device("cpu")
