"""`fedcomp-export`: a run's trained weights as a file that other programs read."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from fedcomp.api.trained_model import TRUST_CODE, trained_models
from fedcomp.records.atomic_write import write_atomically
from fedcomp.runtime.command import command, exit_status

EXAMPLES = """\
examples:
  fedcomp-export outputs/fedcomp/0a1b2c3d4e/seed=0 model.pt             a state_dict, for torch.load and load_state_dict
  fedcomp-export outputs/fedcomp/0a1b2c3d4e/seed=0 model.safetensors    the same (needs the package safetensors)

exit status: 0 written, 2 a wrong argument (one line on standard error)"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, read, write."""
    parser = command("fedcomp-export", "Write a run's trained weights to a file that other programs read.", EXAMPLES)
    parser.add_argument("run", type=Path, help="a run's folder")
    parser.add_argument("file", type=Path, help="what to write: *.pt, or *.safetensors")
    parser.add_argument("--trust-code", action="store_true", help=TRUST_CODE)
    given = parser.parse_args(arguments)
    return exit_status(lambda: export(given.run, given.file, given.trust_code))


def export(folder: Path, file: Path, trust_code: bool = False) -> None:
    """Write the state_dict of a run's trained model. `trust_code` as in `trained_run`.

    Raises:
        ValueError: the file's ending is unknown, a package is missing, it cannot be written, or the folder holds no run
            with a model.
    """
    if file.suffix not in (".pt", ".safetensors"):
        raise ValueError(f"{file} must end in .pt or .safetensors")
    if not file.parent.is_dir():
        raise ValueError(f"there is no folder {file.parent} to write {file.name} to")
    models = trained_models(folder, "last", trust_code)
    if len(models) > 1:
        raise ValueError(f"{folder} evaluates {len(models)} models and records their mean: take Run({folder}).models()")
    weights = {name: tensor.contiguous() for name, tensor in models[0].state_dict().items()}
    write_atomically(file, _safetensors(weights) if file.suffix == ".safetensors" else _state_dict(weights))


def _state_dict(weights: dict[str, Tensor]) -> bytes:
    """What `torch.load` reads."""
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    return buffer.getvalue()


def _safetensors(weights: dict[str, Tensor]) -> bytes:
    """What safetensors reads. Raises ValueError: it is not installed."""
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise ValueError("*.safetensors needs the package safetensors: pip install safetensors") from error
    return save(weights)
