"""numba's compiler, for loops on a CPU that are too slow as tensor operations.

Importing this module takes half a second: import it, and modules that use it, only for large inputs.
"""

import contextlib
import fcntl
import functools
import hashlib
import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llvmlite import binding
from numba import config, njit, types
from numba.core import cgutils, event
from numba.extending import intrinsic

BLAS = "scipy.linalg"


def _load_without_blas() -> None:
    """Loads numba's arrays as if there were no BLAS, unless it is loaded already: 16 MiB that no kernel calls.

    A function of the user's own that needs it loads it when it is compiled.
    """
    modules: dict[str, Any] = sys.modules
    modules.setdefault(BLAS, None)  # its import fails, as where SciPy is not installed
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        if modules[BLAS] is None:
            del modules[BLAS]


_load_without_blas()

log = logging.getLogger("fedcomp")

_CONFIG: Any = config
_OPTIONS: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` compiled, without Python's global lock (GIL), and cached on disk where that is possible.

    The cache is under NUMBA_CACHE_DIR, or $XDG_CACHE_HOME/fedcomp (default ~/.cache); where it cannot be written, numba
    takes the file's own folder, or each process compiles again. numba's own threads are not used: its threading layer
    forbids calls from our worker threads. A division by zero gives what NumPy gives: a check would keep a loop from
    using vectors.
    """
    return _jit(function)


def _jit(function: Callable[..., Any], **options: Any) -> Any:
    before, _CONFIG.CACHE_DIR = _CONFIG.CACHE_DIR, str(cache_folder())
    try:
        return njit(cache=True, **_OPTIONS, **options)(function)
    except RuntimeError:  # numba finds no writable folder
        return njit(**_OPTIONS, **options)(function)
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
                "compiling kernels for this processor, once, some 5 to 15 s; later runs load them", extra={"note": True}
            )

    def on_end(self, event: Any) -> None:
        pass


class _OneCompiler(event.Listener):
    """Of the processes that share a cache one compiles, and the others wait and load: sweeps, workers, tests."""

    def __init__(self) -> None:
        self._lock, self._depth, self._file = threading.RLock(), 0, contextlib.ExitStack()

    def on_start(self, event: Any) -> None:
        self._lock.acquire()
        self._depth += 1
        if self._depth == 1:
            with contextlib.suppress(OSError):  # a folder that cannot be written
                cache_folder().mkdir(parents=True, exist_ok=True)
                file = self._file.enter_context((cache_folder() / "lock").open("a"))
                fcntl.flock(file, fcntl.LOCK_EX)

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._file.close()
        self._lock.release()


event.register("numba:compile", _CompileNotice())
event.register("numba:compiler_lock", _OneCompiler())


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


def separate(*arguments: Any) -> Callable[[Any], Any]:
    """A function for calls by compiled functions, which jump to its code instead of containing a copy.

    LLVM optimises a copy anew in every caller, and in the callers of that, which takes many seconds for large loops.

    Args:
        arguments: the function's types in numba. It must raise no exception.
    """

    def decorate(function: Any) -> Any:
        found, name = _compiled_for(function, arguments), f"{function.__module__}.{function.__qualname__}"
        binding.add_symbol(name, _address(found))

        def target(builder: Any, kind: Any, _: Any) -> Any:
            return cgutils.get_or_insert_function(builder.module, kind, name)

        return _call(target, found.signature.return_type, arguments)

    return decorate


def address_of(function: Any, signature: Any) -> int:
    """The address of a function's code, for `called_at` of the same signature in numba."""
    found = _compiled_for(function, signature.args)
    assert found.signature.return_type == signature.return_type
    return _address(found)


def called_at(signature: Any) -> Callable[..., Any]:
    """For compiled functions: a call of the function whose address is the first argument."""

    def target(builder: Any, kind: Any, address: Any) -> Any:
        return builder.inttoptr(address, kind.as_pointer())

    return _call(target, signature.return_type, (types.int64, *signature.args), skipped=1)


def _compiled_for(function: Any, arguments: tuple[Any, ...]) -> Any:
    dispatcher = function if hasattr(function, "overloads") else _jit(function, no_cpython_wrapper=True)
    dispatcher.compile(arguments)
    return dispatcher.overloads[arguments]


def _address(found: Any) -> int:
    return found.library.get_pointer_to_function(found.fndesc.llvm_func_name)


def _call(target: Callable[..., Any], result: Any, arguments: tuple[Any, ...], skipped: int = 0) -> Callable[..., Any]:
    """A call of `target(builder, type, first argument)` with all arguments but those `skipped`."""

    @intrinsic
    def call(_: Any, *given: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            parts = zip(cgutils.unpack_tuple(builder, args[0]), given, arguments, strict=True)
            values = [context.cast(builder, value, old, new) for value, old, new in parts]
            own = arguments[skipped:]
            kind = context.call_conv.get_function_type(result, own)
            called = target(builder, kind, values[0])
            return context.call_conv.call_function(builder, called, result, own, values[skipped:])[1]

        return result(types.StarArgTuple(given)), generate

    return call
