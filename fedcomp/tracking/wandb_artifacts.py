"""What a finished run leaves at W&B as artifacts, and what it was made of, so that W&B draws its lineage.

dataset -> run -> config, table, pictures, model. The dataset's artifact holds fingerprints, not data: runs on the same
data use the same version of it.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedcomp.core.folders import part_name
from fedcomp.records.metrics_file import FILE as RECORD
from fedcomp.records.metrics_file import REPETITIONS, Metrics, read_lines
from fedcomp.records.provenance import FILE as PROVENANCE
from fedcomp.records.provenance import read_provenance
from fedcomp.records.run_folder import CHECKPOINT, CONFIG, CURVE, PARTITION
from fedcomp.tracking.contract import RunInfo

FILES = {
    "config": (CONFIG, PROVENANCE),
    "table": (RECORD, REPETITIONS),
    "pictures": (CURVE, PARTITION),
    "model": (CHECKPOINT,),
}
"""{kind of artifact: files of a run that it holds, if there are any}. `fedcomp-export` reads the checkpoint."""


def check_kinds(kinds: Sequence[str]) -> tuple[str, ...]:
    """The kinds of artifacts that are wanted. Raises ValueError: one is unknown."""
    unknown = [kind for kind in kinds if kind not in FILES]
    if unknown or isinstance(kinds, str):
        raise ValueError(f"tracker.artifacts={kinds} must be a list of {', '.join(FILES)}")
    return tuple(dict.fromkeys(kinds))


def input_artifact(wandb: Any, info: RunInfo) -> Any:
    """The artifact of the data that the run was made with; None: it keeps no fingerprints. `wandb`: the module."""
    known = read_provenance(info.folder)
    if known is None or not known.data:
        return None
    artifact = wandb.Artifact(f"data-{part_name(info.config['dataset']['_target_'])}", type="dataset")
    with artifact.new_file("fingerprints.json", mode="w") as file:
        json.dump({name: asdict(one) for name, one in known.data.items()}, file, indent=2, sort_keys=True)
    return artifact


def output_artifacts(wandb: Any, info: RunInfo, kinds: Sequence[str], summary: Metrics) -> list[Any]:
    """The artifacts of these kinds, with the numbers of `summary`; those without any file are left out."""
    found = []
    for kind in kinds:
        files = [path for name in FILES[kind] if (path := info.folder / name).exists()]
        if not files:
            continue
        artifact = wandb.Artifact(f"{kind}-{info.config_hash}-seed{info.seed}", type=kind, metadata=dict(summary))
        for path in files:
            # of a finished run nothing changes any more, so W&B need not copy it first
            artifact.add_file(str(path), name=path.name, policy="immutable", skip_cache=True)
        if kind == "table":
            artifact.add(_table(wandb, info.folder), "metrics")
        found.append(artifact)
    return found


def _table(wandb: Any, folder: Path) -> Any:
    """The record as a table of W&B: a row an evaluation, empty where a line has no such number."""
    lines = read_lines(folder / RECORD)
    columns = list(dict.fromkeys(name for line in lines for name in line))
    return wandb.Table(columns=columns, data=[[line.get(name) for name in columns] for line in lines])
