"""numba's compiler, for loops on a CPU that are too slow as tensor operations.

Importing this module takes half a second: import it, and modules that use it, only for large inputs.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llvmlite import binding
from numba import config, njit, types
from numba.core import cgutils, event
from numba.extending import intrinsic

log = logging.getLogger("fedcomp")

_CONFIG: Any = config
_OPTIONS: Any = {"nogil": True, "error_model": "numpy"}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` compiled, without Python's global lock (GIL), and cached on disk where that is possible.

    The cache is under NUMBA_CACHE_DIR, or $XDG_CACHE_HOME/fedcomp (default ~/.cache); where it cannot be written, numba
    takes the file's own folder, or each process compiles again. numba's own threads are not used: its threading layer
    forbids calls from our worker threads. A division by zero gives what NumPy gives: a check would keep a loop from
    using vectors.
    """
    before, _CONFIG.CACHE_DIR = _CONFIG.CACHE_DIR, str(cache_folder())
    try:
        return njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # numba finds no writable folder
        return njit(**_OPTIONS)(function)
    finally:
        _CONFIG.CACHE_DIR = before


@functools.cache
def cache_folder() -> Path:
    """A folder for the present sources of all compiled functions.

    numba compiles again when the file of a function has changed, but not when only what it inlines from another file
    has; so a change of any of the files makes another folder.
    """
    given = os.environ.get("NUMBA_CACHE_DIR")
    root = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedcomp"
    return root / f"numba-{sources_digest(Path(__file__).parents[1])}"


def sources_digest(package: Path) -> str:
    """Of the contents of all files `*_numba.py` in `package`, and of this one."""
    digest = hashlib.blake2b(Path(__file__).read_bytes(), digest_size=6)
    for path in sorted(package.rglob("*_numba.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class _CompileNotice(event.Listener):
    """Tells the user once, at the first compilation, why the process waits."""

    said = False

    def on_start(self, event: Any) -> None:
        if not self.said:
            self.said = True
            log.info(
                "compiling kernels for this processor, once, some 15 s; later runs load them", extra={"note": True}
            )

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _CompileNotice())


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as a part of the compiled functions that call it, where its arguments stay in registers."""
    return njit(forceinline=True, **_OPTIONS)(function)


def _borrowed(_: Any, array: Any) -> Any:
    """An argument as an array whose slices count no references, each of which would be two atomic operations.

    Whoever calls keeps the argument alive; an array that a compiled function made itself would be freed too early.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(array)(context, builder, args[0])
        view.meminfo = view.parent = cgutils.get_null_value(view.meminfo.type)
        return view._getvalue()

    return array(array), generate


borrowed: Any = intrinsic(_borrowed)


def separate(function: Any, *arguments: Any) -> Callable[..., Any]:
    """`function`, for calls by compiled functions, which jump to its code instead of containing a copy.

    LLVM optimises a copy anew in every caller, and in the callers of that, which takes many seconds for large loops.

    Args:
        function: as `compiled` gives it; it must raise no exception. arguments: their types in numba.
    """
    function.compile(arguments)
    found = function.overloads[arguments]
    name, result = f"{function.__module__}.{function.__name__}", found.signature.return_type
    binding.add_symbol(name, found.library.get_pointer_to_function(found.fndesc.llvm_func_name))

    @intrinsic
    def call(_: Any, *given: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            parts = zip(cgutils.unpack_tuple(builder, args[0]), given, arguments, strict=True)
            values = [context.cast(builder, value, old, new) for value, old, new in parts]
            kind = context.call_conv.get_function_type(result, arguments)
            target = cgutils.get_or_insert_function(builder.module, kind, name)
            return context.call_conv.call_function(builder, target, result, arguments, values)[1]

        return result(types.StarArgTuple(given)), generate

    return call
