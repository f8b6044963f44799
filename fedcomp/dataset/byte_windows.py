"""Texts as tokens: the bytes of UTF-8, to predict the next of, or a class from.

Shape legend: n samples, L bytes of a window.
"""

import logging

import numpy as np
import torch

from fedcomp.dataset.contract import Samples

BYTES = 256
"""Number of tokens; 0 stands behind a text that is shorter than the window."""

log = logging.getLogger("fedcomp")


def beginnings(texts: list[bytes], labels: np.ndarray, owners: np.ndarray | None, window: int) -> Samples:
    """The first L bytes of each text as tokens uint8 [n, L], with its class."""
    tokens = np.zeros((len(texts), window), np.uint8)
    for row, text in enumerate(texts):
        tokens[row, : len(text)] = np.frombuffer(text[:window], np.uint8)
    owner = None if owners is None else torch.from_numpy(owners)
    return Samples(torch.from_numpy(tokens), torch.from_numpy(labels), owner)


def windows(texts: list[bytes], owners: np.ndarray | None, window: int) -> Samples:
    """Tokens uint8 [n, L] and after each the next, int64 [n, L]: windows side by side; a text's rest is left out.

    Raises ValueError: no text is longer than a window.
    """
    rows = [(row, start) for row, text in enumerate(texts) for start in range(0, len(text) - window, window)]
    if not rows:
        raise ValueError(f"no text has more than dataset.window={window} bytes: lower it")
    short = sum(len(text) <= window for text in texts)
    if short:
        log.info(
            "%d of %d texts have no more than dataset.window=%d bytes and are left out",
            short,
            len(texts),
            window,
            extra={"note": True},
        )
    tokens = np.stack([np.frombuffer(texts[row], np.uint8, window + 1, start) for row, start in rows])
    owner = None if owners is None else torch.from_numpy(owners[[row for row, _ in rows]])
    return Samples(torch.from_numpy(tokens[:, :-1].copy()), torch.from_numpy(tokens[:, 1:].astype(np.int64)), owner)
