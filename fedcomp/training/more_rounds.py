"""A run of more rounds goes on from a finished one that differs from it by fewer rounds alone.

Its files are copied into the new run's folder, from where it resumes as if it had been interrupted. This gives what the
rounds from the start would give, bit for bit, if no round so far has asked how many there are (`Context.num_rounds`).
"""

import hashlib
import shutil
from dataclasses import replace

from fedcomp.config.placement import shorter_twin
from fedcomp.core.accelerated import FILE as FORMS
from fedcomp.network.traffic.file import FILE as TRAFFIC
from fedcomp.records import checkpoint
from fedcomp.records.atomic_write import explained, write_atomically
from fedcomp.records.checkpoint import Checkpoint
from fedcomp.records.provenance import write_provenance
from fedcomp.records.reader import RunFiles
from fedcomp.records.run_folder import CHECKPOINT
from fedcomp.simulation.autotune.plan import FILE as PLAN
from fedcomp.simulation.monte_carlo.study import FIRST_ROUNDS
from fedcomp.training.place import RunPlace


def take_over(place: RunPlace) -> None:
    """Take over the finished rounds of a shorter run, if there is one and this one has none. A line says so.

    Raises ValueError: the folder cannot be written.
    """
    path, config, note = place.path, place.config, place.progress.note
    begun = path / CHECKPOINT
    if config.overwrite or begun.exists() or checkpoint.before(begun).exists():
        return
    shorter = shorter_twin(path, place.plain)
    if shorter is None:
        return
    try:
        start = _readable(shorter, place)
    except ValueError as error:
        note(f"{shorter.folder} has fewer rounds of this run, but they cannot be continued: {error}; starting anew")
        return
    _copy(shorter, start, place)
    note(f"going on from round {start.round} of {shorter.folder}  (overwrite=true starts anew)")


def _readable(shorter: RunFiles, place: RunPlace) -> Checkpoint:
    """The last checkpoint of the shorter run, with its tensors. Raises ValueError: it is not that of longer runs."""
    config = place.config
    if config.wire.name == "tcp":
        raise ValueError("with wire=tcp each client has a part of the state")
    shorter.finished(shorter.existing_config())
    last = checkpoint.read(shorter.folder / CHECKPOINT)
    if not last.open_ended and config.repeats > 1 and last.round < FIRST_ROUNDS:
        raise ValueError(f"with repeats this needs {FIRST_ROUNDS} rounds")
    if not last.open_ended:
        raise ValueError("the method or a schedule depends on the number of rounds")
    if not last.ledger["client_rounds"]:
        raise ValueError("nobody took part in them")
    return last


def _copy(shorter: RunFiles, start: Checkpoint, place: RunPlace) -> None:
    """Copy what a resume reads; the checkpoint last, without which all would be copied again."""
    folder, config = place.path, place.config
    for name in (TRAFFIC, PLAN, FORMS):
        if (shorter.folder / name).exists():
            with explained(folder / name):
                shutil.copyfile(shorter.folder / name, folder / name)
    last = shorter.latest()[0]
    reached = config.max_bits is not None and last["bits/total"] >= config.max_bits
    due = start.round % config.eval_every == 0 or reached
    record = {}
    for name in start.record:
        lines = (shorter.folder / name).read_bytes().splitlines(keepends=True)
        content = b"".join(lines if due else lines[:-1])  # a longer run evaluates its own last round, and not this one
        write_atomically(folder / name, content)
        record[name] = hashlib.sha256(content).hexdigest()
    known = shorter.provenance()
    if known is not None:
        write_provenance(folder, replace(known, continues=f"{shorter.folder}, round {start.round}"))
    checkpoint.save(folder / CHECKPOINT, replace(start, record=record), folder.parent.name)
