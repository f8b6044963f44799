"""What a model's numbers are, in words: which of them are trained, which are sent."""

from __future__ import annotations

from collections.abc import Iterator

from fedcomp.model.contract import AnyModel, frozen_of


def sizes_in_words(model: AnyModel) -> Iterator[str]:
    """A line of how many numbers are trained, frozen and statistics; one more where there are more statistics."""
    frozen = sum(tensor.numel() for tensor in frozen_of(model).values())
    yield f"model: {model.dim:,} trained numbers, {frozen:,} frozen, {model.num_stats:,} statistics"
    if model.num_stats > model.dim:
        yield (
            "warning: the model's statistics, its floating-point buffers, outnumber its trained parameters and are "
            "sent with them: make those that never change parameters with requires_grad=False, which are not sent"
        )
