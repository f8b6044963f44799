"""Texts of one's own, `dataset=text`: the next token of answers, or the class of a text.

Shape legend: n samples, L tokens of a sample.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from fedcomp.core.ranges import Whole, checked
from fedcomp.dataset.fetch import below
from fedcomp.dataset.texts import rows, tokenizers
from fedcomp.dataset.texts.rows import Row
from fedcomp.dataset.texts.samples import Encoded, pack, pad
from fedcomp.dataset.texts.tokenizers import BYTES, Tokenizer

if TYPE_CHECKING:
    import torch

    from fedcomp.dataset.contract import Dataset, Samples

log = logging.getLogger("fedcomp")


@checked("dataset.")
def load(
    path: str | None,
    answer: str | None = None,
    prompt: str | None = None,
    label: str | None = None,
    owner: str | None = None,
    root: str = ".",
    test: str | None = None,
    test_fraction: float = 0.2,
    split_seed: int = 0,
    tokenizer: str = BYTES,
    length: Annotated[int, Whole(2, "tokens of a sample")] = 128,
    packing: bool = False,
    separator: str = "",
    name: str = "text",
) -> Dataset:
    """Samples of L tokens of the rows of `root/path`: `.jsonl`, `.csv`, `.parquet`, or a folder that `datasets` saved.

    A sample is a row's prompt, separator, answer and the end token; only the answer and the end are targets. It is cut
    to L + 1 tokens, and filled up with padding behind. With `packing` rows of one owner are joined, in their order, and
    cut into samples that are filled up once an owner; a token then reads the rows before it in its sample.

    Raises:
        ValueError: a file or field that is missing, a damaged line (with its place), no tokenizer, a test class that no
            training row has, no row with a target, or an argument out of range.
    """
    from fedcomp.dataset.contract import Dataset

    fields = _Fields(name, prompt, answer, label, owner, separator)
    fields.check(packing)
    if path is None:
        raise ValueError(f"dataset={name} needs dataset.path, for instance dataset.path=texts.jsonl")
    own, held_out = _rows(below(root, path)[0], test, Path(root).expanduser().absolute(), test_fraction, split_seed)
    tokens = tokenizers.load(tokenizer, Path(root).expanduser().absolute(), label is not None)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(map(fields.owner_of, [*own, *held_out])))}
    owners = [[numbers[fields.owner_of(row)] for row in part] for part in (own, held_out)]
    if label is not None:
        classes = sorted({row.text(label, "label") for row in own})
        parts = [_classified(part, fields, classes, tokens, length) for part in (own, held_out)]
        samples = [_samples(x, y, of, owner) for (x, y), of in zip(parts, owners)]
        return Dataset(
            name, samples[0], samples[1], "classification", len(classes), class_names=tuple(classes),
            vocab_size=tokens.vocab_size, padding_token=tokens.pad,
        )  # fmt: skip
    samples = []
    for what, part, of in zip(("training", "test"), (own, held_out), owners):
        encoded = [fields.encoded(row, tokens, number) for row, number in zip(part, of)]
        x, y, kept = (pack if packing else pad)(encoded, length, tokens.pad)
        _note(what, path, encoded, length, len(part), packing, kept)
        samples.append(_samples(x, y, kept, owner))
    return Dataset(name, samples[0], samples[1], "next_token", tokens.vocab_size, vocab_size=tokens.vocab_size)


def data_files(
    path: str | None, root: str = ".", test: str | None = None, tokenizer: str = BYTES, **_: object
) -> list[Path]:
    """What `load` reads."""
    if path is None:
        return []
    found = rows.files(below(root, path)[0])
    if test is not None and below(root, test)[0].exists():
        found += rows.files(below(root, test)[0])
    return [*found, *tokenizers.files(tokenizer, Path(root).expanduser().absolute())]


@dataclass(frozen=True)
class _Fields:
    """Which field of a row is what."""

    name: str
    prompt: str | None
    answer: str | None
    label: str | None
    owner: str | None
    separator: str

    def check(self, packing: bool) -> None:
        """ValueError unless the fields make a task."""
        if self.label is None and self.answer is None:
            raise ValueError(
                f"dataset={self.name} needs dataset.answer, the field of the text to predict, or dataset.label and "
                "dataset.prompt, those of a class and its text"
            )
        if self.label is not None and (self.answer is not None or self.prompt is None or packing):
            raise ValueError(
                f"dataset.label={self.label} is the class of the text in dataset.prompt: give dataset.prompt, and "
                "neither dataset.answer nor dataset.packing"
            )

    def owner_of(self, row: Row) -> str:
        """The name of a row's owner."""
        return "" if self.owner is None else row.text(self.owner, "owner")

    def encoded(self, row: Row, tokens: Tokenizer, owner: int) -> Encoded:
        """A row's tokens with their number of those that are no target."""
        assert self.answer is not None
        before = list(tokens.start)
        if self.prompt is not None:
            before += tokens.encode(row.text(self.prompt, "prompt") + self.separator)
        end = [] if tokens.end is None else [tokens.end]
        return Encoded([*before, *tokens.encode(row.text(self.answer, "answer")), *end], len(before), owner)


