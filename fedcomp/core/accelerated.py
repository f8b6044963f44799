"""Accelerated forms of computations, which prove themselves before a run relies on them.

An accelerated form (a kernel, a replayed graph, a batched call) computes what a plain form computes, in less time. At
its first use both compute the same inputs of the run, on its device. Where they agree, the run uses the accelerated
form from then on; where they do not, it goes on with the plain form, and one line says so. A form that was refused once
is not tried again by the run, nor by those who resume it.

A form is declared beside its code as a `Form`, and used where `Form.agrees` says so. `safe=true` turns all of them off.
"""

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from fedcomp.core.first_line import first_line

log = logging.getLogger("fedcomp")

FILE = "forms.json"
"""In a run's folder: `Verdicts.dump`."""
AGREES = "agrees"
Tensors = tuple[Tensor, ...]


class DeviceLost(ValueError):
    """The device of this process cannot compute any more; in one line, with the remedy."""


@dataclass(frozen=True)
class Form:
    """An accelerated form: its name as users read it, and what is used instead, in words."""

    name: str
    plain: str

    def agrees(
        self,
        about: str,
        accelerated: Callable[[], Tensors],
        plain: Callable[[], Tensors],
        tolerance: float = 0.0,
        again: bool = False,
        exact: Callable[[], Tensors] | None = None,
    ) -> bool:
        """Whether this run uses the form for what `about` names. Where it is not known, both compute now, plain first.

        Args:
            about: a variant of the form, such as a shape. accelerated, plain: what the two compute, tensor by tensor.
            tolerance: largest norm of a difference relative to the plain tensor's norm; 0: bit for bit.
            again: compare even if the run knows, as each captured graph is something new.
            exact: the same in float64. A form that is no farther from it than the plain one agrees, too: cuDNN's own
                convolutions differ from it by more than the tolerance where they use Winograd's algorithm.
        Raises:
            DeviceLost: the form has left the device unusable.
        """
        if self.refused:
            return False
        name, known = f"{self.name}: {about}", _current
        if name in known.found and not again:
            return True
        with known.lock:
            if self.name not in known.found and (again or name not in known.found):
                reason = _difference(accelerated, plain, tolerance, exact)
                if reason is not None:
                    self.refuse(f"{reason}, for {about}")
                elif name not in known.found:
                    known.add(name, AGREES)
        return self.name not in known.found

    def refuse(self, reason: str) -> None:
        """Use the plain form for the rest of the run, and say why."""
        with _current.lock:
            if self.name not in _current.found:
                log.warning("%s are not used, but %s instead: %s", self.name, self.plain, reason, extra={"note": True})
                _current.add(self.name, reason)

    @property
    def refused(self) -> bool:
        """Whether the run uses the plain form throughout."""
        return is_safe() or _current.found.get(self.name, AGREES) != AGREES


@dataclass
class Verdicts:
    """What a run knows about its accelerated forms.

    Attributes:
        safe: whether all of them are off.
        machine: where they were tried, device and versions in words: on another machine they are tried again.
        found: AGREES by form and variant, "<form>: <about>"; why a form is refused by "<form>".
        keep: called after every change, to write it. lock: held while a form is tried.
    """

    safe: bool = False
    machine: str = ""
    found: dict[str, str] = field(default_factory=dict)
    keep: Callable[[], None] | None = None
    lock: Any = field(default_factory=threading.RLock, repr=False)

    def add(self, name: str, verdict: str) -> None:
        """Keep what was found of a form, or of a variant of it."""
        self.found[name] = verdict
        if self.keep is not None:
            self.keep()

    def dump(self) -> bytes:
        """As a file."""
        return json.dumps({"machine": self.machine, "found": self.found}, indent=1).encode() + b"\n"

    def restore(self, content: bytes) -> None:
        """Take what an earlier session found: refusals in any case, agreement only where it was found here.

        Raises ValueError: the file is damaged.
        """
        read = json.loads(content)
        found: Mapping[str, str] = read["found"]
        here = read["machine"] == self.machine
        self.found |= {name: verdict for name, verdict in found.items() if here or verdict != AGREES}

    def in_words(self) -> tuple[str, ...]:
        """One line a form, for the provenance."""
        if self.safe:
            return ("safe=true: all off",)
        variants: dict[str, int] = {}
        for name in (name for name, verdict in self.found.items() if verdict == AGREES):
            form = name.partition(": ")[0]
            variants[form] = variants.get(form, 0) + 1
        used = [f"{form}: agrees ({num})" for form, num in variants.items() if form not in self.found]
        return (*used, *(f"{form}: refused, {why}" for form, why in self.found.items() if why != AGREES))


