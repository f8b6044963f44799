"""A network of transformers as one of fedcomp's: tokens in, logits out; its masks and positions are made here.

transformers builds masks by asking tensors for values, which `torch.func.vmap` refuses, so it is given a whole one.

Shape legend: B batch, L positions, V tokens, C classes.
"""

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedcomp.core.first_line import first_line
from fedcomp.model.batched.checkpointing import checkpoint_layers
from fedcomp.model.batched.padding import random_inputs
from fedcomp.model.hf.export import write_folder
from fedcomp.model.lora.linear import LoraLinear, TrainedLinear

OWN_POSITIONS = frozenset(
    {"roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "camembert", "xmod", "data2vec-text", "mpnet"}
)
"""Networks that count positions from their padding token's number on, which they do themselves."""

MASKS_DIFFER = 0.05
"""How much of the outputs' length may differ with other masks: more than bfloat16's rounding."""


class HfNetwork(nn.Module):
    """tokens [B, L] -> logits [B, C] of the sequence's class, or of the next token, [B, V, L] or [B, V].

    Positions before the first and after the last token that is not `pad` are padding: nothing attends to them, and
    positions are counted from the first other token on.

    Attributes:
        network: transformers' own. causal: whether a position reads only those before it.
        pad: number of the padding token; None: there is none.
        num_outputs: V or C; logits of tokens that the dataset does not have are left out.
        every: whether each position has an output; of sequences with a class None.
        head: names of the trained parts of `network`. new_head: whether their first values are drawn.
        base_dropout: whether the network's own dropout is on in training; adapters have their own.
        checkpoints: turns checkpointing of its layers on; None: it has none.
    """

    network: Any

    def __init__(
        self,
        network: Any,
        causal: bool,
        pad: int | None,
        num_outputs: int,
        every: bool | None,
        head: Sequence[str] = (),
        new_head: bool = False,
        base_dropout: bool = False,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.network = network
        self.causal, self.pad, self.num_outputs, self.every = causal, pad, num_outputs, every
        self.head, self.new_head, self.base_dropout = tuple(head), new_head, base_dropout
        takes = inspect.signature(network.forward).parameters
        config: Any = network.config
        own_positions = config.model_type in OWN_POSITIONS
        self._gives_positions = "position_ids" in takes and not own_positions
        self.checkpoints = checkpoint_layers(network) if checkpointing else None
        self._options = {"use_cache": False} if "use_cache" in takes else {}

    def train(self, mode: bool = True) -> "HfNetwork":
        """As torch's; without `base_dropout` only adapters get into training mode."""
        super().train(mode)
        if not self.base_dropout:
            self.network.eval()
            for adapter in self.adapters():
                adapter.train(mode)
                adapter.base.eval()
        return self

    def adapters(self) -> Iterator[LoraLinear]:
        """The adapted layers, in order."""
        return (part for part in self.network.modules() if isinstance(part, LoraLinear))

    @torch.no_grad()
    def redraw(self) -> "HfNetwork":
        """Itself, with a new head and the trained factors of adapters drawn, in this order, from torch's generator."""
        for name in self.head if self.new_head else ():
            for part in self.network.get_submodule(name).modules():
                if isinstance(part, TrainedLinear):
                    nn.init.normal_(part.weight, std=getattr(self.network.config, "initializer_range", 0.02))
                    if part.bias is not None:
                        part.bias.zero_()
                elif hasattr(part, "reset_parameters"):
                    part.reset_parameters()
        for adapter in self.adapters():
            adapter.reset_parameters()
        return self

    def write_folder(self, folder: Path, merge: bool) -> None:
        """See `export.write_folder`."""
        write_folder(self, folder, merge)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: [B, L] int64. Logits are float32, or in the parameters' type where that is float64."""
        real = self._real(tokens)
        given: dict[str, Any] = {"attention_mask": self._mask(real), **self._options}
        if self._gives_positions:
            before = (real.cumsum(1) == 0).sum(1, keepdim=True)
            given["position_ids"] = (torch.arange(tokens.shape[1], device=tokens.device) - before).clamp(min=0)
        return self._outputs(self.network(input_ids=tokens, **given).logits)

    @torch.no_grad()
    def check_masks(self, length: int, vocab_size: int) -> None:
        """A trial on two samples. ValueError: the network's outputs are not those with masks of its own."""
        tokens = random_inputs(2, (length,), vocab_size, torch.Generator().manual_seed(0))
        if self.every is None and self.pad is not None:  # elsewhere nothing reads the padding behind it
            tokens[tokens == self.pad] = (self.pad + 1) % vocab_size
            tokens[1, (length + 1) // 2 :] = self.pad
        why = "its outputs differ from those with its own; where it attends in chunks, shorter samples help"
        try:
            found, real = self(tokens), self._real(tokens).long()
            wanted = self._outputs(self.network(input_ids=tokens, attention_mask=real, **self._options).logits)
            differs = bool((found - wanted).norm() > MASKS_DIFFER * wanted.norm())
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError) as error:
            differs, why = True, first_line(error)
        if differs:
            raise ValueError(
                f"model=hf: {self.network.config.model_type} does not run with fedcomp's attention masks, which say of "
                f"each position what it reads ({why}): take another network"
            )

    def _outputs(self, logits: Tensor) -> Tensor:
        logits = logits.float() if logits.dtype is torch.bfloat16 else logits
        if self.every is None:
            return logits
        logits = logits[..., : self.num_outputs]
        return logits.mT if self.every else logits[:, -1]

    def _real(self, tokens: Tensor) -> Tensor:
        """[B, L] bool: no padding before or behind."""
        if self.pad is None:
            return torch.ones_like(tokens, dtype=torch.bool)
        own = tokens != self.pad
        return (own.cumsum(1) > 0) & (own.flip(1).cumsum(1).flip(1) > 0)

    def _mask(self, real: Tensor) -> Tensor:
        """[B, 1, L, L] to add to scores: 0, or the smallest number where a position (row) must not read another."""
        length = real.shape[1]
        reads = real[:, None, None, :].expand(-1, 1, length, length)
        if self.causal:
            reads = reads & torch.ones(length, length, dtype=torch.bool, device=real.device).tril()
        dtype = self.network.get_input_embeddings().weight.dtype
        return torch.zeros_like(reads, dtype=dtype).masked_fill(~reads, torch.finfo(dtype).min)
