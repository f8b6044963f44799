"""Counts by hand."""

import torch

from fedcomp.partition.summary import label_counts, labels_held, sizes


def test_counts_of_a_small_partition():
    parts, labels = [torch.tensor([0, 3, 4]), torch.tensor([1])], torch.tensor([2, 0, 1, 2, 0])
    counts = label_counts(parts, labels, 4)
    assert counts.tolist() == [[1, 0, 2, 0], [1, 0, 0, 0]]
    assert sizes(parts).tolist() == [3, 1]
    assert labels_held(counts).tolist() == [2, 1]
