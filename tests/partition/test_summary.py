"""Counts by hand."""

import math

import pytest
import torch

from fedcomp.partition.summary import entropy_in_words, label_counts, label_entropy, sizes


def test_counts_of_a_small_partition():
    parts, labels = [torch.tensor([0, 3, 4]), torch.tensor([1])], torch.tensor([2, 0, 1, 2, 0])
    counts = label_counts(parts, labels, 4)
    assert counts.tolist() == [[1, 0, 2, 0], [1, 0, 0, 0]]
    assert sizes(parts).tolist() == [3, 1]
    assert (counts > 0).sum(1).tolist() == [2, 1]


def test_label_entropy_by_hand():
    counts = torch.tensor([[5, 0], [2, 2], [1, 3]])
    uneven = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert label_entropy(counts).tolist() == pytest.approx([0, math.log(2), uneven])
    said = entropy_in_words(counts)
    assert said == "mean label entropy of a client 0.418 nats (0.000 to 0.693); pooled 0.666"
