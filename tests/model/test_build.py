"""Models from factories: sizes from the papers, first weights from keys, errors of one clear line."""

import functools
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from torch import nn

from fedcomp.core.choices import options
from fedcomp.model.batched.backward.mlp import Perceptron
from fedcomp.model.batched.functional import Functional
from fedcomp.model.batched.stacked import Stacked
from fedcomp.model.build import build
from fedcomp.model.loss import loss_of
from fedcomp.model.networks.cnn import cnn4, cnn6, lenet5
from fedcomp.model.networks.cnn_bn import cnn4_bn, cnn8_bn
from fedcomp.model.networks.linear import linear, logistic
from fedcomp.model.networks.mlp import mlp
from fedcomp.random.keys import Key
from tests.looped import looped
from tests.model.test_gradient import check
from tests.refused import one_line_error

CONF = Path(__file__).parents[2] / "conf" / "model"
KEY = Key(("run", 0, "model"))
MNIST, CIFAR, DIGITS = (1, 28, 28), (3, 32, 32), (64,)


def made(factory, shape, num_outputs=10, task="classification", key=KEY):
    return build(factory, key, shape, num_outputs, task, [torch.rand(5, *shape)])


@looped(
    "factory, shape, num_outputs, dim, num_stats",
    [
        (lenet5, MNIST, 10, 61_706, 0),
        (cnn4, MNIST, 10, 1_933_258, 0),
        (cnn6, CIFAR, 10, 2_262_602, 0),
        (cnn4_bn, MNIST, 10, 390_880, 960),
        (cnn4_bn, CIFAR, 10, 399_136, 960),
        (cnn8_bn, CIFAR, 10, 1_183_456, 1_920),
        (cnn8_bn, CIFAR, 100, 1_275_616, 1_920),
        (functools.partial(mlp, hidden=(3, 2)), DIGITS, 10, 233, 0),
        (mlp, DIGITS, 10, 2_410, 0),
        (linear, DIGITS, 10, 650, 0),
        (functools.partial(linear, bias=False), DIGITS, 10, 640, 0),
    ],
)
def test_parameter_counts(factory, shape, num_outputs, dim, num_stats):
    model = made(factory, shape, num_outputs)
    assert (model.dim, model.num_stats) == (dim, num_stats)
    assert sum(model.layers) == dim
    theta, stats = model.init(KEY)
    assert theta.shape == (dim,)
    assert stats.shape == (num_stats,)
    assert theta.dtype == stats.dtype == torch.float32


@pytest.mark.thorough
@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_option_of_the_config_group(path):
    needs_more = {"module": "model.path is None", "hf": r"model=hf (needs|reads)"}
    if path.stem in needs_more:
        with pytest.raises(ValueError, match=needs_more[path.stem]):
            made(instantiate(options(path)), CIFAR)
        return
    digits = path.stem in ("mlp", "mlp_digits_233", "linear", "logistic", "principal_direction")
    shape, num_outputs, more = DIGITS if digits else CIFAR, 10, {"task": "classification"}
    if path.stem.startswith("char_"):
        shape, num_outputs, more = (80,), 80, {"task": "next_token", "vocab_size": 80}
    if path.stem == "bisenetv2":
        more = {"task": "segmentation", "target_shape": (32, 32)}
    factory = instantiate(options(path), **({"width": 0.1} if path.stem == "bisenetv2" else {}))
    model = build(factory, KEY, shape, num_outputs, train=[torch.rand(5, *shape)], **more)
    theta, stats = model.init(KEY)
    if getattr(model, "kind", "network") != "network":  # what tasks learn is no network and has no outputs
        assert theta.shape == (model.dim,)
        return
    outputs = model.outputs(theta, stats, torch.zeros(2, *shape, dtype=torch.int64 if "vocab_size" in more else None))
    assert outputs.shape == (2, num_outputs, *more.get("target_shape", ()))


def test_first_weights_follow_the_key_and_nothing_else():
    state = torch.get_rng_state()
    model = made(cnn4_bn, MNIST)
    theta, stats = model.init(KEY)
    torch.rand(5)
    assert torch.equal(model.init(KEY)[0], theta)
    assert torch.equal(made(cnn4_bn, MNIST).init(KEY)[0], theta)
    assert not torch.equal(model.init(KEY.fold_in(1))[0], theta)
    assert torch.equal(nn.utils.parameters_to_vector(model.module.parameters()), theta)
    assert torch.equal(stats, torch.cat([torch.tensor([0.0, 1.0]).repeat_interleave(c) for c in (32, 64, 128, 256)]))
    torch.set_rng_state(state)
    draws = torch.rand(3)
    torch.set_rng_state(state)
    model.init(KEY)
    assert torch.equal(torch.rand(3), draws)


