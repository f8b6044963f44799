"""Refuses a run's config that names code of somebody else: a folder from elsewhere must not run what it likes.

A part is built by calling what its `_target_` names. In a config that the user composes these are her own files; in the
`config.yaml` of a run that she was given they are anything that Python can import, `os.system` included. So what
reads runs accepts only the targets that fedcomp's own configs name, unless the user trusts the folder's code.
"""

import functools
from pathlib import Path
from typing import Any

from fedcomp.config.schema import PARTS
from fedcomp.core.choices import FOLDERS, choices, parts
from fedcomp.provenance.code import OWN_MODULE
from fedcomp.records.provenance import FILE as PROVENANCE


def check_trusted(config: Any, file: Path) -> None:
    """Raise ValueError if a run's config would call anything but the parts of fedcomp.

    Args:
        config: plain values. file: where it lies, for the error.
    """
    for node in parts(config):
        target = str(node["_target_"])
        if target not in _own_targets() or target == OWN_MODULE:
            if target.startswith("fedcomp.") and target != OWN_MODULE:
                raise ValueError(
                    f"{file} names {target}, which is no part of this version of fedcomp: take the version that made "
                    f"the run, which {PROVENANCE} beside it names"
                )
            named = f"{target} of path={node.get('path')}" if target == OWN_MODULE else target
            raise ValueError(
                f"{file} names code that is not fedcomp's ({named}), which would be run: if the run is your own, or "
                "you have read that code, give --trust-code (from Python trust_code=True)"
            )


@functools.cache
def _own_targets() -> frozenset[str]:
    """Every target in the choices of fedcomp's groups, also of parts inside them."""
    groups = {FOLDERS.get(part, part) for part in PARTS}
    return frozenset(str(node["_target_"]) for group in groups for node in parts(choices(group)))
