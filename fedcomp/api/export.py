"""`fedcomp-export`: a run's trained weights as a file that other programs read."""

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from fedcomp.api.trained_model import TRUST_CODE, modules_of, trained_run, unfinished
from fedcomp.config.compose import find_own_code
from fedcomp.records.atomic_write import write_atomically
from fedcomp.runtime.command import command, exit_status

EXAMPLES = """\
examples:
  fedcomp-export outputs/fedcomp/0a1b2c3d4e/seed=0 model.pt             a state_dict, for torch.load and load_state_dict
  fedcomp-export outputs/fedcomp/0a1b2c3d4e/seed=0 model.safetensors    the same (needs the package safetensors)
  fedcomp-export outputs/fedcomp/0a1b2c3d4e/seed=0 adapter              of model=hf: a folder that PEFT loads
  fedcomp-export outputs/fedcomp/0a1b2c3d4e/seed=0 network --merge      of model=hf: one that transformers loads

exit status: 0 written, 2 a wrong argument (one line on standard error)"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, read, write."""
    parser = command("fedcomp-export", "Write a run's trained weights to a file that other programs read.", EXAMPLES)
    parser.add_argument("run", type=Path, help="a run's folder")
    parser.add_argument("file", type=Path, help="what to write: *.pt, or *.safetensors; a folder of model=hf")
    parser.add_argument("words", nargs="*", default=[], metavar="dataset.path=FILE", help="where its data lie by now")
    parser.add_argument("--merge", action="store_true", help="a folder of the whole network, with adapters added to it")
    parser.add_argument("--config-dir", type=Path, metavar="DIR", help="a folder of your own configs and Python files")
    parser.add_argument("--trust-code", action="store_true", help=TRUST_CODE)
    given = parser.parse_intermixed_args(arguments)

    def write() -> None:
        find_own_code(given.config_dir)
        export(given.run, given.file, given.trust_code, given.merge, given.words)

    return exit_status(write)


def export(folder: Path, file: Path, trust_code: bool = False, merge: bool = False, words: Sequence[str] = ()) -> None:
    """Write the state_dict of a run's trained model, or of a model that `WritesFolder` its folder.

    `trust_code` and `words` as in `trained_run`, `merge` as in `WritesFolder`.

    Raises:
        ValueError: the file's ending is unknown, a package is missing, it cannot be written, or the folder holds no run
            with a model.
    """
    to_folder = file.suffix not in (".pt", ".safetensors")
    if merge and not to_folder:
        raise ValueError(f"--merge writes a folder, and {file} would be a file: give a name without an ending")
    if to_folder and (file.suffix or file.is_file()):
        raise ValueError(f"{file} must end in .pt or .safetensors")
    if to_folder and file.is_dir() and any(file.iterdir()):  # such as the base, which would be overwritten
        raise ValueError(f"{file} is a folder with files in it: give the name of a new one")
    if not file.parent.is_dir():
        raise ValueError(f"there is no folder {file.parent} to write {file.name} to")
    run = trained_run(folder, trust_code, words)
    if (remark := unfinished(folder, run.round)) is not None:
        print(f"fedcomp-export: {remark}", file=sys.stderr)
    if to_folder and not merge and run.models.change.numel():
        raise ValueError(f"{folder} has moved its frozen base, to which an adapter alone would not fit: take --merge")
    models = modules_of(run)
    if len(models) > 1:
        raise ValueError(f"{folder} evaluates {len(models)} models and records their mean: take Run({folder}).models()")
    if to_folder:
        if not isinstance(models[0], WritesFolder):
            raise ValueError(f"{file} must end in .pt or .safetensors: only model=hf is written as a folder")
        models[0].write_folder(file, merge)
        return
    weights = {name: tensor.contiguous() for name, tensor in models[0].state_dict().items()}
    content = io.BytesIO()
    if file.suffix == ".safetensors":
        content.write(_safetensors(weights))
    else:
        torch.save(weights, content)
    write_atomically(file, content.getvalue())


@runtime_checkable
class WritesFolder(Protocol):
    """A network that other libraries load from a folder."""

    def write_folder(self, folder: Path, merge: bool) -> None:
        """Write it, of adapters alone where there are some, or with `merge` as a whole network."""


def _safetensors(weights: dict[str, Tensor]) -> bytes:
    """What safetensors reads. Raises ValueError: it is not installed."""
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise ValueError("*.safetensors needs the package safetensors: pip install safetensors") from error
    return save({name: tensor.clone() for name, tensor in weights.items()})  # shared weights under each name
