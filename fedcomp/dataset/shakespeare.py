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
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from fedcomp.core.ranges import Whole, Within, checked
from fedcomp.core.validate import check_count
from fedcomp.dataset import byte_tokens
from fedcomp.dataset.fetch import below

if TYPE_CHECKING:
    import torch

    from fedcomp.dataset.contract import Dataset, Samples

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's 80 symbols; a symbol's token is its place. The newline never occurs: a role's lines are joined."""
SOURCE = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
"""`tinyshakespeare.txt`: parts of several plays, 1,115,394 bytes."""
Windows = Annotated[int | None, Whole(meaning="a number of windows; null for all")]


@checked("dataset.")
def load(
    root: str = ".",
    path: str = "tinyshakespeare.txt",
    min_chars: int = 160,
    train_fraction: Annotated[float, Within("(0, 1)")] = 0.9,
    max_samples: Windows = 500,
    max_test: Windows = 8000,
    leaf_only: bool = False,
    upper: bool = False,
    delete: str = "$",
    targets: Literal["last", "all"] = "last",
    window: Annotated[int, Whole(meaning="tokens that a model sees")] = 80,
    stride: Annotated[int, Whole(meaning="tokens from a training window to the next")] = 1,
    test_stride: Annotated[int, Whole(meaning="tokens from a test window to the next")] = 1,
    bytes: bool = False,
    after_block: Annotated[int, Whole(0, "speeches to leave out")] = 0,
    join: Literal["blank", "newline"] = "blank",
    role_as_label: bool = False,
) -> Dataset:
    """Windows of L = 80 characters of every role; a role of c characters has c - L.

    The first floor(f W) of a role's W windows are for training, the next L - 1 are dropped, the rest is for testing: no
    character is a target of both. All roles' test windows are pooled; roles too short for one still train.

    Args:
        delete: characters to leave out of the text; any other that is not in `ALPHABET` is an error.
        targets: "last": y [n], the character after a window, as in LEAF; "all": y [n, L], the next of every position.
    Raises:
        ValueError: an argument outside its range, or a file that is missing or is no such text.
    """
    import torch

    from fedcomp.dataset.contract import Dataset

    check_count("dataset.min_chars", min_chars, window + 1, "enough for one window")
    if role_as_label and targets != "last":
        raise ValueError(f"dataset.role_as_label has one target a window: leave out dataset.targets={targets}")
    file = below(root, path)[0]
    roles = _roles(file, upper, delete, after_block, join, "" if bytes else ALPHABET)
    roles = {name: text for name, text in roles.items() if len(text) >= min_chars}
    train: list[np.ndarray] = []
    test: list[np.ndarray] = []
    names: list[str] = []
    for name in sorted(roles):
        text = roles[name]
        codes = byte_tokens.encode(text) if bytes else np.array([ALPHABET.index(symbol) for symbol in text], np.uint8)
        windows = np.lib.stride_tricks.sliding_window_view(codes, window + 1)
        num_train = max(1, math.floor(train_fraction * len(windows) + 1e-9))
        held_out = windows[num_train + window - 1 :: test_stride]
        if leaf_only and not len(held_out):
            continue
        names.append(name)
        train.append(_evenly(windows[:num_train:stride], max_samples))
        test.append(held_out)
    num_test = sum(map(len, test))
    if not num_test:
        raise ValueError(
            f"dataset=shakespeare: no role of {file} is long enough for a test window: lower dataset.train_fraction="
            f"{train_fraction} or dataset.min_chars={min_chars}, or take a longer text"
        )
    every = 1 if max_test is None else math.ceil(num_test / max_test)
    symbols = byte_tokens.VOCABULARY if bytes else len(ALPHABET)

    def samples(parts: list[np.ndarray], every: int) -> Samples:
        owner = torch.from_numpy(np.repeat(np.arange(len(parts)), [len(own) for own in parts])[::every])
        return _samples(np.concatenate(parts)[::every], owner if role_as_label else targets, owner)

    return Dataset(
        name="shakespeare",
        train=samples(train, 1),
        test=samples(test, every),
        task="classification" if role_as_label else "next_token",
        num_outputs=len(names) if role_as_label else symbols,
        vocab_size=symbols,
        class_names=tuple(names) if role_as_label else (),
    )


