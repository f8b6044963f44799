"""Loss and metrics of pixels, by hand and against torch's, and what a client's batch does with them."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.model.batched.functional import Functional
from fedcomp.model.build import build
from fedcomp.model.contract import Batch
from fedcomp.model.loss import (
    absent_cross_entropy,
    evaluation_sums,
    mean_loss,
    metrics_of_sums,
    pixel_cross_entropy,
    training_loss,
)
from fedcomp.random.keys import Key
from fedcomp.runtime.workers import Workers
from fedcomp.simulation import evaluation
from fedcomp.simulation.chunks.client_data import gather
from tests.model.plain_modules import assert_gradient, pixels

KEY = Key(("test", "pixels"))
NUM_CLASSES = 3


def drawn(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [M, B, (A,) K, H, W] and classes [M, B, H, W], a fifth of them ignored, none of them in one picture."""
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(*shape, generator=generator)
    sizes = (*shape[:2], *shape[-2:])
    y = torch.randint(NUM_CLASSES, sizes, generator=generator)
    y[torch.rand(sizes, generator=generator) < 0.2] = 255
    y[0, 0] = 255
    return outputs, y.to(torch.uint8)


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 1))


def built(module: nn.Module | None = None) -> Functional:
    model = build(module or network(), KEY, (3, 4, 6), NUM_CLASSES, "segmentation", target_shape=(4, 6))
    assert isinstance(model, Functional)
    return model


def test_a_clients_loss_is_the_mean_over_its_pixels() -> None:
    """As torch's with `ignore_index`, not the mean of its pictures' means."""
    outputs, y = drawn(2, 3, NUM_CLASSES, 4, 5)
    found = mean_loss(pixel_cross_entropy, outputs, y, None)
    for client in range(2):
        expected = functional.cross_entropy(outputs[client], y[client].long(), ignore_index=255)
        torch.testing.assert_close(found[client], expected)
    assert not torch.isclose(found[0], pixel_cross_entropy(outputs, y)[0].mean())


def test_empty_places_and_clients_without_a_class() -> None:
    outputs, y = drawn(2, 3, NUM_CLASSES, 4, 5)
    weight = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    found = mean_loss(pixel_cross_entropy, outputs, y, weight)
    torch.testing.assert_close(found[0], functional.cross_entropy(outputs[0, 1:2], y[0, 1:2].long(), ignore_index=255))
    torch.testing.assert_close(found[1], functional.cross_entropy(outputs[1, :1], y[1, :1].long(), ignore_index=255))
    nothing = mean_loss(pixel_cross_entropy, outputs, torch.full_like(y, 255), None)
    assert nothing.tolist() == [0, 0]


def test_losses_of_several_outputs_are_added() -> None:
    outputs, y = drawn(2, 3, 2, NUM_CLASSES, 4, 5)
    each = [mean_loss(pixel_cross_entropy, outputs[:, :, place], y, None) for place in range(2)]
    torch.testing.assert_close(mean_loss(pixel_cross_entropy, outputs, y, None), each[0] + each[1])


