"""A plain federated loop, as most people would write it: the baseline for fedcomp's speed.

One client after another: a copy of the model, `load_state_dict`, a shuffling `DataLoader`, `torch.optim.SGD`,
`loss.backward()`. It uses no code of fedcomp.
"""

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

ClientData = tuple[Tensor, Tensor]


def local_sgd(module: nn.Module, data: ClientData, batch_size: int, steps: int, lr: float) -> None:
    """Train `module` in place by `steps` steps of SGD on one client's (x [n, ...], y [n]), epoch after epoch."""
    module.train()
    optimizer = torch.optim.SGD(module.parameters(), lr=lr)
    loader = DataLoader(TensorDataset(*data), batch_size=batch_size, shuffle=True)
    for _, (x, y) in zip(range(steps), _forever(loader)):
        optimizer.zero_grad()
        functional.cross_entropy(module(x), y).backward()
        optimizer.step()


def naive_round(
    module: nn.Module, clients: Sequence[ClientData], batch_size: int, steps: int, lr: float
) -> dict[str, Tensor]:
    """One round of FedAvg; the mean over clients of their trained parameters and buffers, as a state dict.

    Args:
        module: the global model; not modified.
        clients: (x [n, ...], y [n]) of every client, already normalised and on the module's device.
        batch_size, steps, lr: of every client's local SGD.
    """
    worker = copy.deepcopy(module)
    global_state = copy.deepcopy(module.state_dict())
    total: dict[str, Tensor] = {}
    for data in clients:
        worker.load_state_dict(global_state)
        local_sgd(worker, data, batch_size, steps, lr)
        for name, value in worker.state_dict().items():
            total[name] = total[name] + value if name in total else value.clone()
    return {name: value / len(clients) for name, value in total.items()}


def _forever(loader: DataLoader) -> Iterator[ClientData]:
    while True:
        yield from loader
