"""What was found out once and is kept for later runs: a small file a question, in fedcomp's cache folder."""

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

from fedcomp.core.folders import cache_folder
from fedcomp.records.atomic_write import write_atomically


def cached(kind: str, question: Any) -> Any:
    """The answer that is kept; None: there is none, or its file is damaged.

    Args:
        kind: of question, which is a folder of the cache. question: plain values, with all that the answer depends on.
    """
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads(_path(kind, question).read_bytes())
        if kept["question"] == _text(question):
            return kept["answer"]
    return None


def keep(kind: str, question: Any, answer: Any) -> None:
    """Keep an answer, plain values. Where the folder cannot be written, nothing is kept."""
    path = _path(kind, question)
    with contextlib.suppress(OSError, ValueError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"question": _text(question), "answer": answer}).encode())


def _path(kind: str, question: Any) -> Path:
    name = hashlib.blake2b(_text(question).encode(), digest_size=12).hexdigest()
    return cache_folder() / kind / f"{name}.json"


def _text(question: Any) -> str:
    return json.dumps(question, sort_keys=True)
