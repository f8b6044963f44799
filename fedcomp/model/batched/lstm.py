"""LSTM layers of M clients at once: a rule of `vmap` for `nn.LSTM`, for which torch has only a slow loop.

A layer's inputs are multiplied at once for all steps, P_t = W_ih x_t + b. Then, step by step, for all clients together:

    i, f, g, o = P_t + W_hh h_{t-1};    c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g);    h_t = sigmoid(o) tanh(c_t)

Gradients go back step by step in the same way. On a GPU all of a step but its product is one kernel of torch's.

Shape legend: M clients, L steps, B batch, E inputs, H hidden units.
"""

import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional

Result = tuple[Tensor, tuple[Tensor, Tensor]]
"""Of an LSTM: the states of all steps, and the last states and cells of all layers."""


class Calls(Protocol):
    """Attributes: at_once: whether `vmap` is calling the module."""

    at_once: bool


def has_rule(part: nn.Module) -> TypeGuard[nn.LSTM]:
    """Whether the module is an LSTM whose clients can go at once: one way, without dropout, hooks or projections."""
    if type(part) is not nn.LSTM or part._forward_hooks or part._forward_pre_hooks:
        return False
    return not (part.bidirectional or part.proj_size or (part.dropout and part.num_layers > 1))


def give_rule(module: nn.Module, calls: Calls) -> None:
    """From now on the LSTMs in the module that have a rule follow it while `calls.at_once`."""
    for part in module.modules():
        if has_rule(part):
            vars(part)["forward"] = functools.partial(_forward, part, part.forward, calls)  # before the class's own


def _forward(lstm: nn.LSTM, plain: Callable[..., Result], calls: Calls, x: Tensor, state: Any = None) -> Result:
    """x: [B, L, E] with `batch_first`, else [L, B, E]."""
    if not calls.at_once:
        return plain(x, state)
    if state is not None or not isinstance(x, Tensor) or x.dim() != 3:
        raise RuntimeError("an LSTM that is given a first state, or something else than batches [B, L, E]")
    x = x.transpose(0, 1) if lstm.batch_first else x
    states, cells = [], []
    for layer in range(lstm.num_layers):
        of_inputs, of_states, *biases = (getattr(lstm, name) for name in lstm._all_weights[layer])
        products = functional.linear(x, of_inputs, sum(biases) if biases else None)
        x, cell, _ = _Steps.apply(products, of_states.to(products.dtype))
        states.append(x[-1])
        cells.append(cell[-1])
    return x.transpose(0, 1) if lstm.batch_first else x, (torch.stack(states), torch.stack(cells))


