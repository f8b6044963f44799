"""Builds the model of a run from a module or a factory: the fastest form that computes the same."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fedcomp.core.first_line import first_line
from fedcomp.core.free_memory import free_bytes
from fedcomp.model import hidden_state
from fedcomp.model.batched.backward.compiled_network import CompiledNetwork, CompiledPerceptron
from fedcomp.model.batched.backward.dense import dense_layers
from fedcomp.model.batched.backward.mlp import Perceptron
from fedcomp.model.batched.backward.small_network import small_network
from fedcomp.model.batched.dropout import UnkeyedDraw, trial_draws
from fedcomp.model.batched.folded import Folded, foldable
from fedcomp.model.batched.functional import Functional
from fedcomp.model.batched.padding import random_inputs
from fedcomp.model.batched.stacked import Stacked
from fedcomp.model.batched.translate import translate
from fedcomp.model.contract import AnyModel, Model, TaskModel
from fedcomp.model.flat import Make, Redrawn, copy_sharing_frozen, draw, frozen_tensors, reset, trained_parameters
from fedcomp.model.loss import loss_of, training_loss
from fedcomp.model.module_check import check_module, note_trial
from fedcomp.random.global_draws import NUMPYS, PYTHONS, no_global_draws
from fedcomp.random.keys import Key

Factory = Callable[..., Any]
"""Makes a torch.nn.Module or a `TaskModel`."""


def build(
    factory: Factory | nn.Module,
    key: Key,
    input_shape: tuple[int, ...],
    num_outputs: int,
    task: str,
    train: Iterable[Tensor] = (),
    precision: str = "fp32",
    target_shape: tuple[int, ...] = (),
    vocab_size: int | None = None,
    unlabelled: str = "ignored",
    some_tokens: bool = False,
    padding_token: int | None = None,
) -> AnyModel:
    """The model of a run.

    Args:
        factory: makes the module (a function, a class, a partial of one), given those of `input_shape`, `num_outputs`,
            `task`, `train`, `target_shape`, `vocab_size` and `padding_token` that its signature names and that are not
            bound already; or a ready module, whose weights are drawn anew by its parts' `reset_parameters()`. To keep
            pretrained weights, give a function that loads them. It may also make a `TaskModel`, which is used as it is.
        key: draws the first weights of `model.module`; `model.init(key)` draws the same.
        input_shape: of one sample, (F,), (C, H, W) or, of tokens, (L,).
        num_outputs: classes or regression targets.
        task: as in `Dataset`.
        train: batches [B, ...] of the training inputs, for models whose metrics compare with a solution on all data.
        precision: of the products in training, see `precision.py`.
        target_shape: T of one sample's targets; outputs are [B, num_outputs, *T], for segmentation in training also
            [B, A, num_outputs, *T].
        vocab_size: of inputs that are tokens, int64; None: inputs are floats.
        unlabelled, some_tokens, padding_token: as in `Dataset`.
    Returns:
        the factory's own `TaskModel`; else `Functional` for modules that are no chain of known layers, `Folded` for
        those with adapters alone, `Perceptron` for Flatten, Linear and ReLU, and `Stacked` for the rest; of these,
        `CompiledPerceptron` and `CompiledNetwork` are the compiled forms, for a `SmallNetwork`.
    Raises:
        ValueError: the module does not take such inputs or give such outputs, draws random numbers that cannot come
            from the run's keys, or cannot be initialised from a key.
    """
    loss = loss_of(task)
    make: Make
    if isinstance(factory, nn.Module):
        ready = factory
        name, make = type(ready).__name__, lambda: reset(ready)
    else:
        name = _name(factory)
        given = {
            "input_shape": tuple(input_shape),
            "num_outputs": num_outputs,
            "task": task,
            "train": train,
            "target_shape": tuple(target_shape),
            "vocab_size": vocab_size,
            "padding_token": padding_token,
        }
        make = functools.partial(factory, **_named(factory, given))
        if "train" not in make.keywords:  # such a factory reads the training data, which the check would read too
            _check_size(make, name)
    remedy = "draw with torch, whose draws come from the run's seed there"
    with no_global_draws(f"model {name}", remedy, of=(NUMPYS, PYTHONS)):
        module = draw(make, key)
    if isinstance(module, TaskModel):
        if precision == "bf16":
            raise ValueError(
                f"precision=bf16 is for networks, and model {name} is not a network: take precision=fp32 or tf32"
            )
        return module
    if not isinstance(module, nn.Module):
        raise ValueError(f"model {name} made a {type(module).__name__}; it must make a torch.nn.Module")
    if isinstance(module, Redrawn):
        make = module.redraw
    check_module(module, name)
    if not trained_parameters(module):
        frozen = " that are not frozen (requires_grad=False)" if frozen_tensors(module) else ""
        raise ValueError(f"model {name} has no parameters{frozen}; there is nothing to train")
    x = random_inputs(4, tuple(input_shape), vocab_size, torch.Generator().manual_seed(0))
    _check_shapes(module, name, x[:2], (num_outputs, *target_shape))
    takes_features = vocab_size is None and not target_shape and len(input_shape) in (1, 3) and not some_tokens
    chain = translate(module, images=len(input_shape) == 3) if takes_features else None
    if chain is None:
        _check_repeatable(module, name, x)
        note_trial(module, name, x, num_outputs if task != "regression" else 0)
        loss_in_training = training_loss(task, unlabelled, some_tokens)
        form = Folded if foldable(module) else Functional
        return form(module, loss_in_training, tuple(input_shape), make, precision, vocab_size)
    perceptron = dense_layers(Model(module), chain) is not None
    small = small_network(Model(module), chain, loss, tuple(input_shape)) if precision == "fp32" else None
    if small is None:
        return (Perceptron if perceptron else Stacked)(module, loss, make, precision)
    return (CompiledPerceptron if perceptron else CompiledNetwork)(module, loss, small, make)


def _name(factory: Factory) -> str:
    """What errors call the model: its class or function, or the user's own."""
    if isinstance(factory, functools.partial):
        ours = str(factory.func.__module__).startswith("fedcomp.")
        given = [factory.keywords.get(key) for key in ("path", "name") if ours]  # of one's own, a folder, torchvision's
        return str(next((name for name in given if name is not None), None) or _name(factory.func))
    return getattr(factory, "__name__", type(factory).__name__)


