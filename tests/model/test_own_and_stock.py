"""Networks by their names: the user's own (`model=module`) and torchvision's (`model=torchvision`)."""

from functools import partial

import pytest
import torch
from torch import nn

from fedcomp.config import instantiate
from fedcomp.config.compose import compose
from fedcomp.model.build import build
from fedcomp.model.contract import Batch, StepDraws
from fedcomp.model.loss import loss_of
from fedcomp.model.networks.module import own
from fedcomp.model.networks.torchvision import classifier
from fedcomp.provenance.code import code_files
from fedcomp.random.keys import Key
from tests.looped import looped
from tests.model.plain_modules import assert_gradient
from tests.refused import one_line_error
from tests.thorough import thorough

KEY = Key(("model", 0))
OWN = """
import torch

class Net(torch.nn.Module):
    def __init__(self, num_outputs, width=3):
        super().__init__()
        self.first, self.last = torch.nn.Linear(64, width), torch.nn.Linear(width, num_outputs)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))

class Plain(torch.nn.Linear):
    def __init__(self, size, *layers, bias=True, **others):
        super().__init__(64, size)

ready = torch.nn.Linear(64, 10)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine_net.py").write_text(OWN)
    (tmp_path / "broken_net.py").write_text("import not_there_at_all\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def made(factory, shape, num_outputs=10):
    return build(factory, KEY, shape, num_outputs, "classification")


def test_own_network(mine):
    model = made(partial(own, path="mine_net.Net"), (64,))
    assert model.dim == 64 * 3 + 3 + 3 * 10 + 10
    assert made(partial(own, path="mine_net.Net", options={"width": 5}), (64,)).dim == 64 * 5 + 5 + 5 * 10 + 10


OTHER = {"path": "mine_net.Net", "options": {"size": 5}}


@looped(
    "options, line",
    [
        ({"path": None}, r"model.path is None, but must name a class or function, such as mine.Net"),
        ({"path": "Net"}, r"model.path is 'Net'"),
        ({"path": "nowhere_at_all.Net"}, r"there is no module nowhere_at_all: put nowhere_at_all.py into"),
        ({"path": "mine_net.Nets"}, r"module mine_net has no class or function Nets"),
        ({"path": "mine_net.ready"}, r"module mine_net has no class or function ready"),
        (OTHER, r"^mine_net.Net has no argument for model.options.size \(its own arguments: width\)$"),
        ({"path": "mine_net.Plain"}, r"^mine_net.Plain needs size: give model.options.size=...$"),
        ({"path": "mine_net.Net", "options": {"num_outputs": 7}}, r"^model mine_net.Net gives outputs of shape \(7,\)"),
    ],
)
def test_wrong_own_networks(mine, options, line):
    with one_line_error(line):
        made(partial(own, **options), (64,))


def test_an_error_in_the_users_module_is_its_own(mine):
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        made(partial(own, path="broken_net.Net"), (64,))


def test_the_users_module_is_fingerprinted(mine):
    (mine / "printed_net.py").write_text(OWN)
    config = {"model": {"_target_": "fedcomp.model.networks.module.own", "path": "printed_net.Net"}}
    assert code_files(config) == {"printed_net": mine / "printed_net.py"}


def test_own_network_from_the_command_line(fedcomp, tmp_path, monkeypatch):
    (tmp_path / "cli_net.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    config = compose(["model=module", "model.options.width=4", "model.options.deep.er=[1]"])
    assert config.model.options == {"width": 4, "deep": {"er": [1]}}
    assert fedcomp("model=module", "model.path=cli_net.Net", "model.options.width=4", "rounds=1") == 0


@pytest.mark.parametrize("channels", [1, *thorough([3])])
def test_torchvision_classifier(channels):
    from torchvision import models

    model = made(partial(classifier, name="mobilenet_v3_small"), (channels, 32, 32))
    stock = models.mobilenet_v3_small(num_classes=10)
    first = stock.features[0][0].weight
    assert model.dim == sum(p.numel() for p in stock.parameters()) - first.numel() // 3 * (3 - channels)
    theta, stats = model.init(KEY)
    assert torch.equal(theta, model.init(KEY)[0])
    assert model.outputs(theta, stats, torch.zeros(2, channels, 32, 32)).shape == (2, 10)


def test_gradient_of_a_stock_network_is_its_own():
    model = made(partial(classifier, name="squeezenet1_1", dropout=False), (3, 32, 32))
    theta, stats = model.init(KEY)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 3, 32, 32, generator=generator), torch.tensor([1, 7])
    one = Batch(x[None].double(), y[None], None, stats[None].double())
    assert_gradient(model, loss_of("classification"), theta[None].double(), one)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "draws"), [("mobilenet_v3_small", True), ("resnet18", False)])
def test_dropout_of_a_stock_network(name, draws):
    model = made(partial(classifier, name=name), (3, 32, 32))
    assert model.draws_in_training == draws
    assert not made(partial(classifier, name=name, dropout=False), (3, 32, 32)).draws_in_training
    theta, stats = model.init(KEY)
    x = torch.randn(2, 8, 3, 32, 32, generator=torch.Generator().manual_seed(0))  # equal ones divide by a variance of 0
    y, ids = torch.zeros(2, 8, dtype=torch.int64), torch.tensor([4, 9])

    def gradient(rows, key=KEY):
        batch = Batch(x[rows], y[rows], None, stats.expand(2, -1)[rows])
        return model.gradient(theta.expand(2, -1)[rows], batch, StepDraws(key, ids[rows]) if draws else None).grad

    both = gradient([0, 1])
    torch.testing.assert_close(torch.cat([gradient([0]), gradient([1])]), both, rtol=1e-3, atol=1e-4)
    assert torch.allclose(both, gradient([0, 1], KEY.fold_in(1)), rtol=1e-3, atol=1e-4) != draws


def test_group_norm_in_place_of_batch_norm():
    network = classifier((3, 32, 32), 10, "mobilenet_v3_small", group_norm=32)
    norms = [part for part in network.modules() if isinstance(part, nn.GroupNorm)]
    assert not any(isinstance(part, nn.BatchNorm2d) for part in network.modules())
    assert len(norms) == 34
    assert all(norm.num_channels % norm.num_groups == 0 and 32 % norm.num_groups == 0 for norm in norms)
    assert made(partial(classifier, name="mobilenet_v3_small", group_norm=32), (3, 32, 32)).num_stats == 0


def test_weights_from_a_file(tmp_path):
    stock = classifier((3, 32, 32), 1000, "squeezenet1_1")
    torch.save(stock.state_dict(), tmp_path / "weights.pt")
    loaded = classifier((1, 32, 32), 10, "squeezenet1_1", weights=str(tmp_path / "weights.pt"))
    given = stock.state_dict()
    same = [key for key, part in loaded.state_dict().items() if torch.equal(part, given.get(key, part[:0]))]
    assert len(same) == len(given) - 3, "all but the first weights and the last weights and biases"


@pytest.mark.parametrize(
    ("options", "content", "line"),
    [
        ({"name": "resnet81"}, None, r"model.name=resnet81 is none of torchvision's classifiers"),
        ({"group_norm": 0}, None, r"model.group_norm=0 must be a whole number, 1 or more, or null: a number of groups"),
        ({"name": "squeezenet1_1", "weights": "w.pt"}, None, r"model.weights=.*w.pt cannot be read \(.*No such file"),
        ({"name": "squeezenet1_1", "weights": "w.pt"}, b"hello", r"model.weights=.*w.pt is no file of torch.save"),
        ({"name": "squeezenet1_1", "weights": "w.pt"}, {"a": torch.zeros(1)}, r"are not those of model.name=squeeze"),
    ],
)
def test_wrong_stock_networks(tmp_path, monkeypatch, options, content, line):
    monkeypatch.chdir(tmp_path)
    if isinstance(content, bytes):
        (tmp_path / "w.pt").write_bytes(content)
    elif content is not None:
        torch.save(content, tmp_path / "w.pt")
    with one_line_error(line):
        classifier((3, 32, 32), 10, **options)


def test_the_dropout_of_stock_networks_is_on_or_off():
    with pytest.raises(ValueError, match=r"model.dropout=0.1 must be true or false"):
        instantiate.build(compose(["model=torchvision", "model.dropout=0.1"]).model)


def test_stock_networks_take_images_only():
    with pytest.raises(ValueError, match=r"model=torchvision takes images \[C, H, W\]"):
        made(classifier, (64,))
