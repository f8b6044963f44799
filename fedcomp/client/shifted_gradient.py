"""A gradient hook that adds a linear term: what proximal terms and control variates have in common.

    gradient + weight * theta + shift_i

FedProx has weight mu and shift -mu x, FedDyn alpha and -alpha x - grad_i, SCAFFOLD 0 and c - c_i. The loss that is
logged stays the plain one.

Shape legend: M clients of a chunk, A of them still at work, D parameters.
"""

from torch import Tensor

from fedcomp.client.contract import GradFn, LocalData
from fedcomp.client.hook import Hook, Reads
from fedcomp.model.contract import Batch, Gradient
from fedcomp.random.keys import Key


def shifted_gradient(
    data: LocalData, shift: Tensor, weight: float | Tensor = 0.0, grad_fn: GradFn | None = None
) -> GradFn:
    """The hook `grad_fn` (None: the plain gradient) with `weight * theta + shift` added.

    Args:
        shift: [M, D]. weight: one for all clients, or [M, 1].

    Returns:
        a `Hook`, which can be captured in a CUDA graph; if `grad_fn` is another kind of function, one of its kind.
    """
    added = (shift, weight) if isinstance(weight, Tensor) else (shift,)
    if grad_fn is not None and not isinstance(grad_fn, Hook):
        inner = grad_fn

        def step_by_step(theta: Tensor, batch: Batch, step: int) -> Gradient:
            return _add(inner(theta, batch, step), theta, shift, weight)

        return step_by_step
    hook = grad_fn or Hook(lambda theta, batch, reads: data.gradient(theta, batch, reads.step), "plain", (), (), Key())

    def gradient(theta: Tensor, batch: Batch, reads: Reads) -> Gradient:
        rows = reads.rows[len(added) :]
        plain = hook.function(theta, batch, Reads(reads.step, rows, reads.shared, reads.draws))
        return _add(plain, theta, reads.rows[0], reads.rows[1] if isinstance(weight, Tensor) else weight)

    name = "shifted", "rows" if isinstance(weight, Tensor) else weight, hook.name
    return Hook(gradient, name, (*added, *hook.rows), hook.shared, hook.key)


def _add(plain: Gradient, theta: Tensor, shift: Tensor, weight: float | Tensor) -> Gradient:
    num_rows = theta.shape[0]
    grad = plain.grad + shift[:num_rows]
    if isinstance(weight, Tensor):
        grad.addcmul_(theta, weight[:num_rows])
    elif weight:
        grad.add_(theta, alpha=weight)
    return Gradient(grad, plain.loss, plain.stats)
