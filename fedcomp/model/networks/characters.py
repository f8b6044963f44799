"""Networks that predict the next character from a window of tokens.

`char_lstm` is LEAF's (S. Caldas et al., 2018), which FedProx and most others copy: 819,920 parameters. LEAF's own
program, in TensorFlow, has one bias a gate instead of two: 817,872. FedMRN's (its appendix program) has one layer and
no bias at all: 291,456 parameters; its dropout of 0.5 before the last layer is `model.dropout=0.5`.

Shape legend: B batch, L characters of a window, V tokens, E embedding, H hidden units.
"""

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor, nn

from fedcomp.core.ranges import Whole, Within, checked

Count = Annotated[int, Whole()]


class CharLSTM(nn.Module):
    """Embedding V -> E, LSTM layers of H units, dropout, a linear layer H -> V.

    Logits [B, V] at the last position, or [B, V, L] at every one.
    """

    def __init__(
        self, vocab_size: int, embedding: int, hidden: int, layers: int, bias: bool, every: bool, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.every = every
        self.embedding = nn.Embedding(vocab_size, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, bias=bias, batch_first=True)
        self.dropout = nn.Dropout(dropout) if dropout else None
        self.head = nn.Linear(hidden, vocab_size, bias=bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: [B, L] int64."""
        states, _ = self.lstm(self.embedding(tokens))
        states = states if self.every else states[:, -1]
        states = states if self.dropout is None else self.dropout(states)
        return self.head(states).mT if self.every else self.head(states)


class CharGPT(nn.Module):
    """Decoder-only transformer of torch's own layers: token and position embeddings, causal blocks, a linear layer.

    Blocks normalise before attention and perceptron, whose hidden width is 4 E; there is no dropout. Logits as those
    of `CharLSTM`.
    """

    mask: Tensor

    def __init__(self, vocab_size: int, length: int, width: int, heads: int, layers: int, every: bool) -> None:
        super().__init__()
        self.every = every
        self.tokens, self.positions = nn.Embedding(vocab_size, width), nn.Embedding(length, width)
        block = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, vocab_size)
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).triu(1))

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: [B, L] int64."""
        states = self.blocks(self.tokens(tokens) + self.positions.weight, self.mask)
        return self.head(states).mT if self.every else self.head(states[:, -1])


@checked("model.")
def char_lstm(
    input_shape: Sequence[int],
    num_outputs: int,
    target_shape: Sequence[int] = (),
    vocab_size: int | None = None,
    embedding: Count = 8,
    hidden: Count = 256,
    layers: Count = 2,
    bias: bool = True,
    init_std: float | None = None,
    dropout: Annotated[float, Within("[0, 1)", "a probability")] = 0.0,
) -> CharLSTM:
    """`CharLSTM` for a dataset of tokens."""
    tokens, every = _checked("char_lstm", input_shape, num_outputs, target_shape, vocab_size)
    network = CharLSTM(tokens, embedding, hidden, layers, bias, every, dropout)
    if init_std is not None:
        for parameter in network.parameters():
            nn.init.normal_(parameter, std=init_std)
    return network


@checked("model.")
def char_gpt(
    input_shape: Sequence[int],
    num_outputs: int,
    target_shape: Sequence[int] = (),
    vocab_size: int | None = None,
    width: Count = 64,
    heads: Count = 4,
    layers: Count = 2,
) -> CharGPT:
    """`CharGPT` for a dataset of tokens."""
    tokens, every = _checked("char_gpt", input_shape, num_outputs, target_shape, vocab_size)
    if width % heads:
        raise ValueError(f"model.width={width} must be a multiple of model.heads={heads}")
    return CharGPT(tokens, input_shape[0], width, heads, layers, every)


def _checked(
    name: str, input_shape: Sequence[int], num_outputs: int, target_shape: Sequence[int], vocab_size: int | None
) -> tuple[int, bool]:
    """V, and whether every position has a target. ValueError unless the dataset is one of the next token."""
    if vocab_size is None or tuple(target_shape) not in ((), tuple(input_shape)):
        raise ValueError(
            f"model={name} predicts the next of a sequence of tokens, which this dataset does not have: take "
            "dataset=shakespeare, text or huggingface with a column of texts, or another model"
        )
    if num_outputs != vocab_size:
        raise ValueError(
            f"model={name} predicts the next of {vocab_size} tokens, but the texts of this dataset have {num_outputs} "
            "classes: leave the label out (dataset=text: dataset.answer for dataset.label; huggingface: no "
            "dataset.target; shakespeare: no dataset.role_as_label), or, for the classes, take model=hf or a "
            "network of your own (model=module model.path=mine.Net)"
        )
    return vocab_size, bool(target_shape)