def data_files(root: str = ".", path: str = "tinyshakespeare.txt", **_: object) -> list[Path]:
    """What `load` reads."""
    return below(root, path)


def speeches(file: Path) -> Iterator[tuple[str, int, list[str]]]:
    """(speaker, number of its first line, lines) of each speech in the order of the text; a mere heading is none.

    Raises ValueError: no such file, no text in UTF-8, or a block that does not begin with `SPEAKER:`.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(
            f"dataset=shakespeare: no text at {file}: `curl --create-dirs -o {file} {SOURCE}` fetches one, or set "
            "dataset.root or dataset.path to a text of blocks of a line SPEAKER: and its speech, between blank lines"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"dataset=shakespeare: {file} is no text in UTF-8 ({error})") from None
    lines = text.splitlines()
    first = 0
    for number in range(len(lines) + 1):
        if number < len(lines) and lines[number].strip():
            continue
        if first < number:
            heading = lines[first].rstrip()
            if not heading.endswith(":"):
                raise ValueError(
                    f"dataset=shakespeare: {file}, line {first + 1}: '{heading[:40]}' begins a block, but is no "
                    "'SPEAKER:': repair the text"
                )
            if first + 1 < number:
                yield heading[:-1], first + 2, lines[first + 1 : number]
        first = number + 1


def _roles(file: Path, upper: bool, delete: str, after_block: int, join: str, symbols: str) -> dict[str, str]:
    """What each speaker says from speech `after_block` on.

    Args:
        join: "blank": runs of blanks and line ends become one blank; "newline": lines stay.
        symbols: all that may occur beside blanks and `delete`; "": anything.
    """
    known, said, count = set(symbols + delete), dict[str, list[str]](), 0
    for count, (name, first, lines) in enumerate(speeches(file), 1):
        for number, line in enumerate(lines, first):
            foreign = next(
                (symbol for symbol in line if symbols and symbol not in known and not symbol.isspace()), None
            )
            if foreign is not None:
                raise ValueError(
                    f"dataset=shakespeare: {file}, line {number}: '{foreign}' is not one of the {len(symbols)} symbols "
                    f"of the alphabet: repair the text, take dataset.bytes=true, or leave it out by "
                    f"dataset.delete='{delete}{foreign}'"
                )
        if count > after_block:
            said.setdefault(name.upper() if upper else name, []).extend(lines)
    if not count:
        raise ValueError(f"dataset=shakespeare: {file} has no blocks of a line SPEAKER: and its speech")
    if not said:
        raise ValueError(f"dataset.after_block={after_block}, but {file} has {count} speeches: give fewer")
    gone = str.maketrans("", "", delete)
    if join == "newline":
        return {name: "\n".join(lines).translate(gone) for name, lines in said.items()}
    return {name: " ".join(" ".join(lines).translate(gone).split()) for name, lines in said.items()}


def _evenly(windows: np.ndarray, most: int | None) -> np.ndarray:
    """All windows [n, L + 1], or `most` of them at even distances."""
    if most is None or len(windows) <= most:
        return windows
    return windows[np.arange(most) * len(windows) // most]


def _samples(windows: np.ndarray, targets: str | torch.Tensor, owner: torch.Tensor) -> Samples:
    """Tokens [n, L] from windows [n, L + 1], with their targets: `targets`, or int64 [n] or [n, L] of the windows."""
    import torch

    from fedcomp.dataset.contract import Samples

    if isinstance(targets, str):
        y = windows[:, -1] if targets == "last" else windows[:, 1:]
        targets = torch.from_numpy(y.astype(np.int64))
    return Samples(torch.from_numpy(windows[:, :-1].copy()), targets, owner)
