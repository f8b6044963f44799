"""Bytes as tokens, without a file: a byte b is token b + 3, after padding, end and unknown (ByT5's first ids).

L. Xue et al., "ByT5: towards a token-free future with pre-trained byte-to-byte models", TACL 2022.
"""

import numpy as np

PAD, EOS, UNKNOWN, OFFSET = 0, 1, 2, 3
"""Tokens that are no byte, and the token of byte 0."""
VOCABULARY = 256 + OFFSET


def encode(text: str) -> np.ndarray:
    """[L] int16 tokens of a text in UTF-8, without an end."""
    return np.frombuffer(text.encode(), np.uint8).astype(np.int16) + OFFSET


def decode(tokens: np.ndarray) -> str:
    """The text of tokens [L]; those that are no byte are left out, bytes that are no UTF-8 become U+FFFD."""
    kept = np.asarray(tokens)
    return (kept[kept >= OFFSET] - OFFSET).astype(np.uint8).tobytes().decode(errors="replace")
