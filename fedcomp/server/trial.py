"""What a server optimizer of the user's own does with two small updates, before the first round."""

import inspect
import logging
from typing import Any

import torch
from torch import Tensor

from fedcomp.core.folders import name_of
from fedcomp.server.contract import ServerOptimizer, Slots

log = logging.getLogger("fedcomp")

UPDATES = torch.tensor([[0.1, -0.2, 0.3, 0.05], [0.2, -0.1, 0.1, 0.3]])
"""[2, D] changes of a model of zeros."""
MODEL = torch.tensor([40.0, -70.0, 90.0, 110.0])
"""[D] a model far from the length of a step."""


def tried(optimizer: ServerOptimizer) -> ServerOptimizer:
    """The optimizer itself. One that goes against the update, or whose memory stays as it was, is said.

    Raises ValueError: a step is not of (update, slots, theta), is no (float32 [D], slots), makes slots of other shapes,
    is not finite, writes into what it is given (as init may not), is another one when it is made again, or is the model
    after the step.
    """
    if type(optimizer).__module__.startswith("fedcomp."):
        return optimizer
    where, model = f"server={name_of(optimizer)}", MODEL.clone()
    optimizer.init(model)
    if not torch.equal(model, MODEL):
        raise ValueError(f"{where}: init writes into the model, with which the run begins: make new tensors")
    slots = optimizer.init(torch.zeros(UPDATES.shape[1]))
    if not isinstance(slots, tuple) or not all(isinstance(one, Tensor) for one in slots):
        raise ValueError(f"{where}: init must return a tuple of tensors, its memory, which is () if it has none")
    try:
        inspect.signature(optimizer.step).bind(UPDATES[0], slots, MODEL)
    except TypeError as error:
        raise ValueError(f"{where}: step must take (update, slots, theta): {error}") from error
    theta = torch.zeros(UPDATES.shape[1])
    for number, update in enumerate(UPDATES):
        given = update.clone(), tuple(one.clone() for one in slots), theta.clone()
        made, again = optimizer.step(*given), optimizer.step(*given)
        if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], Tensor)):
            raise ValueError(f"{where}: step returned a {type(made).__name__}, but must return (step, slots)")
        step, new = made
        if step.dtype != update.dtype or step.shape != update.shape:
            raise ValueError(
                f"{where}: a step is {step.dtype} {tuple(step.shape)}, but must be float32 [D], as the update"
            )
        if _form(new) != _form(slots):
            raise ValueError(
                f"{where}: the memory is {_form(slots)} before step {number + 1} and {_form(new)} after it, but it is "
                "a tuple that keeps its tensors, their shapes and types, so that a run can be resumed"
            )
        if not bool(step.isfinite().all()):
            raise ValueError(f"{where}: step {number + 1} is {step.tolist()} for the update {update.tolist()}")
        if not all(map(torch.equal, (given[0], *given[1], given[2]), (update, *slots, theta))):
            raise ValueError(f"{where}: step writes into the tensors that it is given: make new ones")
        if not torch.equal(step, again[0]):
            raise ValueError(
                f"{where}: step gives another step for the same update, slots and theta, so that no run could be "
                "resumed: what it remembers is in slots, and it draws nothing"
            )
        if number == 0:
            _note(where, float(step @ update), slots, new)
        slots, theta = new, theta + step
    step, _ = optimizer.step(UPDATES[0].clone(), optimizer.init(MODEL.clone()), MODEL.clone())
    if float(step @ MODEL) > 0.5 * float(MODEL @ MODEL):
        raise ValueError(f"{where}: step returned the model after the step, but must return what is added to the model")
    return optimizer


def _form(slots: Any) -> str:
    if not isinstance(slots, tuple) or not all(isinstance(one, Tensor) for one in slots):
        return f"a {type(slots).__name__}"
    return f"[{', '.join(f'{one.dtype} {tuple(one.shape)}' for one in slots)}]"


def _note(where: str, along: float, slots: Slots, new: Slots) -> None:
    """Say what is odd of the first step, whose product with the update is `along`, and of the memory after it."""
    if along < 0:
        _say(f"{where} steps against the mean update, which is added to the model and is no gradient: turn the sign")
    if slots and all(map(torch.equal, slots, new)):
        _say(f"{where} returns the slots that it was given, so that it remembers nothing: return the new ones")


def _say(text: str) -> None:
    log.warning("warning: %s", text, extra={"note": True})
