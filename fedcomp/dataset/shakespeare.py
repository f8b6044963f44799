"""Shakespeare's plays: predict the next character; every role is an owner, a client under `partition=natural`.

S. Caldas et al., "LEAF: a benchmark for federated settings", 2018: windows of 80 characters, an alphabet of 80 symbols,
and a split of each role's windows by their order. LEAF reads the collected works of Project Gutenberg; here the text
is any file in the form of `tinyshakespeare.txt` (1.1 MB, 232 roles of 160 characters or more): blocks between blank
lines, each with a line `SPEAKER:` and what that speaker says. It names no plays, so a role of the same name in several
plays (First Citizen, Messenger, Nurse) is one owner.

Shape legend: n windows, L characters of a window.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from fedcomp.core.validate import check_choice, check_count, check_interval
from fedcomp.dataset.fetch import below

if TYPE_CHECKING:
    import torch

    from fedcomp.dataset.contract import Dataset, Samples

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's 80 symbols; a symbol's token is its place. The newline never occurs: a role's lines are joined."""
WINDOW = 80
Targets = Literal["last", "all"]


def load(
    root: str = ".",
    path: str = "tinyshakespeare.txt",
    min_chars: int = 160,
    train_fraction: float = 0.9,
    max_samples: int | None = 500,
    max_test: int | None = 8000,
    leaf_only: bool = False,
    upper: bool = False,
    delete: str = "$",
    targets: Targets = "last",
) -> Dataset:
    """Windows of 80 characters of every role; a role of c characters has c - 80.

    The first floor(f W) of a role's W windows are for training, the next 79 are dropped, the rest is for testing: no
    character is a target of both. All roles' test windows are pooled; roles too short for one still train.

    Args:
        root: the folder that a relative `path` starts from; `~` is expanded.
        path: the text, in UTF-8.
        min_chars: roles with fewer characters are left out; 81 or more.
        train_fraction: f, above 0 and below 1; at least one window trains.
        max_samples: training windows of a role; of more, so many are taken at even distances. None: all. LEAF has no
            such limit.
        max_test: test windows; of more, every k-th is taken. None: all.
        leaf_only: leave out roles without a test window, as LEAF does.
        upper: speakers that differ in case only are one, as LEAF has it.
        delete: characters to leave out of the text; any other that is not in `ALPHABET` is an error.
        targets: "last": one target a window, the character after it, as in LEAF; "all": y [n, L], the next character
            of every position.
    Raises:
        ValueError: an argument outside its range, or a file that is missing or is no such text.
    """
    import torch

    from fedcomp.dataset.contract import Dataset

    _check(min_chars, train_fraction, max_samples, max_test, targets)
    file = below(root, path)[0]
    roles = {name: text for name, text in _roles(file, upper, delete).items() if len(text) >= min_chars}
    train: list[np.ndarray] = []
    test: list[np.ndarray] = []
    owners: list[np.ndarray] = []
    for name in sorted(roles):
        codes = np.array([ALPHABET.index(symbol) for symbol in roles[name]], np.uint8)
        windows = np.lib.stride_tricks.sliding_window_view(codes, WINDOW + 1)
        num_train = max(1, math.floor(train_fraction * len(windows) + 1e-9))
        held_out = windows[num_train + WINDOW - 1 :]
        if leaf_only and not len(held_out):
            continue
        own = _evenly(windows[:num_train], max_samples)
        owners.append(np.full(len(own), len(train), np.int64))
        train.append(own)
        test.append(held_out)
    num_test = sum(map(len, test))
    if not num_test:
        raise ValueError(
            f"dataset=shakespeare: no role of {file} is long enough for a test window: lower dataset.train_fraction="
            f"{train_fraction}, or take a longer text"
        )
    every = 1 if max_test is None else math.ceil(num_test / max_test)
    tested = np.repeat(np.arange(len(test)), [len(windows) for windows in test])
    return Dataset(
        name="shakespeare",
        train=_samples(np.concatenate(train), targets, torch.from_numpy(np.concatenate(owners))),
        test=_samples(np.concatenate(test)[::every], targets, torch.from_numpy(tested[::every])),
        task="next_token",
        num_outputs=len(ALPHABET),
        vocab_size=len(ALPHABET),
    )


def data_files(root: str = ".", path: str = "tinyshakespeare.txt", **_: object) -> list[Path]:
    """What `load` reads."""
    return below(root, path)


def _check(min_chars: int, train_fraction: float, max_samples: int | None, max_test: int | None, targets: str) -> None:
    check_count("dataset.min_chars", min_chars, WINDOW + 1, "enough for one window")
    check_interval("dataset.train_fraction", train_fraction, "(0, 1)")
    check_count("dataset.max_samples", max_samples, meaning="a number of windows; null for all", or_null=True)
    check_count("dataset.max_test", max_test, meaning="a number of windows; null for all", or_null=True)
    check_choice("dataset.targets", targets, get_args(Targets))


def _roles(file: Path, upper: bool, delete: str) -> dict[str, str]:
    """What each speaker says: blocks joined, runs of blanks and line ends as one blank."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(
            f"dataset=shakespeare: no text at {file}: put tinyshakespeare.txt there (blocks of a line SPEAKER: and its "
            "speech, between blank lines), or set dataset.root or dataset.path"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"dataset=shakespeare: {file} is no text in UTF-8 ({error})") from None
    known, said, speaker = set(ALPHABET) | set(delete), dict[str, list[str]](), None
    for number, line in enumerate(text.splitlines(), 1):
        place = f"dataset=shakespeare: {file}, line {number}"
        if not line.strip():
            speaker = None
        elif speaker is None:
            if not line.rstrip().endswith(":"):
                raise ValueError(f"{place}: '{line[:40]}' begins a block, but is no 'SPEAKER:': repair the text")
            name = line.rstrip()[:-1]
            speaker = name.upper() if upper else name
        else:
            foreign = next((symbol for symbol in line if symbol not in known and not symbol.isspace()), None)
            if foreign is not None:
                raise ValueError(
                    f"{place}: '{foreign}' is not one of the {len(ALPHABET)} symbols of the alphabet: repair the text, "
                    f"or leave it out by dataset.delete='{delete}{foreign}'"
                )
            said.setdefault(speaker, []).append(line)
    if not said:
        raise ValueError(f"dataset=shakespeare: {file} has no blocks of a line SPEAKER: and its speech")
    gone = str.maketrans("", "", delete)
    return {name: " ".join(" ".join(lines).translate(gone).split()) for name, lines in said.items()}


def _evenly(windows: np.ndarray, most: int | None) -> np.ndarray:
    """All windows [n, L + 1], or `most` of them at even distances."""
    if most is None or len(windows) <= most:
        return windows
    return windows[np.arange(most) * len(windows) // most]


def _samples(windows: np.ndarray, targets: str, owner: torch.Tensor | None = None) -> Samples:
    """Tokens uint8 [n, L] and targets int64 [n] or [n, L] from windows [n, L + 1]."""
    import torch

    from fedcomp.dataset.contract import Samples

    y = windows[:, WINDOW] if targets == "last" else windows[:, 1:]
    return Samples(torch.from_numpy(windows[:, :WINDOW].copy()), torch.from_numpy(y.astype(np.int64)), owner)