class _Thread(threading.local):
    """What this thread does. `plain`: whether it uses no accelerated form."""

    plain = False


_current = Verdicts()
_own = _Thread()


def code_of(name: str) -> ModuleType | None:
    """The module of an accelerated form by its full name; None: its file was deleted, so the plain form is used."""
    return None if find_spec(name) is None else import_module(name)


def judge() -> Verdicts:
    """What the run knows that this process works on."""
    return _current


@contextlib.contextmanager
def judged_by(verdicts: Verdicts) -> Iterator[Verdicts]:
    """Inside, the forms of this process are those that a run knows to agree."""
    global _current
    before, _current = _current, verdicts
    try:
        yield verdicts
    finally:
        _current = before


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """Inside, this thread uses no accelerated form."""
    before, _own.plain = _own.plain, True
    try:
        yield
    finally:
        _own.plain = before


def is_safe() -> bool:
    """Whether all accelerated forms are off."""
    return _current.safe or _own.plain


def check_usable(error: Exception) -> None:
    """Raise DeviceLost unless this process's GPU still computes after an error: after some, every later call fails."""
    if not torch.cuda.is_initialized():
        return
    try:
        torch.ones(1, device="cuda").add_(1).item()
    except torch.OutOfMemoryError:
        return
    except RuntimeError as lost:
        raise DeviceLost(lost_line(error)) from lost


def lost_line(error: Exception) -> str:
    """What to do after an error that leaves the device unusable."""
    remedy = (
        "it happened without accelerated forms, so see the machine's log (dmesg)"
        if is_safe()
        else "run the same command with safe=true, which turns all accelerated forms off"
    )
    return f"the GPU cannot be used by this process any more ({first_line(error)}): {remedy}"


def _difference(
    accelerated: Callable[[], Tensors],
    plain: Callable[[], Tensors],
    tolerance: float,
    exact: Callable[[], Tensors] | None = None,
) -> str | None:
    """What differs, in words; None: the two agree."""
    expected = plain()
    try:
        found = accelerated()
    except (RuntimeError, ValueError, TypeError, ImportError, OSError) as error:
        check_usable(error)
        return f"an error ({first_line(error)})"
    truth: Tensors | None = None
    for place, (one, other) in enumerate(zip(found, expected, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"{one.dtype} {tuple(one.shape)} instead of {other.dtype} {tuple(other.shape)}"
        if not (close(one, other, tolerance) if tolerance else same_bits(one, other)):
            truth = exact() if truth is None and exact is not None else truth
            if truth is not None and close(one, truth[place], _distance(other, truth[place])):
                continue
            far, scale = (float(part.double().norm()) for part in (one.double() - other.double(), other))
            return f"other results (the difference has norm {far:.3g}, the plain result {scale:.3g})"
    return None


def _distance(one: Tensor, other: Tensor) -> float:
    """The norm of the difference, as a share of the norm of `other`."""
    return float((one.double() - other).norm() / other.norm())


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of the same shape have the same bits, wherever they lie."""
    left, right = (part.contiguous().view(-1).view(torch.uint8) for part in (one, other))
    return torch.equal(left.to(right.device), right)


def close(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Whether the norm of the difference is at most `tolerance` times that of `other`."""
    left, right = one.to(other.device).double(), other.double()
    if not torch.equal(left.isfinite(), right.isfinite()):
        return False
    left, right = (torch.nan_to_num(part, 0.0, 0.0, 0.0) for part in (left, right))
    return float((left - right).norm()) <= tolerance * float(right.norm())


def tolerance_of(dtype: torch.dtype | None, device: torch.device) -> float:
    """What two orders of the same products may differ by; `dtype`: of their factors, None: float32."""
    if dtype in (torch.bfloat16, torch.float16):
        return 5e-2
    return 1e-2 if device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32 else 1e-4
