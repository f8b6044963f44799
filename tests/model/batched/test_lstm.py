"""LSTMs of all clients at once: as torch's own, one client after another."""

import pytest
import torch
from torch import Tensor, nn

from fedcomp.model.batched import lstm
from fedcomp.model.batched.functional import ALL_AT_ONCE, Functional
from fedcomp.model.build import build
from fedcomp.model.contract import Batch
from fedcomp.random.keys import Key
from tests.looped import looped

KEY, CLIENTS, BATCH, STEPS = Key(("model",)), 3, 4, 6


class Reads(nn.Module):
    """What an LSTM gives: the states of all steps, or the last states and cells of its layers."""

    def __init__(self, last: bool, **options: object) -> None:
        super().__init__()
        self.lstm, self.last = nn.LSTM(2, 5, **options), last
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(-1, STEPS, 2)
        x = x if self.lstm.batch_first else x.transpose(0, 1)
        all_states, (states, cells) = self.lstm(x)
        if self.last:
            return self.head((states + cells).sum(0))
        return self.head(all_states.sum(1 if self.lstm.batch_first else 0))


class WithState(Reads):
    """Its first state is not zero."""

    def forward(self, x: Tensor) -> Tensor:
        first = torch.ones(1, len(x), 5, dtype=x.dtype)
        return self.head(self.lstm(x.view(-1, STEPS, 2), (first, first))[0][:, -1])


class Packed(Reads):
    """Its sequences are shorter than the window."""

    def forward(self, x: Tensor) -> Tensor:
        lengths = torch.full((len(x),), STEPS - 1)
        packed = nn.utils.rnn.pack_padded_sequence(x.view(-1, STEPS, 2), lengths, batch_first=True)
        return self.head(self.lstm(packed)[1][0][-1])


def _model(module: type[Reads], last: bool = False, **options: object) -> Functional:
    model = build(lambda: module(last, **options), KEY, (2 * STEPS,), 3, "classification")
    assert isinstance(model, Functional)
    assert model.slow_by_vmap
    model.slow_by_vmap = False
    return model


def _batch(model: Functional, weight: Tensor | None = None) -> tuple[Tensor, Batch]:
    generator = torch.Generator().manual_seed(0)
    theta = torch.stack([model.init(KEY.fold_in(client))[0] for client in range(CLIENTS)]).double()
    x = torch.randn(CLIENTS, BATCH, 2 * STEPS, generator=generator).double()
    return theta, Batch(x, torch.randint(3, (CLIENTS, BATCH), generator=generator), weight, theta[:, :0])


def _both(model: Functional, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Gradients all at once, and one client after another."""
    theta, batch = _batch(model, weight)
    together = model.gradient(theta, batch).grad
    assert not model.vmap_refused
    assert not ALL_AT_ONCE.refused
    model.vmap_refused = True
    return together, model.gradient(theta, batch).grad


@looped("last", [True, False])
@looped("options", [{"num_layers": 2}, {"bias": False, "batch_first": True}, {"num_layers": 3, "batch_first": True}])
def test_all_at_once_are_gradients_of_torchs_own(last: bool, options: dict[str, object]) -> None:
    together, alone = _both(_model(Reads, last, **options))
    assert alone.abs().amax(1).min() > 1e-3
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-12)


def test_empty_places_change_nothing() -> None:
    weight = torch.ones(CLIENTS, BATCH)
    weight[0, 3:] = weight[2, 1:] = 0
    together, alone = _both(_model(Reads, batch_first=True), weight)
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-12)


@looped("options", [{"bidirectional": True}, {"proj_size": 2}, {"num_layers": 2, "dropout": 0.5}])
def test_other_lstms_have_no_rule(options: dict[str, object]) -> None:
    assert not lstm.has_rule(nn.LSTM(2, 5, **options))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("module", [WithState, Packed])
def test_otherwise_clients_go_one_after_another(module: type[Reads], caplog: pytest.LogCaptureFixture) -> None:
    model = _model(module, batch_first=True)
    theta, batch = _batch(model)
    with caplog.at_level("INFO", "fedcomp"):
        assert model.gradient(theta, batch).grad.abs().sum() > 0
    assert model.vmap_refused
    assert "an LSTM that is given a first state" in caplog.text