def _named(factory: Factory, given: dict[str, object]) -> dict[str, object]:
    """The arguments in `given` that the factory's signature names and no partial has bound."""
    bound = factory.keywords if isinstance(factory, functools.partial) else {}
    try:
        accepted = inspect.signature(factory).parameters
    except ValueError:  # a builtin without a signature
        return {}
    return {name: value for name, value in given.items() if name in accepted and name not in bound}


class _SkipNormalDraws(TorchFunctionMode):
    """Skips `normal_`: on the meta device torch would load its compiler for it, 150 MiB and two seconds."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function.__name__ == "normal_":  # `Tensor.normal_`, or `nn.init.normal_`, which gives the tensor by name
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def _check_size(make: Make, name: str) -> None:
    """ValueError if the module's parameters do not fit into memory, the trained ones twice; nothing is allocated.

    A factory that cannot be called without allocating, such as one that loads weights, is not checked.
    """
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"), _SkipNormalDraws():
            module = make()
        sizes = [tensor.nbytes * (2 if tensor.requires_grad else 1) for tensor in module.parameters()]
    except (RuntimeError, NotImplementedError, ValueError, TypeError, AttributeError, OSError):
        return
    needed, free = sum(sizes), free_bytes(torch.device("cpu"))
    if needed > free:
        raise ValueError(
            f"model {name} needs {needed / 2**30:,.1f} GiB for its parameters and a copy, but {free / 2**30:.1f} GiB "
            "are free: take a smaller model"
        )


def _check_shapes(module: nn.Module, name: str, x: Tensor, output_shape: tuple[int, ...]) -> None:
    """ValueError unless the samples x [B, ...] give [B, *output_shape]."""
    module.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            outputs = module(torch.zeros_like(x))
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        reason = first_line(error)
        tokens, other = ("", " or its sizes") if x.is_floating_point() else (" of tokens", ", such as char_gpt or hf")
        raise ValueError(
            f"model {name} does not take inputs of shape {tuple(x.shape[1:])}{tokens}, as the dataset gives them "
            f"({reason}); choose another model{other}"
        ) from error
    finally:
        module.train()
    if not isinstance(outputs, Tensor):
        raise ValueError(f"model {name} gives a {type(outputs).__name__}; it must give one tensor")
    got = tuple(outputs.shape)
    if got != (len(x), *output_shape):
        remedy = f"; set its number of outputs to {output_shape[0]}" if len(output_shape) == 1 else ""
        if len(output_shape) == 3:
            remedy = ", a class for each pixel: take model=bisenetv2, or a network that gives [B, classes, H, W]"
        raise ValueError(f"model {name} gives outputs of shape {got[1:]}, the dataset needs {output_shape}{remedy}")


def _check_repeatable(module: nn.Module, name: str, x: Tensor) -> None:
    """ValueError if `module` draws random numbers that cannot come from the run's keys, or any in evaluation.

    Or if it keeps state that is neither a parameter nor a buffer. Copies are called, so that its running statistics
    stay, on several samples x [B, ...], which BatchNorm needs.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before, written = torch.get_rng_state(), x._version
        try:
            tried = copy_sharing_frozen(module).train()
            start = hidden_state.buffers(tried)
            first, second = (_tried(one, x)[0] for one in (tried, copy_sharing_frozen(module).train()))
            counts = hidden_state.changed_count(tried, start)
            constant = None
            if hidden_state.changed_constant(tried, start) is not None:  # unless filled once, whatever the inputs are
                filled = hidden_state.buffers(tried)
                _tried(tried, x[[0] * len(x)])
                constant = hidden_state.changed_constant(tried, filled)
            hidden_state.set_buffers(tried, start)
            before_again = hidden_state.attributes(tried)  # after a first call, in which it may fill caches
            again, _ = _tried(tried, x)
            state = hidden_state.changed(before_again, hidden_state.attributes(tried))
            _, drawn_in_evaluation = _tried(copy_sharing_frozen(module).eval(), x)
        except UnkeyedDraw as error:
            raise ValueError(f"model {name} {error.what}") from None
        except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
            reason = first_line(error)
            raise ValueError(f"model {name} cannot be called in training mode ({reason}); choose another") from error
        drawn = not torch.equal(torch.get_rng_state(), before)
    if not isinstance(first, Tensor):
        raise ValueError(f"model {name} gives a {type(first).__name__} in training mode; it must give one tensor")
    if x._version != written:
        raise ValueError(
            f"model {name} writes into its input, which is the run's: take x = x - 1 instead of x -= 1, and no "
            "inplace=True there"
        )
    if constant is not None:
        raise ValueError(
            f"model {name} changes its buffer {constant} in training, which persistent=False makes a constant: what it "
            "becomes would be neither kept, nor sent, nor saved; register it without persistent=False, as a statistic "
            "that is sent, or leave it as it is in training"
        )
    if drawn or not torch.equal(first.nan_to_num(), second.nan_to_num()):
        raise ValueError(
            f"model {name} draws random numbers in training by other means than torch's operations, such as NumPy, or "
            f"counts its calls: a run could not be repeated; use torch's dropout, or leave them out"
        )
    if state is not None or not torch.equal(first.nan_to_num(), again.nan_to_num()):
        what = "a second call gives other outputs" if state is None else f"a call changes its attribute {state}"
        raise ValueError(
            f"model {name} keeps state outside its parameters and buffers: {what}; a resumed run would give other "
            "numbers: make it a floating-point buffer (register_buffer), or leave it out"
        )
    if counts is not None:
        raise ValueError(
            f"model {name} changes its buffer {counts}, which holds no floating-point numbers, in training: only "
            "those are kept from step to step; make it one, or leave it out"
        )
    if drawn_in_evaluation:
        raise ValueError(
            f"model {name} draws random numbers in evaluation mode too; with torch.nn.functional.dropout, give "
            f"training=self.training"
        )


def _tried(module: nn.Module, x: Tensor) -> tuple[Any, int]:
    """Outputs, and the number of draws, with draws from a fixed key."""
    with trial_draws() as mode:
        return module(x), mode.calls