def test_fedmrn_weights_have_their_deviation():
    theta, _ = made(cnn8_bn, CIFAR).init(KEY)
    # 288 weights of the first convolution would do for a mean; the last 9,000 for a deviation within 4 errors.
    last = theta[-2_560:]
    assert abs(last.std() - 0.01) < 4 * 0.01 / (2 * 2_560) ** 0.5


def test_a_ready_module_is_drawn_anew_from_the_key():
    ready = nn.Sequential(nn.Linear(64, 3), nn.ReLU(), nn.Linear(3, 10))
    model = made(ready, DIGITS)
    assert isinstance(model, Perceptron)
    first = model.init(KEY)[0]
    assert not torch.equal(model.init(KEY.fold_in(1))[0], first)
    assert torch.equal(model.init(KEY)[0], first)


def test_a_function_may_keep_pretrained_weights():
    ready = nn.Sequential(nn.Linear(64, 10))
    before = nn.utils.parameters_to_vector(ready.parameters()).clone()
    assert torch.equal(made(lambda: ready, DIGITS).init(KEY)[0], before)


class Residual(nn.Module):
    """A user's module with a branch, LayerNorm and tied weights; names only what it needs."""

    def __init__(self, input_shape, num_outputs, width=8):
        super().__init__()
        self.first = nn.Linear(input_shape[0], width)
        self.norm = nn.LayerNorm(width)
        self.second = nn.Linear(width, width)
        self.third = nn.Linear(width, width)
        self.third.weight = self.second.weight
        self.last = nn.Linear(width, num_outputs)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.last(x + self.third(torch.relu(self.second(self.norm(x)))))


@looped("real", [None, (3, 0, 5)])
def test_any_module_runs_by_the_fallback(real):
    model = made(functools.partial(Residual, width=5), (6,), 4)
    assert isinstance(model, Functional)
    check(model, loss_of("classification"), 3, 5, real, (6,), 4, "classification")


def test_bound_sizes_are_kept_and_weight_sharing_is_one_parameter():
    shared = nn.Linear(4, 4)
    model = made(lambda num_outputs: nn.Sequential(shared, nn.ReLU(), shared), (4,), 4)
    assert isinstance(model, Stacked)
    assert model.dim == 20
    check(model, loss_of("classification"), 3, 5, None, (4,), 4, "classification")
    assert made(functools.partial(mlp, num_outputs=10), DIGITS).dim == 2_410


def chain(*layers):
    return lambda: nn.Sequential(*layers)


@looped(
    "factory, shape, task, message",
    [
        (lenet5, DIGITS, "classification", r"model=lenet5 takes images .* the dataset gives \(64,\); choose model=mlp"),
        (cnn4_bn, (1, 8, 8), "classification", r"at least 16x16 pixels, the dataset gives \(1, 8, 8\)"),
        (logistic, DIGITS, "regression", r"model=logistic is for classification.*choose model=linear"),
        (linear, DIGITS, "ranking", r"task is 'ranking'; allowed are"),
        (functools.partial(mlp, hidden=(4, 0)), DIGITS, "classification", r"model.hidden is \[4, 0\]"),
        (functools.partial(mlp, num_outputs=7), DIGITS, "classification", r"outputs of shape \(7,\).*needs \(10,\)"),
        (chain(nn.Linear(60, 10)), DIGITS, "classification", r"does not take inputs of shape \(64,\)"),
        (chain(nn.Linear(28, 10)), MNIST, "classification", r"outputs of shape \(1, 28, 10\)"),
        (chain(nn.Linear(64, 10).requires_grad_(False)), DIGITS, "classification", "no parameters that are not frozen"),
        (lambda: 3, DIGITS, "classification", r"made a int; it must make a torch.nn.Module"),
        (nn.Flatten(), (10,), "classification", r"has no parameters"),
    ],
)
def test_errors_are_one_clear_line(factory, shape, task, message):
    with one_line_error(message):
        made(factory, shape, task=task)


def test_an_instance_that_cannot_be_drawn_anew_is_refused():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(10))

        def forward(self, x):
            return x * self.scale

    with pytest.raises(ValueError, match=r"part 'top' \(Scale\) has parameters but no reset_parameters"):
        made(Scale(), (10,))
    assert isinstance(made(Scale, (10,)), Functional)


def test_a_model_that_fits_no_memory_is_one_line_before_it_is_made() -> None:
    says = r"^model mlp needs 7,45\d\.\d GiB for its parameters .*: take a smaller model$"
    with pytest.raises(ValueError, match=says):
        build(functools.partial(mlp, hidden=[1_000_000, 1_000_000]), Key(), (64,), 10, "classification")


@pytest.mark.thorough
def test_the_size_of_a_model_is_found_without_torchs_compiler() -> None:
    """Which normal draws on the meta device would load: 150 MiB and two seconds of every run."""
    program = """
import sys
from fedcomp.model.build import build
from fedcomp.model.networks.cnn import cnn4
from fedcomp.random.keys import Key
assert build(cnn4, Key(), (1, 28, 28), 10, "classification").init(Key())[0].std() > 0
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
