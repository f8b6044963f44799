"""Triton's kernels compiled for compute capability 9.0, which needs no GPU; run in processes of their own."""

import inspect
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


def compiled(kernel: Any, pointers: Mapping[str, str], constants: Mapping[str, Any], num_warps: int = 4) -> Any:
    """The compiled kernel.

    Args:
        pointers: types of the arguments that are not int32. constants: values of those that are `constexpr`.
    Raises:
        AssertionError: registers spill into memory.
    """
    names = list(inspect.signature(kernel.fn).parameters)
    types = {name: "constexpr" if name in constants else pointers.get(name, "i32") for name in names}
    source = ASTSource(kernel, types, {name: constants[name] for name in names if name in constants})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": num_warps})
    assert spilled_bytes(made) == 0, f"{kernel.fn.__name__} with {dict(constants)} spills registers"
    return made


def spilled_bytes(made: Any) -> int:
    """Bytes of a thread's stack, where registers go that do not fit."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        shown = subprocess.run([CUOBJDUMP, "-res-usage", file.name], check=True, capture_output=True, text=True).stdout
    return sum(int(size) for size in re.findall(r"STACK:(\d+)", shown))
