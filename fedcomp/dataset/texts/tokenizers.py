"""Texts as tokens: bytes, which need no file, or the tokenizer in a folder of Hugging Face's."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedcomp.core.first_line import first_line
from fedcomp.dataset import byte_tokens

BYTES = "bytes"


@dataclass(frozen=True)
class Tokenizer:
    """How a text becomes tokens.

    Attributes:
        encode: tokens of a text, without tokens at its ends. whole: with those at its ends, as a classifier reads it.
        start: tokens before the first text. end: the token after the last one; None: there is none.
        pad: the token behind short samples. vocab_size: tokens are 0 to vocab_size - 1.
    """

    encode: Callable[[str], list[int]]
    whole: Callable[[str], list[int]]
    start: tuple[int, ...]
    end: int | None
    pad: int
    vocab_size: int


def files(name: str, root: Path) -> list[Path]:
    """What `load` reads."""
    kept = ("*.json", "*.model", "*.txt", "*.jinja")
    return [] if name == BYTES else sorted(file for kind in kept for file in (root / name).glob(kind))


def load(name: str, root: Path, classifies: bool) -> Tokenizer:
    """The tokenizer `bytes`, or that of a folder.

    Args:
        root: the folder that a relative name starts from. classifies: whether samples have a class, so that a padding
            token must be one of its own.
    Raises:
        ValueError: no such folder, no tokenizer in it, no library, or no padding token.
    """
    if name == BYTES:

        def encode(text: str) -> list[int]:
            return byte_tokens.encode(text).tolist()

        return Tokenizer(encode, encode, (), byte_tokens.EOS, byte_tokens.PAD, byte_tokens.VOCABULARY)
    folder = root / Path(name).expanduser()
    if not folder.is_dir():
        raise ValueError(
            f"dataset.tokenizer={name}: there is no folder {folder}; give the model's folder, or bytes (a tokenizer's "
            "name on a hub is never fetched)"
        )
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise ValueError(f"the tokenizer in {folder} needs transformers: pip install 'fedcomp[hf]'") from None
    try:
        own = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever json, tokenizers and the library raise for damaged files
        raise ValueError(
            f"dataset.tokenizer: {folder} has no tokenizer that can be read ({first_line(error)})"
        ) from None
    if len(own.get_vocab()) <= len(own.all_special_tokens):  # the library makes an empty one where there is none
        raise ValueError(f"dataset.tokenizer: {folder} has no tokenizer, or one without words: save the model's there")
    pad = own.pad_token_id
    if pad is None and classifies:
        raise ValueError(
            f"the tokenizer in {folder} has no padding token, which a classifier needs: set one and save it there"
        )
    first = [] if own.bos_token_id is None else [own.bos_token_id]
    start = tuple(first) if own("")["input_ids"][:1] == first else ()
    return Tokenizer(
        lambda text: own(text, add_special_tokens=False)["input_ids"],
        lambda text: own(text)["input_ids"],
        start,
        own.eos_token_id,
        next(token for token in (pad, own.eos_token_id, 0) if token is not None),
        len(own),
    )