def _rows(path: Path, test: str | None, root: Path, fraction: float, seed: int) -> tuple[list[Row], list[Row]]:
    """Training and test rows."""
    from fedcomp.dataset.split import split_rows

    own = rows.read(path)
    if test is not None:
        other = root / Path(test).expanduser()
        return own, rows.read(path, test) if path.is_dir() and not other.exists() else rows.read(other, "test")
    train, held_out = split_rows(len(own), fraction, seed)
    return [own[row] for row in train], [own[row] for row in held_out]


def _classified(
    part: Sequence[Row], fields: _Fields, classes: Sequence[str], tokens: Tokenizer, length: int
) -> tuple[np.ndarray, np.ndarray]:
    """x [n, L] int32 and y [n] int64."""
    assert fields.prompt is not None
    assert fields.label is not None
    numbers = {name: number for number, name in enumerate(classes)}
    x, y = np.full((len(part), length), tokens.pad, np.int32), np.zeros(len(part), np.int64)
    for number, row in enumerate(part):
        named = row.text(fields.label, "label")
        if named not in numbers:
            raise ValueError(f"{row.place}: no training row has the class '{named}' (dataset.label)")
        y[number] = numbers[named]
        own = tokens.whole(row.text(fields.prompt, "prompt"))[:length]
        if not own:
            raise ValueError(f"{row.place}: field '{fields.prompt}' (dataset.prompt) is empty: repair or drop it")
        x[number, : len(own)] = own
    return x, y


def _note(
    what: str, path: str, encoded: Sequence[Encoded], length: int, num_rows: int, packing: bool, kept: Sequence[int]
) -> None:
    """Says what was cut or left out. ValueError: nothing is left."""
    if not kept:
        raise ValueError(
            f"no {what} row of {path} has a target within dataset.length={length} tokens: take a larger length"
        )
    cut = 0 if packing else sum(len(one.tokens) > length + 1 for one in encoded)
    if cut:
        without = num_rows - len(kept)
        left_out = f", of which {without} have no target left and are left out" if without else ""
        log.info(
            "%d of %d %s rows are longer than dataset.length=%d tokens and are cut%s",
            cut, num_rows, what, length, left_out, extra={"note": True},
        )  # fmt: skip


def _samples(x: np.ndarray, y: np.ndarray, owners: Sequence[int], owner: str | None) -> Samples:
    import torch

    from fedcomp.dataset.contract import Samples

    of: torch.Tensor | None = None if owner is None else torch.tensor(owners, dtype=torch.int64)
    return Samples(torch.from_numpy(x), torch.from_numpy(y), of)
