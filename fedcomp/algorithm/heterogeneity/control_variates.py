"""What SCAFFOLD and SCALLION share: their state, the corrected local steps, and the scale of compressed changes.

Client i steps along g_i(y) - c_i + c. Over its K_i steps of length eta_l from x to y_i the mean of its gradients is

    (x - y_i) / (K_i eta_l) + c_i - c,

the new c_i (option II). It needs the round's own learning rate, and the client's own number of steps; with momentum,
Adam or clipping a step is no multiple of the corrected gradient. In a round whose learning rate is 0, the last one of
`client.schedule=cosine` or `linear`, nobody moves, which says nothing of gradients: c_i stays.

Shape legend: M clients of the cohort, N clients in all, D parameters, C running statistics.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Metrics
from fedcomp.algorithm.models import ModelState
from fedcomp.algorithm.updates.local_training import training_metrics
from fedcomp.algorithm.updates.metrics import lengths
from fedcomp.client import LocalData, LocalResult, LocalSolver
from fedcomp.client.minibatch import MinibatchSolver
from fedcomp.client.shifted_gradient import shifted_gradient
from fedcomp.compressor import Compressor
from fedcomp.core.cohort import Cohort
from fedcomp.core.validate import check_interval
from fedcomp.server.contract import Slots

ROUNDING = 1e-9
"""How far alpha (1 + omega) may be above 1 by rounding."""


@dataclass(frozen=True)
class ControlState(ModelState):
    """What lives from round to round.

    Attributes:
        control: [D] the server's control variate c, the mean of the c_i of all N clients.
        controls: [N, D] the clients' c_i; those of idle clients stay as they are.
        optimizer: memories of the server optimizer.
    """

    control: Tensor
    controls: Tensor
    optimizer: Slots


def check_mean_gradient(name: str, client: LocalSolver) -> None:
    """Raise ValueError unless a client's change is -eta_l times the sum of its gradients (weight decay included)."""
    given = []
    if client.clip_norm is not None:
        given.append(f"client.clip_norm={client.clip_norm}")
    elif isinstance(client, MinibatchSolver) and client.plain_sgd_decay is None:
        name_of_solver = f"client={type(client).__name__.lower()}"
        given.append(f"client.momentum={client.momentum}" if client.momentum else name_of_solver)
    if given:
        raise ValueError(
            f"{name} computes a mean gradient from where a client got to, which needs plain steps, but {given[0]} was "
            "given: take client=sgd without momentum and clipping"
        )


def check_no_pull(name: str, client: LocalSolver) -> None:
    """Raise ValueError if the local solver has a proximal term, which the method's own correction would take in."""
    if client.proximal:
        raise ValueError(
            f"client.proximal={client.proximal} does not go with {name}, which corrects gradients itself: take "
            "client.proximal=0, or algorithm=fedprox"
        )


def check_alpha(name: str, alpha: float | None, uplink: Compressor) -> None:
    """Raise ValueError for an alpha that is no number in (0, 1], or a codec for which there is none."""
    check_interval("algorithm.alpha", alpha, "(0, 1]", "null for 1 / (1 + omega)", or_null=True)
    codec = uplink.codec
    if not (codec.unbiased or codec.contractive):
        raise ValueError(
            f"{name} needs a compressor that is unbiased or only shrinks, and {type(codec).__name__} as configured is "
            "neither: take randk, qsgd, topk or sign"
        )


def scale_of_changes(alpha: float | None, uplink: Compressor, layers: tuple[int, ...], num_clients: int) -> float:
    """alpha of C(alpha delta): 1 / (1 + omega) for unbiased codecs, 1 for those that only shrink, unless it is given.

    Raises ValueError: the codec has no omega in closed form and none is given; or alpha is above 1 / (1 + omega), with
    which the control variates diverge.
    """
    if uplink.codec.contractive:
        return 1.0 if alpha is None else alpha
    omega, name = uplink.omega(layers, num_clients), type(uplink.codec).__name__
    if omega is None:
        if alpha is None:
            raise ValueError(
                f"algorithm.alpha=null is 1 / (1 + omega), but the variance omega of {name} has no closed form: give "
                "algorithm.alpha"
            )
        return alpha
    largest = 1 / (1 + omega)
    if alpha is None:
        return largest
    if alpha > largest * (1 + ROUNDING):
        raise ValueError(
            f"algorithm.alpha={alpha} is above 1 / (1 + omega) = {largest:.4g} of {name}, and the control variates "
            "would diverge: take algorithm.alpha=null, or less"
        )
    return alpha


def train_corrected(
    client: LocalSolver, start: Tensor, control: Tensor, stats: Tensor, own: Tensor, cohort: Cohort, ctx: Context
) -> tuple[LocalResult, Tensor, Tensor]:
    """Local training along g_i(y) - c_i + c from the model x.

    Args:
        start: [D] x. control: [D] c. stats: [C]. own: [M, D] c_i of the cohort.
    Returns:
        the changes y_i - x [M, D] as `value` of the result; (x - y_i) / (K_i eta_l) - c [M, D], by which c_i is to
        change, 0 at a learning rate of 0; and K_i [M, 1].
    """
    lr = client.learning_rate(ctx.progress)

    def train(data: LocalData, theta: Tensor, stats: Tensor, own: Tensor) -> tuple[LocalResult, Tensor, Tensor]:
        hook = shifted_gradient(data, control - own)
        result = client.run(data, theta, stats, ctx.progress, hook)
        change, num_steps = result.value.sub_(theta), data.num_steps(client.batching)[:, None]
        if not lr:
            return replace(result, value=change), torch.zeros_like(change), num_steps
        mean = change / (-lr * num_steps.clamp(min=1))
        return replace(result, value=change), mean.sub_(control), num_steps

    rows = start.expand(cohort.size, -1), stats.expand(cohort.size, -1), own
    return ctx.clients.map_clients(train, cohort, *rows)


def control_metrics(local: LocalResult, own: Tensor, control: Tensor, controls: Tensor, cohort: Cohort) -> Metrics:
    """The training's; `control/norm` ||c_i|| [M]; `drift/client` mean ||y_i - mean y||^2; `control/sum`.

    The last is the length of c - mean c_i, by the cohort's weights: 0 but for rounding, or for a lossy downlink. It is
    logged where all clients take part; else it would read the rows of all N clients in every round.
    """
    drift = (local.value - local.value.mean(0)).square().sum(1).mean()
    found = {**training_metrics(local), "control/norm": lengths(own), "drift/client": drift}
    if cohort.is_all_of(controls.shape[0]):
        found["control/sum"] = torch.linalg.vector_norm(control - cohort.weight @ controls)
    return found