def one_by_one_absent(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """FedSeg's "back" loss of one client's pictures (logits [B, K, H, W]), pixel by pixel."""
    present = sorted(set(y.flatten().tolist()) - {255})
    absent = [label for label in range(outputs.shape[1]) if label not in present]
    costs = []
    for picture, row, column in torch.cartesian_prod(*(torch.arange(size) for size in y.shape)).tolist():
        p = outputs[picture, :, row, column].softmax(0)
        label = int(y[picture, row, column])
        if label != 255:
            costs.append(-p[label].log())
        elif absent:
            costs.append(-p[absent].sum().log())
    return torch.stack(costs).mean() if costs else torch.zeros(())


def test_unlabelled_pixels_of_some_absent_class() -> None:
    """Client 0 lacks two of four classes in its real pictures, client 1 has all of them, client 2 no labels at all."""
    outputs, _ = drawn(3, 3, 4, 4, 5)
    outputs.requires_grad_()
    y = torch.randint(2, (3, 3, 4, 5), generator=torch.Generator().manual_seed(3)).to(torch.uint8)
    y[0, 2] = 3  # in no real picture of client 0
    y[1, :, 0, :4] = torch.arange(4)
    y[:, :, 2] = 255
    y[2] = 255
    weight = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    found = mean_loss(absent_cross_entropy, outputs, y, weight)
    expected = [one_by_one_absent(outputs[0, :2], y[0, :2]), one_by_one_absent(outputs[1], y[1]), torch.zeros(())]
    torch.testing.assert_close(found, torch.stack(expected))
    torch.testing.assert_close(found[1], functional.cross_entropy(outputs[1], y[1].long(), ignore_index=255))
    (grad,) = torch.autograd.grad(found.sum(), outputs)
    (twin,) = torch.autograd.grad(expected[0] + expected[1], outputs)
    torch.testing.assert_close(grad, twin)
    with_heads = torch.stack((outputs, 2 * outputs), 2)
    heads = [mean_loss(absent_cross_entropy, part, y, weight) for part in (outputs, 2 * outputs)]
    torch.testing.assert_close(mean_loss(absent_cross_entropy, with_heads, y, weight), heads[0] + heads[1])
    assert training_loss("segmentation", "absent") is absent_cross_entropy
    assert training_loss("segmentation", "ignored") is pixel_cross_entropy


def test_absent_classes_all_at_once_as_one_by_one() -> None:
    model = build(network(), KEY, (3, 4, 6), NUM_CLASSES, "segmentation", target_shape=(4, 6), unlabelled="absent")
    assert isinstance(model, Functional)
    theta, stats = (part.expand(2, -1).double() for part in model.init(KEY))
    x = torch.randn(2, 4, 3, 4, 6, generator=torch.Generator().manual_seed(1)).double()
    y = drawn(2, 4, NUM_CLASSES, 4, 6)[1] // 2  # classes 0 and 1, and 127 for none
    weight = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
    one_by_one = model.gradient(theta, Batch(x, y, weight, stats))
    model.slow_by_vmap = False
    at_once = model.gradient(theta, Batch(x, y, weight, stats))
    assert not model.vmap_refused
    torch.testing.assert_close(at_once.loss, one_by_one.loss)
    torch.testing.assert_close(at_once.grad, one_by_one.grad, atol=1e-9, rtol=1e-6)
    ignored = built().gradient(theta, Batch(x, y, weight, stats))
    assert (one_by_one.loss > ignored.loss).all()


def test_mean_iou_by_hand() -> None:
    """Class 0 true, 1 predicted: IoU 0; class 1: 1 of 3; class 2 in neither; class 3 true and missed: 0."""
    y = torch.tensor([[[0, 1], [1, 3]]], dtype=torch.uint8)
    predicted = torch.tensor([[[1, 1], [0, 1]]])
    outputs = functional.one_hot(predicted, 5).permute(0, 3, 1, 2).float()
    found = metrics_of_sums("segmentation", evaluation_sums("segmentation", outputs, y), 1)
    assert float(found["accuracy"]) == pytest.approx(1 / 4)
    assert float(found["miou"]) == pytest.approx((0 + 1 / 4 + 0) / 3)
    assert list(found) == ["loss", "accuracy", "miou"]
    loss = functional.cross_entropy(outputs, y.long())
    assert float(found["loss"]) == pytest.approx(float(loss))
    samples = Samples(torch.zeros(1, 2, 2, 3), y)
    classes = Dataset("toy", samples, samples, "segmentation", 5, class_names=tuple("abcde")).classes_of_pixels
    assert classes == {0: "a", 1: "b", 3: "d"}, "class 2 occurs in neither, so that it has none"
    each = metrics_of_sums("segmentation", evaluation_sums("segmentation", outputs, y), 1, classes)
    assert [float(each.pop(f"iou/{name}")) for name in "abd"] == [0, 1 / 4, 0]
    assert each == found
    y[0, 0, 0] = 255  # neither true nor a mistake
    found = metrics_of_sums("segmentation", evaluation_sums("segmentation", outputs, y), 1)
    assert float(found["miou"]) == pytest.approx((0 + 1 / 3 + 0) / 3)


def test_the_loop_over_clients_and_vmap_agree_with_autograd() -> None:
    model = built()
    generator = torch.Generator().manual_seed(1)
    theta, stats = (part.expand(3, -1) for part in model.init(KEY))
    theta = (theta + 0.1 * torch.randn(theta.shape, generator=generator)).double()
    x = torch.randn(3, 4, 3, 4, 6, generator=generator).double()
    y = drawn(3, 4, NUM_CLASSES, 4, 6)[1]
    weight = torch.ones(3, 4)
    weight[1, 2:] = 0
    assert model.takes_padding
    for slow in (True, False):
        model.slow_by_vmap = slow
        assert_gradient(model, pixels, theta, Batch(x, y, weight, stats), 1e-6)
    assert not model.vmap_refused


def pictures(crop_padding: int = 0) -> Dataset:
    """Pictures whose class is their value, so that a moved pixel shows."""
    y = torch.randint(1, NUM_CLASSES, (9, 4, 6), generator=torch.Generator().manual_seed(2)).to(torch.uint8)
    samples = Samples(y[..., None].repeat(1, 1, 1, 3), y)
    return Dataset("toy", samples, samples, "segmentation", NUM_CLASSES, crop_padding=crop_padding, flip=True)


def test_augmentation_moves_pictures_and_classes_together() -> None:
    dataset, ids = pictures(crop_padding=2), torch.tensor([4, 7])
    index = torch.arange(8).view(1, 2, 4)
    x, y = gather(dataset, index, ids, [KEY])
    assert x.shape == (1, 2, 4, 3, 4, 6)
    value = x[:, :, :, 0]
    assert torch.equal(y == 255, value == 0)
    assert torch.equal(torch.where(y == 255, 0, y).float(), value)
    assert (value == 0).any()
    assert not torch.equal(y, dataset.train.y[index])


def test_evaluation_adds_up_confusion_over_batches_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedcomp.algorithm.contract import Models

    dataset, model = pictures(), built()
    theta, stats = model.init(KEY)
    models = {"test": Models(theta[None], stats[None])}
    whole = evaluation.metrics_of(models, model, dataset)
    monkeypatch.setattr(evaluation, "PIXELS", 2 * 4 * 6)
    parts = evaluation.metrics_of(models, model, dataset, Workers(2))
    assert list(whole) == ["test/loss", "test/accuracy", "test/miou"]
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value, rtol=1e-6, atol=0)
    predicted = model.outputs(theta, stats, dataset.normalise(dataset.test.x)).argmax(1)
    y = dataset.test.y.long()
    both = [((predicted == c) & (y == c)).sum() / ((predicted == c) | (y == c)).sum() for c in range(NUM_CLASSES)]
    present = [float(value) for value in both if not value.isnan()]
    assert float(whole["test/miou"]) == pytest.approx(sum(present) / len(present))


def test_outputs_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r"gives outputs of shape \(3, 2, 4\), the dataset needs \(3, 4, 6\)"):
        built(nn.Sequential(nn.Conv2d(3, 3, 3)))
