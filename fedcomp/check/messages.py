"""Messages at the edge: damaged and foreign ones, and ones that another process decodes from their bytes."""

import pickle
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from fedcomp.check.codec import TYPICAL, CodecCase, common, encode, rows
from fedcomp.check.failed import Failed, described, require
from fedcomp.compressor.dense import Dense
from fedcomp.core.folders import CONF
from fedcomp.random.keys import Key
from fedcomp.wire import Payload, WireError
from fedcomp.wire.packing import layout, pack, unpack

CPU = torch.device("cpu")
DAMAGED = 12


def check_damaged(case: CodecCase) -> None:
    """Messages that are cut, padded or damaged are refused with a WireError, or decoded to as many entries."""
    for layers in case.layers():
        payload = encode(case, rows(1, layers), common(1, layers))
        message, where = pack(payload, 0), f"a vector of {sum(layers)} entries"
        taken = partial(_received, case, layers, payload)
        require(taken(message, where), f"{where}: its own message is refused")
        for more in (b"\0", b"\xff", bytes(9)):
            require(not taken(message + more, where), f"{where}: a message with {len(more)} bytes more is taken")
        if message:
            require(not taken(message[:-1], where), f"{where}: a message without its last byte is taken")
            for bit in Key(("damaged",)).bits(torch.arange(DAMAGED), 1)[:, 0].tolist():
                other = bytearray(message)
                other[bit // 8 % len(other)] ^= 1 << bit % 8
                taken(bytes(other), f"{where}, bit {bit % (8 * len(message))} flipped")
        for num in (0, 7, len(message)):
            taken(bytes(num), f"{where}, {num} zeros")
            taken(b"\xff" * num, f"{where}, {num} bytes of ones")


def check_foreign(case: CodecCase) -> None:
    """A message of another codec, or of another vector, is refused with a WireError (call `payload.expect`)."""
    known = common(1, TYPICAL)
    own = encode(case, rows(1, TYPICAL), known)
    longer = (33, 4, 11)
    foreign = {
        "a dense message": encode(CodecCase("dense", Dense()), rows(1, TYPICAL), known),
        f"one of a vector of {sum(longer)} entries": encode(case, rows(1, longer), common(1, longer)),
    }
    for name, payload in foreign.items():
        if _form(payload) == _form(own):
            continue
        try:
            case.codec.decode(payload, known)
        except WireError:
            continue
        except Exception as error:
            raise Failed(f"{name} ends with {type(error).__name__}: {error}") from error
        raise Failed(f"{name} is decoded as one of a vector of {sum(TYPICAL)} entries")


def check_other_process(case: CodecCase) -> None:
    """Another process decodes the same from the bytes: nothing passes through variables of this one."""
    check_in_other_process([case])


def check_in_other_process(cases: Sequence[CodecCase]) -> None:
    """`check_other_process` of several codecs with one process."""
    work, wanted = [], []
    for case in cases:
        for layers in case.layers():
            known = common(2, layers, "elsewhere")
            codec = pickle.dumps(case.codec)  # as it was before it encoded anything of this
            payload = encode(case, rows(2, layers, 7), known)
            work.append((codec, known, [pack(payload, row) for row in range(2)], layout(payload)))
            wanted.append((case.name, layers, case.codec.decode(payload, known)))
    path = [str(Path(folder).resolve()) for folder in sys.path]  # `--config-dir mine` is relative to this folder
    given = pickle.dumps((path, str(Path.cwd()), pickle.dumps(work)))
    done = subprocess.run([sys.executable, "-c", _CHILD], input=given, capture_output=True, cwd=CONF.parent)
    if done.returncode:
        raise Failed(f"the other process ended with {done.stderr.decode().strip().splitlines()[-1]}")
    for (name, layers, here), there in zip(wanted, pickle.loads(done.stdout), strict=True):
        where = f"{name}, a vector of {sum(layers)} entries"
        require(torch.equal(there, here), f"{where}: x {described(there, here)} where it was encoded")


_CHILD = """
import pickle, sys
path, folder, work = pickle.load(sys.stdin.buffer)
sys.path[:] = [folder, *path]
from fedcomp.check.messages import decode_all
sys.stdout.buffer.write(pickle.dumps(decode_all(work)))
"""


def decode_all(work: bytes) -> list[Tensor]:
    """What the other process decodes."""
    return [
        pickle.loads(codec).decode(unpack(messages, known_layout, CPU), known)
        for codec, known, messages, known_layout in pickle.loads(work)
    ]


CHECKS = (check_damaged, check_foreign)


def _received(case: CodecCase, layers: tuple[int, ...], own: Payload, message: bytes, where: str) -> bool:
    """Whether the bytes are decoded; False if they are refused. Raises Failed: neither, or another shape."""
    try:
        decoded = case.codec.decode(unpack([message], layout(own), CPU), common(1, layers))
    except WireError:
        return False
    except Exception as error:
        raise Failed(f"{where}: the decoder ends with {type(error).__name__}: {error}") from error
    require(decoded.shape == (1, sum(layers)), f"{where}: decoded to {tuple(decoded.shape)}")
    return True


def _form(payload: Payload) -> dict[str, int]:
    return {name: field.data.shape[1] for name, field in payload.fields.items()}