class _Steps(torch.autograd.Function):
    """States and cells [L, B, H] of all steps, and what the way back needs [L, B, 4 H], from P [L, B, 4 H] and W_hh."""

    @staticmethod
    def forward(products: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        return tuple(part[:, 0] for part in _steps(products[:, None], weight[None]))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(inputs[1], *output)
        ctx.mark_non_differentiable(output[2])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, of_states: Tensor | None, of_cells: Tensor | None, _: Any) -> tuple[Tensor, Tensor]:
        return _StepsBack.apply(of_states, of_cells, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *given: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        products, weight = _rows(info.batch_size, dims, given, (1, 0))
        return _steps(products, weight), (1, 1, 1)


class _StepsBack(torch.autograd.Function):
    """Gradients by P and W_hh, from those by states and cells (None: zero), W_hh, and what `_Steps` gave."""

    @staticmethod
    def forward(of_states: Tensor | None, of_cells: Tensor | None, *given: Tensor) -> tuple[Tensor, Tensor]:
        first, second = (None if part is None else part[:, None] for part in (of_states, of_cells))
        weight, states, cells, gates = given
        products, weights = _steps_back(first, second, weight[None], states[:, None], cells[:, None], gates[:, None])
        return products[:, 0], weights[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Second derivatives are not computed."""

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *given: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        return _steps_back(*_rows(info.batch_size, dims, given, (1, 1, 0, 1, 1, 1))), (1, 0)


def _rows(num_clients: int, dims: tuple[int | None, ...], given: Any, places: tuple[int, ...]) -> list[Any]:
    """The tensors with their axis of clients in `places`; what all clients share is repeated as a view."""
    found = []
    for tensor, dim, place in zip(given, dims, places, strict=True):
        if tensor is not None and dim is None:
            tensor, dim = tensor[None].expand(num_clients, *tensor.shape), 0
        found.append(None if tensor is None else tensor.movedim(dim, place))
    return found


def _steps(products: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As `_Steps`, of products [L, M, B, 4 H] and weights [M, 4 H, H]: each [L, M, B, .]."""
    hidden = products.shape[-1] // 4
    state = cell = products.new_zeros(*products.shape[1:-1], hidden)
    found = []
    for step, own in enumerate(products.contiguous()):
        before = torch.bmm(state, weight.mT) if step else torch.zeros_like(own)
        state, cell, gates = _cell(own, before, cell)
        found.append((state, cell, gates))
    states, cells, gates = (torch.stack(parts) for parts in zip(*found, strict=True))
    return states, cells, gates


def _cell(own: Tensor, before: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """h_t, c_t and the gates i, f, g, o after their activation, from the two summands of the gates and c_{t-1}."""
    if own.device.type == "cuda":
        flat = (part.flatten(0, 1) for part in (own, before, cell))
        return tuple(part.unflatten(0, own.shape[:2]) for part in torch.ops.aten._thnn_fused_lstm_cell(*flat))
    gates = own + before
    hidden = cell.shape[-1]
    gates[..., : 2 * hidden].sigmoid_()
    gates[..., 2 * hidden : 3 * hidden].tanh_()
    gates[..., 3 * hidden :].sigmoid_()
    i, f, g, o = gates.chunk(4, -1)
    cell = torch.addcmul(f * cell, i, g)
    return o * cell.tanh(), cell, gates


def _steps_back(
    of_states: Tensor | None, of_cells: Tensor | None, weight: Tensor, states: Tensor, cells: Tensor, gates: Tensor
) -> tuple[Tensor, Tensor]:
    """As `_StepsBack`: [L, M, B, 4 H] and [M, 4 H, H]."""
    by_state = by_cell = torch.zeros_like(cells[0])
    found: list[Tensor] = []
    for step in reversed(range(len(cells))):
        by_state = by_state if of_states is None else by_state + of_states[step]
        by_cell = by_cell if of_cells is None else by_cell + of_cells[step]
        before = cells[step - 1] if step else torch.zeros_like(by_cell)
        by_gates, by_cell = _cell_back(by_state, by_cell, before, cells[step], gates[step])
        found.append(by_gates)
        by_state = torch.bmm(by_gates, weight)
    products = torch.stack(found[::-1])
    after, earlier = (part.transpose(0, 1).flatten(1, 2) for part in (products[1:], states[:-1]))
    return products, torch.bmm(after.mT, earlier)


def _cell_back(by_state: Tensor, by_cell: Tensor, before: Tensor, cell: Tensor, gates: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients by the gates before their activation and by c_{t-1}, from those by h_t and c_t."""
    if cell.device.type == "cuda":
        flat = (part.flatten(0, 1) for part in (by_state, by_cell, before, cell, gates))
        by_gates, by_before, _ = torch.ops.aten._thnn_fused_lstm_cell_backward_impl(*flat, False)
        return by_gates.unflatten(0, cell.shape[:2]), by_before.unflatten(0, cell.shape[:2])
    i, f, g, o = gates.chunk(4, -1)
    squashed = cell.tanh()
    by_cell = by_cell + by_state * o * (1 - squashed * squashed)
    parts = (
        by_cell * g * i * (1 - i),
        by_cell * before * f * (1 - f),
        by_cell * i * (1 - g * g),
        by_state * squashed * o * (1 - o),
    )
    return torch.cat(parts, -1), by_cell * f
