"""BiSeNetV2: its sizes, what it puts out, and that a client's gradient is that of the plain module."""

from functools import partial

import pytest
import torch

from fedcomp.model.batched.functional import Functional
from fedcomp.model.build import build
from fedcomp.model.contract import Batch, StepDraws
from fedcomp.model.flat import draw
from fedcomp.model.networks.bisenetv2 import BiSeNetV2, Booster, Expand, bisenetv2
from fedcomp.random.keys import Key
from tests.looped import looped
from tests.model.plain_modules import assert_gradient, pixels
from tests.refused import refused
from tests.thorough import thorough

KEY = Key(("test", "bisenetv2"))
TINY = {"width": 0.05}


def built(side: int = 32, **options) -> Functional:
    factory = partial(bisenetv2, **(TINY | options))
    model = build(factory, KEY, (3, side, side), 4, "segmentation", target_shape=(side, side))
    assert isinstance(model, Functional)
    return model


def num_parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@looped(
    "classes, width, with_boosters, without",
    [
        (19, 1.0, 5_231_487, 3_358_627),
        (20, 1.0, 5_233_876, 3_359_652),
        (21, 1.0, 5_236_265, 3_360_677),
        (5, 0.5, 1_715_089, 852_557),
        (5, 0.25, 643_769, 223_861),
        (5, 0.125, 276_377, 65_109),
    ],
)
def test_parameter_counts(classes: int, width: float, with_boosters: int, without: int) -> None:
    for boosters, expected in ((True, with_boosters), (False, without)):
        with torch.device("meta"):
            assert num_parameters(bisenetv2((3, 64, 64), classes, "segmentation", width, boosters)) == expected


def test_parameters_of_the_parts() -> None:
    with torch.device("meta"):
        network = bisenetv2((3, 64, 64), 21, "segmentation")
    sizes = {name: num_parameters(part) for name, part in network.named_children()}
    stages = {"stem": 6_432, "stage3": 25_936, "stage4": 94_368, "stage5": 868_160, "context": 164_608}
    ends = {"aggregation": 478_720, "head": 1_203_221, "boosters": 1_875_588}
    assert sizes == {"detail": 519_232, **stages, **ends}
    boosters = [part for part in network.modules() if isinstance(part, Booster)]
    assert [num_parameters(part) for part in boosters] == [37_509, 112_341, 374_805, 1_350_933]
    norms = [part for part in network.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    assert (len(norms), sum(part.num_features for part in norms)) == (62, 10_536)


@looped("sides", [(64, 64), (96, 160)])
def test_outputs(sides: tuple[int, int]) -> None:
    network = draw(lambda: bisenetv2((3, *sides), 4, "segmentation", **TINY), KEY)
    x = torch.randn(2, 3, *sides, generator=KEY.generator())
    assert network(x).shape == (2, 5, 4, *sides)
    assert network.eval()(x).shape == (2, 4, *sides)
    plain = draw(lambda: bisenetv2((3, *sides), 4, "segmentation", boosters=False, **TINY), KEY)
    assert plain(x).shape == (2, 4, *sides)


def test_branches_start_at_zero() -> None:
    x = torch.randn(2, 8, 6, 6, generator=KEY.generator())
    network = draw(lambda: bisenetv2((3, 32, 32), 4, "segmentation", **TINY), KEY)
    assert isinstance(network, BiSeNetV2)
    layer = next(part for part in network.modules() if isinstance(part, Expand))
    assert torch.equal(layer(x), x.relu())


@pytest.mark.parametrize("boosters", [True, *thorough([False])])
def test_gradient_is_that_of_the_module(boosters: bool) -> None:
    """Of a client with all pictures, one with one picture (BatchNorm of one value in the context part), in float64."""
    model = built(boosters=boosters)
    generator = KEY.generator()
    theta, stats = (part.double().expand(2, -1) for part in model.init(KEY))
    theta = theta + 0.02 * torch.randn(theta.shape, generator=generator, dtype=torch.float64)
    x = torch.randn(2, 3, 3, 32, 32, generator=generator).double()
    y = torch.randint(5, (2, 3, 32, 32), generator=generator).to(torch.uint8)
    y[y == 4] = 255
    weight = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    found = model.gradient(theta, Batch(x, y, weight, stats))
    assert bool(torch.isfinite(found.grad).all())
    assert float(found.grad[1].abs().max()) > 0

    def loss(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.stack([pixels(head, y) for head in outputs.unbind(2)]).sum() if boosters else pixels(outputs, y)

    assert_gradient(model, loss, theta[:1], Batch(x[:1], y[:1], None, stats[:1]), 1e-6)


@pytest.mark.thorough
def test_dropout_of_the_heads() -> None:
    """Masks follow the client, not its place; without them the network is the one that has no dropout."""
    model, plain = built(boosters=True, dropout=0.1), built(boosters=True)
    assert model.draws_in_training
    assert not plain.draws_in_training
    assert not model.draws_anywhere
    assert model.tensors == plain.tensors
    theta, stats = model.init(KEY)
    assert torch.equal(theta, plain.init(KEY)[0])
    kinds = [part.p for part in model.module.modules() if isinstance(part, torch.nn.Dropout)]
    assert kinds == [0.1] * 5
    generator = KEY.generator()
    x = torch.randn(1, 3, 3, 32, 32, generator=generator).expand(2, -1, -1, -1, -1)
    y = torch.randint(4, (1, 3, 32, 32), generator=generator).to(torch.uint8).expand(2, -1, -1, -1)
    rows, batch = theta.expand(2, -1), Batch(x, y, None, stats.expand(2, -1))
    both = model.gradient(rows, batch, StepDraws(KEY, torch.tensor([3, 8])))
    one = model.gradient(rows[:1], batch[:1], StepDraws(KEY, torch.tensor([8])))
    torch.testing.assert_close(both.grad[1], one.grad[0], atol=1e-6, rtol=1e-4)
    assert not torch.isclose(both.loss[0], both.loss[1])
    assert torch.equal(model.outputs(theta, stats, x[0]), plain.outputs(theta, stats, x[0]))


test_what_it_refuses = refused(
    [({"side": 48}, "takes images whose sides are multiples of 32, the dataset gives 48x48: take 64x64")], built
)


def test_other_tasks() -> None:
    with pytest.raises(ValueError, match="model=bisenetv2 is for segmentation, the dataset's task is classification"):
        build(bisenetv2, KEY, (3, 32, 32), 10, "classification")
