"""torchvision's classifiers, for any number of channels and classes: `model=torchvision model.name=resnet18`."""

import math
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
from torch import nn

from fedcomp.core.first_line import first_line
from fedcomp.core.ranges import Whole, checked
from fedcomp.core.validate import as_typed, suggest
from fedcomp.model.networks.cnn import image_shape


@checked("model.")
def classifier(
    input_shape: Sequence[int],
    num_outputs: int,
    name: str = "resnet18",
    weights: str | None = None,
    group_norm: Annotated[int | None, Whole(meaning="a number of groups; null for BatchNorm")] = None,
    dropout: bool = True,
) -> nn.Module:
    """The network `name` with its first convolution for the images' channels and `num_outputs` outputs.

    Args:
        weights: a file with the network's `state_dict`, as torchvision or `torch.save` writes it. Tensors of the first
            convolution and of the last layer that have other shapes keep their random first values. None: all do.
        group_norm: GroupNorm instead of every BatchNorm2d, with as many groups as divide both its channels and this
            number. None: BatchNorm stays.
    Raises:
        ValueError: no such network, or weights that are missing, cannot be read or belong to another network.
    """
    from torchvision import models  # here, for it takes a second to import
    from torchvision.ops import StochasticDepth

    channels, _, _ = image_shape("torchvision", input_shape, smallest=1)
    classifiers = models.list_models(module=models)
    if name not in classifiers:
        known = suggest(str(name), classifiers)
        raise ValueError(f"model.name={as_typed(name)} is none of torchvision's classifiers{known}")
    network: nn.Module = models.get_model(name, weights=None, num_classes=num_outputs)
    _take_channels(network, channels)
    for part in network.modules() if not dropout else ():
        if isinstance(part, nn.modules.dropout._DropoutNd | StochasticDepth):
            part.p = 0.0
        elif isinstance(part, nn.MultiheadAttention):
            part.dropout = 0.0
    if group_norm is not None:
        _replace_batch_norm(network, group_norm)
    if weights is not None:
        _load(network, name, Path(weights).expanduser())
    return network


def _take_channels(network: nn.Module, channels: int) -> None:
    """Gives the first convolution as many input channels, with weights of torch's own first distribution."""
    first = next(part for part in network.modules() if isinstance(part, nn.Conv2d))
    if first.in_channels != channels:
        first.in_channels = channels
        first.weight = nn.Parameter(torch.empty(first.out_channels, channels, *first.kernel_size))
        first.reset_parameters()


def _replace_batch_norm(network: nn.Module, groups: int) -> None:
    for part in list(network.modules()):
        for child, layer in part.named_children():
            if isinstance(layer, nn.BatchNorm2d):
                setattr(part, child, nn.GroupNorm(math.gcd(groups, layer.num_features), layer.num_features, layer.eps))


def _load(network: nn.Module, name: str, file: Path) -> None:
    """Loads what fits; ValueError unless that is all but the first convolution and the last layer."""
    try:
        given = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ValueError(f"model.weights={file} cannot be read ({first_line(error)})") from None
    except (RuntimeError, ValueError, LookupError, EOFError, pickle.UnpicklingError):
        raise ValueError(f"model.weights={file} is no file of torch.save: give one with a state_dict") from None
    own = network.state_dict()
    if not isinstance(given, dict) or given.keys() != own.keys():
        differ = sorted(set(own) ^ set(given)) if isinstance(given, dict) else ["it is no state_dict"]
        raise ValueError(f"model.weights={file} are not those of model.name={name}: {', '.join(differ[:3])}")
    layers = [key.rpartition(".")[0] for key, part in own.items() if part.dim() > 1]
    free = (layers[0], layers[-1])
    fitting = {key: tensor for key, tensor in given.items() if tensor.shape == own[key].shape}
    wrong = [key for key in own if key not in fitting and key.rpartition(".")[0] not in free]
    if wrong:
        key = wrong[0]
        raise ValueError(
            f"model.weights={file}: {key} is {tuple(given[key].shape)}, but that of model.name={name} is "
            f"{tuple(own[key].shape)}"
        )
    network.load_state_dict(own | fitting)
