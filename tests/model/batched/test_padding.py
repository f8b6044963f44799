"""Modules of a user's own over batches with empty places: all clients at once where that is exact, else one by one."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.model.batched.functional import Functional
from fedcomp.model.batched.stacked import Stacked
from fedcomp.model.build import build
from fedcomp.model.contract import Batch
from fedcomp.model.flat import draw
from fedcomp.model.loss import loss_of
from tests.looped import looped
from tests.model.plain_modules import batch, rows
from tests.model.test_gradient import COHORTS, KEY, check, mask
from tests.raising import raising

LOSS = loss_of("classification")


class Residual(nn.Module):
    """x + between(first(x)), then the last layer: no chain."""

    def __init__(self, between: nn.Module | None = None, convolution: bool = False) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 2, 3, padding=1) if convolution else nn.Linear(6, 6)
        self.between = between if between is not None else nn.Tanh()
        self.last = nn.Linear(32 if convolution else 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last((x + self.between(self.first(x))).flatten(1))


class Centred(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class Counted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / len(x)


class OwnBatchNorm(nn.BatchNorm1d):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class BatchNormByHand(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("var", torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        return functional.batch_norm(x, self.mean, self.var, training=self.training)


class Peak(nn.Module):
    """Reads the batch only where a sample is large, as that in the empty place is."""

    def forward(self, x: Tensor) -> Tensor:
        return x + x.max().clamp(min=10.0) - 10.0


def hooked() -> nn.Module:
    norm = nn.BatchNorm1d(6)
    norm.register_forward_hook(lambda part, inputs, output: 2 * output)
    return norm


TAKE = {
    "nothing": (lambda: Residual(), (6,)),
    "layer norm": (lambda: Residual(nn.LayerNorm(6)), (6,)),
    "batch norm": (lambda: Residual(nn.BatchNorm1d(6)), (6,)),
    "batch norm twice": (lambda: Residual(nn.Sequential(norm := nn.BatchNorm1d(6), nn.Tanh(), norm)), (6,)),
    "batch norm, not affine": (lambda: Residual(nn.BatchNorm1d(6, affine=False, momentum=0.4, eps=0.1)), (6,)),
    "convolution": (lambda: Residual(convolution=True), (2, 4, 4)),
    "convolution, batch norm": (lambda: Residual(nn.BatchNorm2d(2), convolution=True), (2, 4, 4)),
}
REFUSE = {
    "centred": lambda: Residual(Centred()),
    "counted": lambda: Residual(Counted()),
    "peak": lambda: Residual(Peak()),
    "own batch norm": lambda: Residual(OwnBatchNorm(6)),
    "batch norm by hand": lambda: Residual(BatchNormByHand()),
    "batch norm with a hook": lambda: Residual(hooked()),
    "batch norm over all batches": lambda: Residual(nn.BatchNorm1d(6, momentum=None)),
    "batch norm of the batch alone": lambda: Residual(nn.BatchNorm1d(6, track_running_stats=False)),
}


def _model(make, shape) -> Functional:
    model = Functional(draw(make, KEY), LOSS, shape)
    model.slow_by_vmap = False  # as on a GPU
    return model


@looped("cohort", COHORTS)
@looped("name", TAKE)
def test_all_at_once_equals_one_by_one(name, cohort, monkeypatch, trusting) -> None:
    make, shape = TAKE[name]
    model = _model(make, shape)
    assert model.takes_padding
    num_clients, size, real = COHORTS[cohort]
    if num_clients > 1 or real is not None:
        monkeypatch.setattr(model, "_looped", None)
    if num_clients > 1:
        monkeypatch.setattr(model, "_outputs_looped", None)
    check(model, LOSS, num_clients, size, real, shape, 4, "classification")
    assert not model.vmap_refused


@looped("name", REFUSE)
def test_modules_that_look_at_empty_places_run_on_their_real_samples(name) -> None:
    model = _model(REFUSE[name], (6,))
    assert not model.takes_padding
    check(model, LOSS, 3, 5, (5, 0, 3), (6,), 4, "classification")


def test_it_is_tried_where_a_model_is_built() -> None:
    for makes, expected in ((TAKE["batch norm"][0], True), (REFUSE["centred"], False)):
        model = build(makes, KEY, (6,), 4, "classification")
        assert isinstance(model, Functional)
        assert model.takes_padding is expected


@looped("size", [4, 1])
@looped("num_clients", [1, 2])
@looped("stacked", [True, False])
def test_one_real_sample_in_batch_norm_counts_as_variance_zero(num_clients, size, stacked) -> None:
    if stacked:
        model = Stacked(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 4)), LOSS)
    else:
        model = Functional(Residual(nn.BatchNorm1d(6)), LOSS, (6,))
    generator = torch.Generator().manual_seed(0)
    theta, stats = rows(model, num_clients, generator)
    x, y = batch(num_clients, size, (6,), 4, "classification", generator)
    weight = mask(num_clients, size, (1, size)[:num_clients]) if size > 1 else None
    got = model.gradient(theta, Batch(x, y, weight, stats))
    assert got.grad.isfinite().all()
    weight, bias = (part[0] for part in model.parameters(theta)[:2])
    torch.testing.assert_close(got.stats[0, :6], 0.9 * stats[0, :6] + 0.1 * (x[0, -1] @ weight.t() + bias))
    torch.testing.assert_close(got.stats[0, 6:], 0.9 * stats[0, 6:])


def test_memory_that_ran_out_is_no_reason_to_go_one_by_one(monkeypatch) -> None:
    model = Functional(Residual(), LOSS, (6,))
    generator = torch.Generator().manual_seed(0)
    theta, stats = rows(model, 3, generator)
    given = theta, Batch(*batch(3, 4, (6,), 4, "classification", generator), None, stats)

    with monkeypatch.context() as patch:
        patch.setattr(model, "_loss", raising(torch.OutOfMemoryError("CUDA out of memory")))
        with pytest.raises(torch.OutOfMemoryError):
            model.gradient(*given)
    assert not model.vmap_refused
    model.gradient(*given)


class Branching(Residual):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if x.sum() < 1e9 else -x)


def test_a_module_that_vmap_cannot_run_goes_one_by_one_with_one_line(caplog) -> None:
    model = Functional(draw(Branching, KEY), LOSS, (6,))
    with caplog.at_level("INFO", "fedcomp"):
        check(model, LOSS, 3, 5, None, (6,), 4, "classification")
        check(model, LOSS, 3, 5, (5, 0, 3), (6,), 4, "classification")
    assert model.vmap_refused
    assert model.drops_empty_places
    (record,) = caplog.records
    assert record.message.startswith("clients run one after another: vmap cannot run the model (")
