"""Dropout from keys: the same masks however clients go, of the right law, and nothing in evaluation."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from fedcomp.model.batched.dropout import KeyedDraws
from fedcomp.model.batched.functional import Functional
from fedcomp.model.batched.stacked import Stacked
from fedcomp.model.build import build
from fedcomp.model.contract import Batch, Gradient, StepDraws
from fedcomp.model.loss import loss_of
from fedcomp.random.keys import Key
from tests.looped import looped

IDS = torch.tensor([3, 7, 8, 20, 41])
KEY = Key(("run", 0, "dropout"))


class Within(nn.Module):
    """A part between two linear layers, whose features [B, 64] `call` gives it in another shape."""

    def __init__(self, part: nn.Module, call: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.part, self.last, self.call = nn.Linear(6, 64), part, nn.Linear(64, 4), call

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.call(self.part, torch.tanh(self.first(x))).flatten(1))


def _stochastic_depth() -> nn.Module:
    from torchvision.ops import StochasticDepth  # torchvision's import takes as long as all tests of this file

    return StochasticDepth(0.3, "row")


def _within(part: Callable[[], nn.Module], *shape: int) -> Callable[[], nn.Module]:
    return lambda: Within(part(), lambda part, x: part(x.unflatten(1, shape) if shape else x * 1))


def _calls(function: Callable[[nn.Module, Tensor], Tensor]) -> Callable[[], nn.Module]:
    return lambda: Within(nn.Identity(), function)


def _attention(need_weights: bool) -> Callable[[], nn.Module]:
    def call(part: nn.Module, x: Tensor) -> Tensor:
        x = x.unflatten(1, (8, 8))
        return part(x, x, x, need_weights=need_weights)[0]

    return lambda: Within(nn.MultiheadAttention(8, 2, dropout=0.3, batch_first=True), call)


def _scaled(part: nn.Module, x: Tensor) -> Tensor:
    x = x.unflatten(1, (2, 4, 8))
    return functional.scaled_dot_product_attention(x, x, x, dropout_p=0.3 if part.training else 0.0)


MODULES = {
    "dropout": _within(lambda: nn.Dropout(0.3)),
    "in place": _within(lambda: nn.Dropout(0.3, inplace=True)),
    "twice": _within(lambda: nn.Sequential(nn.Dropout(0.3), nn.ReLU(), nn.Dropout(0.5))),
    "1d": _within(lambda: nn.Dropout1d(0.3), 16, 4),
    "2d": _within(lambda: nn.Dropout2d(0.3), 16, 2, 2),
    "3d": _within(lambda: nn.Dropout3d(0.3), 16, 2, 2, 1),
    "alpha": _within(lambda: nn.AlphaDropout(0.3)),
    "functional": _calls(lambda part, x: functional.dropout(x, 0.3, part.training)),
    "drop path": _calls(lambda part, x: x * x.new_empty(len(x), 1).bernoulli_(0.6) if part.training else x),
    "rand": _calls(lambda part, x: x * torch.rand(len(x), 1) * torch.rand_like(x) if part.training else x),
    "as on a GPU": _calls(lambda part, x: torch.native_dropout(x, 0.3, part.training)[0]),
    "attention": _attention(True),
    "attention without weights": _attention(False),
    "scaled dot product": _calls(_scaled),
    "encoder": _within(lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.2, batch_first=True), 8, 8),
    "stochastic depth": _within(_stochastic_depth),
    "chain": lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 4), nn.Dropout(0.1)),
    "lstm": lambda: Within(nn.LSTM(8, 8, 2, dropout=0.4, batch_first=True), lambda lstm, x: lstm(x.view(-1, 8, 8))[0]),
}
MODE = {"functional", "drop path", "rand", "as on a GPU", "encoder", "stochastic depth", "lstm"}
"""Modules that need the mode around the whole pass, beside those with attention."""


def _made(name: str) -> tuple[Functional | Stacked, Callable[..., Gradient]]:
    """The model, in float64 with vmap even where a loop is faster, and gradient(clients, weight, draws' key)."""
    model = build(MODULES[name], Key(("model",)), (6,), 4, "classification")
    assert isinstance(model, Functional | Stacked)
    assert model.draws_in_training
    if isinstance(model, Functional):
        model.slow_by_vmap = False
    generator = torch.Generator().manual_seed(0)
    theta = model.init(KEY)[0].double() + 0.05 * torch.randn(len(IDS), model.dim, generator=generator).double()
    x, y = torch.randn(len(IDS), 4, 6, generator=generator).double(), torch.randint(4, (len(IDS), 4))
    stats = theta.new_zeros(len(IDS), 0)

    def gradient(
        rows: list[int], num: int = 4, weight: Tensor | None = None, key: Key = KEY, loss_only: bool = False
    ) -> Gradient | Tensor:
        draws = StepDraws(key, IDS[rows])
        if loss_only:
            return model.batch_loss(theta[rows], Batch(x[rows, :num], y[rows, :num], weight, stats[rows]), draws)[0]
        return model.gradient(theta[rows], Batch(x[rows, :num], y[rows, :num], weight, stats[rows]), draws)

    return model, gradient


@looped("name", MODULES)
def test_masks_are_the_same_however_clients_go(name: str) -> None:
    model, gradient = _made(name)
    state = torch.get_rng_state()
    whole = gradient([0, 1, 2, 3, 4])
    for parts in ([[0, 1], [2, 3, 4]], [[0], [1], [2], [3], [4]], [[4, 2, 0], [3, 1]]):
        order = [row for part in parts for row in part]
        got = torch.cat([gradient(part).grad for part in parts])
        torch.testing.assert_close(got, whole.grad[order], rtol=1e-10, atol=1e-12)
    assert torch.equal(gradient([0, 1, 2, 3, 4]).grad, whole.grad)
    torch.testing.assert_close(gradient([0, 1, 2, 3, 4], loss_only=True), whole.loss, rtol=1e-10, atol=1e-12)
    assert not torch.allclose(gradient([0, 1, 2, 3, 4], key=KEY.fold_in(1)).grad, whole.grad, rtol=1e-3)
    assert torch.equal(torch.get_rng_state(), state)
    if isinstance(model, Functional):
        assert model.vmap_refused == (name in ("stochastic depth", "lstm"))
        assert model.draws_anywhere == (name in MODE or "attention" in name or "scaled" in name)


@looped("name", MODULES)
def test_empty_places_change_no_mask(name: str) -> None:
    _, gradient = _made(name)
    weight = torch.tensor([1.0, 1.0, 1.0, 0.0]).expand(5, 4)
    alone = torch.cat([gradient([row], num=3).grad for row in range(5)])
    torch.testing.assert_close(gradient([0, 1, 2, 3, 4], weight=weight).grad, alone, rtol=1e-10, atol=1e-12)


def test_of_an_lstm_empty_places_would_change_masks() -> None:
    model, _ = _made("lstm")
    assert isinstance(model, Functional)
    assert not model.takes_padding  # its draws are [steps, batch, hidden]


@looped("name", MODULES)
def test_evaluation_draws_nothing(name: str) -> None:
    model, _ = _made(name)
    theta, stats = model.init(KEY)
    state = torch.get_rng_state()
    once, again = (model.outputs(theta, stats, torch.ones(3, 6)) for _ in range(2))
    assert torch.equal(once, again)
    assert torch.equal(torch.get_rng_state(), state)
    module = model.make().eval()
    nn.utils.vector_to_parameters(theta, module.parameters())
    torch.testing.assert_close(once, module(torch.ones(3, 6)).detach())


@looped("shape", [(6,), (3, 4, 4)])
@looped("of_channels", [False, True])
def test_stacked_layers_draw_as_the_module_does(shape: tuple[int, ...], of_channels: bool) -> None:
    if len(shape) == 1:
        layers = [nn.Linear(6, 5), nn.Dropout(0.3), nn.Tanh(), nn.Dropout(0.6), nn.Linear(5, 4)]
    else:
        kind = nn.Dropout2d if of_channels else nn.Dropout
        layers = [kind(0.3), nn.Conv2d(3, 5, 3), nn.ReLU(), kind(0.4), nn.Flatten(), nn.Dropout(0.2), nn.Linear(20, 4)]
    module, loss = nn.Sequential(*layers), loss_of("classification")
    stacked, plain = Stacked(module, loss), Functional(module, loss, shape)
    assert not plain.draws_anywhere
    plain.slow_by_vmap = False
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(5, stacked.dim, generator=generator).double()
    x, y = torch.randn(5, 7, *shape, generator=generator).double(), torch.randint(4, (5, 7), generator=generator)
    for weight in (None, (torch.arange(7) < torch.tensor([7, 3, 0, 1, 6])[:, None]).double()):
        for rows in (slice(0, 5), slice(1, 2)):
            given = theta[rows], Batch(x, y, weight, theta.new_zeros(5, 0))[rows], StepDraws(KEY, IDS[rows])
            torch.testing.assert_close(stacked.gradient(*given).grad, plain.gradient(*given).grad)
            outputs = (model.client_outputs(*given[:2], True, given[2])[0] for model in (stacked, plain))
            real = slice(None) if weight is None else weight[rows] > 0
            torch.testing.assert_close(*(one[real] for one in outputs))


@looped("p", [0.1, 0.5, 0.9])
def test_law_of_masks(p: float) -> None:
    """Entries are kept with probability 1 - p, within 4 standard errors, and are then divided by it."""
    num = 200_000
    with KeyedDraws(StepDraws(KEY, IDS[:1])):
        out = functional.dropout(torch.ones(num, dtype=torch.float64), p)
        second = functional.dropout(torch.ones(num, dtype=torch.float64), p)
    for one in (out, second):
        kept = one[one != 0]
        assert torch.allclose(kept, torch.tensor(1 / (1 - p), dtype=torch.float64))
        assert abs(len(kept) / num - (1 - p)) < 4 * (p * (1 - p) / num) ** 0.5
    agree = ((out != 0) == (second != 0)).double().mean()
    expected = p**2 + (1 - p) ** 2
    assert abs(agree - expected) < 4 * (expected * (1 - expected) / num) ** 0.5, "two calls draw independently"


@looped("other", [(KEY, 1), (KEY.fold_in(1), 0)])
def test_clients_and_steps_draw_differently(other: tuple[Key, int]) -> None:
    masks = []
    for key, row in ((KEY, 0), other):
        with KeyedDraws(StepDraws(key, IDS[row : row + 1])):
            masks.append(functional.dropout(torch.ones(10_000), 0.5) > 0)
    agree = (masks[0] == masks[1]).double().mean()
    assert abs(agree - 0.5) < 4 * 0.5 / 100


def test_dropout_of_everything_and_of_nothing() -> None:
    chain = nn.Sequential(nn.Linear(6, 8), nn.Dropout(1.0), nn.Linear(8, 4))
    model, theta = Stacked(chain, loss_of("classification")), torch.ones(2, 92)
    got = model.gradient(theta, Batch(torch.ones(2, 3, 6), torch.zeros(2, 3, dtype=torch.int64), None, theta[:, :0]))
    assert (got.grad[:, :88] == 0).all()
    assert not build(nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.0)), KEY, (6,), 4, "classification").draws_in_training


@looped("checkpointed", [nn.Dropout(0.3), None])
def test_activation_checkpointing_is_refused(checkpointed: nn.Module | None) -> None:
    def call(part: nn.Module, x: Tensor) -> Tensor:
        def again(y: Tensor) -> Tensor:
            return part(torch.tanh(y)) if checkpointed else functional.dropout(torch.tanh(y), 0.3, part.training)

        return checkpoint(again, x, use_reentrant=False)

    with pytest.raises(ValueError, match="the model draws random numbers in its backward pass, as activation"):
        build(lambda: Within(checkpointed or nn.Identity(), call), KEY, (6,), 4, "classification")


def test_a_gradient_without_draws_fails() -> None:
    for name in ("dropout", "encoder", "chain"):
        model, _ = _made(name)
        theta, stats = model.init(KEY)
        with pytest.raises(AssertionError, match="needs `draws`"):
            model.gradient(theta[None], Batch(torch.ones(1, 2, 6), torch.zeros(1, 2).long(), None, stats[None]))
