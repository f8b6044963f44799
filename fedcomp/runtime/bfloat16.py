"""Whether this processor computes the bfloat16 products that it claims to.

Some virtual machines list AMX, grant it to a process that asks, and kill the process when it computes. oneDNN, by which
torch computes these products, goes by the list. So a process of its own tries a few before a run depends on them; the
outcome is kept for this machine, version of torch and setting of oneDNN. A processor that lists no instructions for
bfloat16 is not doubted, and nothing is tried: oneDNN computes there with the instructions of float32.
"""

import importlib.metadata
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

from fedcomp.records.cached import cached, keep

VARIABLE, LIMIT = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16"
"""The variable that torch's oneDNN reads, the widest instructions that it may use; and its value that excludes AMX."""
CPUINFO = Path("/proc/cpuinfo")
CLAIMS = {"amx_bf16", "avx512_bf16", "avx_ne_convert"}
"""The flags of processors with instructions for bfloat16."""
PROGRAM = """
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
import torch
one = lambda *shape: torch.ones(shape, dtype=torch.bfloat16)
torch.bmm(one(2, 64, 64), one(2, 64, 64))
torch.nn.functional.conv2d(one(2, 64, 8, 8), one(64, 64, 3, 3))
"""
PATIENCE = 300.0
"""Seconds for the trial; it takes as long as torch takes to be imported."""
FAULTS = (signal.SIGILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE)
"""How a processor ends a process."""
WORKS, NOT_TRIED, UNCLEAR = "tried", "not tried: the processor lists no instructions for them", "the trial failed"


def prepare_bfloat16() -> None:
    """Exclude AMX in this process and those that it starts, if bfloat16 products need that and it is still possible.

    To be called before torch is imported; afterwards, or where the variable is set, it does nothing.
    """
    if "torch" not in sys.modules and VARIABLE not in os.environ and _fault(_tried(None)):
        os.environ[VARIABLE] = LIMIT


def check_bfloat16(asked: str = "precision=bf16", instead: str = "precision=fp32") -> str:
    """What is known about bfloat16 products in this process, in words for its provenance.

    Args:
        asked: what needs them. instead: what does not.
    Raises:
        ValueError: they would kill it.
    """
    setting = os.environ.get(VARIABLE)
    found, under = _tried(setting), f" with {VARIABLE}={setting}" if setting else ""
    if _fault(found):
        raise ValueError(
            f"{asked}: bfloat16 products kill a process on this machine ({found}){under}: set "
            f"{VARIABLE}={LIMIT} in the environment before Python starts, or take {instead}"
        )
    return found + under


def _fault(found: str) -> bool:
    return found in {fault.name for fault in FAULTS}


def _tried(setting: str | None) -> str:
    """What came of the products under this setting: WORKS, NOT_TRIED, UNCLEAR, or the name of the fault."""
    processor = _processor()
    if not CLAIMS & {*processor.get("flags", "").split()}:
        return NOT_TRIED
    machine = [platform.node(), processor.get("model name"), processor["flags"]]
    question = [*machine, importlib.metadata.version("torch"), setting]
    found = cached("bfloat16", question)
    if found is None:
        found = _try(setting)
        if found != UNCLEAR:
            keep("bfloat16", question, found)
    return str(found)


def _try(setting: str | None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment |= {} if setting is None else {VARIABLE: setting}
    command = [sys.executable, "-P", "-c", PROGRAM]  # -P: no file of this folder is taken for a module
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return UNCLEAR
    ended = {-fault: fault.name for fault in FAULTS}
    return WORKS if done.returncode == 0 else ended.get(done.returncode, UNCLEAR)


def _processor() -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo; {} where there is none."""
    try:
        lines = CPUINFO.read_text().partition("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
