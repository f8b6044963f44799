"""Samples dealt by class: moments of Dirichlet's shares, FedMRN's Non-IID-2 as in its official code, shards."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch

from fedcomp.partition.dirichlet import Dirichlet
from fedcomp.partition.labels import Labels
from fedcomp.partition.shards import Shards
from fedcomp.partition.summary import label_counts, label_entropy, sizes
from fedcomp.random.keys import Key
from tests.looped import looped
from tests.refused import refused

BALANCED = torch.arange(10_000) % 10
NUM_CLIENTS = 5


def shares(partition, num_clients=NUM_CLIENTS, num_seeds=100, labels=BALANCED):
    """[seeds, N, C] counts."""
    parts = [partition.split(labels, len(labels), num_clients, Key((seed,))) for seed in range(num_seeds)]
    return torch.stack([label_counts(part, labels, 10) for part in parts]).double()


@looped("alpha", [0.1, 1.0, 10.0])
def test_per_class_shares_have_the_moments_of_a_dirichlet(alpha):
    """p ~ Dir(alpha 1_N): E p = 1/N, Var p = (1/N)(1 - 1/N) / (N alpha + 1); 1000 class vectors, 5 standard errors."""
    share = shares(Dirichlet(alpha, balance=False, min_size=1, max_tries=1)) if alpha > 0.5 else _any_size(alpha)
    mean, variance = 1 / NUM_CLIENTS, (1 / NUM_CLIENTS) * (1 - 1 / NUM_CLIENTS) / (NUM_CLIENTS * alpha + 1)
    by_client = share.transpose(1, 2).reshape(-1, NUM_CLIENTS) / 1000
    standard_error = (variance / len(by_client)) ** 0.5
    assert (by_client.mean(0) - mean).abs().max() < 5 * standard_error
    squares = (by_client - mean) ** 2
    error_of_square = squares.std(0) / len(by_client) ** 0.5
    assert ((squares.mean(0) - variance).abs() < 5 * error_of_square + 1e-3 * variance).all()


def _any_size(alpha):
    """Counts without the redraw of empty clients, which would condition the moments."""
    partition, random = Dirichlet(alpha, balance=False), np.random.default_rng(0)
    counts = [partition._per_class(np.full(10, 1000), NUM_CLIENTS, random) for _ in range(100)]
    return torch.from_numpy(np.stack(counts)).double()


def test_per_client_shares_have_the_moments_of_a_dirichlet():
    """With far more samples than are taken, q_i ~ Dir(alpha 1_C): one client of the first served is unconditioned."""
    alpha, num_classes, taken = 0.5, 10, 2000
    partition, random = Dirichlet(alpha, "per_client"), np.random.default_rng(0)
    counts = [partition._per_client(np.full(10, 10 * taken), 100, random) for _ in range(10)]
    share = torch.from_numpy(np.concatenate(counts)).double() / taken  # the average over clients is exact
    mean = 1 / num_classes
    torch.testing.assert_close(share.mean(0), torch.full((10,), mean, dtype=torch.float64))
    variance = mean * (1 - mean) / (num_classes * alpha + 1) + mean / taken
    assert float(share.var(0).mean()) == pytest.approx(variance, rel=0.15)  # depletion pulls the last clients in


def test_per_client_parts_are_of_equal_size():
    for labels, num_clients in ((BALANCED, 7), (BALANCED[:1603], 20)):
        parts = Dirichlet(0.1, "per_client").split(labels, len(labels), num_clients, Key((0,)))
        assert int(sizes(parts).max() - sizes(parts).min()) <= 1


def test_hsu_counts_alpha_for_all_classes_together():
    """alpha r instead of alpha C r: with 10 classes 1.0 is per_client's 0.1, sample for sample, and 0.1 more skewed."""
    both = Dirichlet(1.0, "hsu"), Dirichlet(0.1, "per_client")
    hsu, ours = (one.split(BALANCED, 10_000, NUM_CLIENTS, Key((0,))) for one in both)
    assert all(torch.equal(*pair) for pair in zip(hsu, ours))


def _mean_entropy(alpha, variant, num_clients, num_seeds):
    counts = shares(Dirichlet(alpha, variant), num_clients, num_seeds)
    return float(label_entropy(counts.flatten(0, 1)).mean())


def test_label_entropies_that_the_docstring_gives():
    """E H(q) = psi(A + 1) - sum_c (a_c / A) psi(a_c + 1), with a_c = 0.1 for each of 10 classes.

    Clients hold all samples, so that the last ones get what is left, whatever they draw. Bounds: 4 standard errors.
    """
    own = torch.digamma(torch.tensor([2.0, 1.1], dtype=torch.float64))
    assert float(own[0] - own[1]) == pytest.approx(0.847, abs=5e-4)
    assert _mean_entropy(0.1, "per_client", 5, 100) == pytest.approx(1.14, abs=0.047)
    assert _mean_entropy(1.0, "hsu", 100, 5) == pytest.approx(0.775, abs=0.074)


def test_balance_keeps_clients_that_hold_their_share_out_of_later_classes():
    """A client passes n/N with one class at most, so it never holds more than n/N plus that class."""
    for seed in range(20):
        parts = Dirichlet(0.3).split(BALANCED, 10_000, 20, Key((seed,)))
        counts = label_counts(parts, BALANCED, 10)
        before = counts.cumsum(1) - counts
        assert bool((counts[before >= 500] == 0).all())
    free = label_counts(Dirichlet(0.3, balance=False).split(BALANCED, 10_000, 20, Key((0,))), BALANCED, 10)
    assert bool((free[(free.cumsum(1) - free) >= 500] > 0).any())


def test_small_alpha_means_few_labels():
    parts = [Dirichlet(alpha, min_size=1).split(BALANCED, 10_000, 20, Key((0,))) for alpha in (0.05, 100.0)]
    few, many = (label_counts(part, BALANCED, 10) for part in parts)
    assert float((few > 0).sum(1).double().mean()) < 6
    assert bool(((many > 0).sum(1) == 10).all())


def test_sizes_are_like_those_of_the_papers_code():
    """FedMRN on Fashion-MNIST, alpha 0.3, 100 clients: smallest 133, median 610, largest 1744 samples."""
    labels = torch.arange(60_000) % 10
    found = torch.stack([sizes(Dirichlet(0.3).split(labels, 60_000, 100, Key((s,)))) for s in range(5)]).double()
    assert 50 < float(found.min(1).values.mean()) < 250
    assert 560 < float(found.median(1).values.mean()) < 660
    assert 1200 < float(found.max(1).values.mean()) < 2000


def test_min_size_is_kept():
    for seed in range(10):
        parts = Dirichlet(0.1, min_size=20).split(BALANCED[:1600], 1600, 20, Key((seed,)))
        assert int(sizes(parts).min()) >= 20


test_what_it_refuses = refused(
    [
        (
            lambda: Dirichlet(0.01, max_tries=3).split(BALANCED[:1000], 1000, 50, Key((0,))),
            r"in 3 draws with alpha=0.01, 50 clients and 1000 samples, .* at most \d samples, below .*min_size=10",
        ),
        (
            lambda: Dirichlet().split(BALANCED[:1600], 1600, 200, Key((0,))),
            r"min_size is 10, but 1600 samples over 200 clients make 8 each; lower",
        ),
        ({"min_size": 0}, "partition.min_size=0 must be a whole number, 1 or more"),
    ],
    Dirichlet,
)


def test_an_alpha_so_small_that_shares_vanish():
    parts = Dirichlet(1e-5, "per_client").split(BALANCED, 10_000, 20, Key((0,)))
    assert sizes(parts).tolist() == [500] * 20


KEY = Key(("partition", 0))


def label_sets(parts, labels):
    return [tuple(labels[part].unique().tolist()) for part in parts]


def test_100_clients_with_3_of_10_labels_make_10_sets():
    labels = torch.arange(60_000) % 10
    parts = Labels(3).split(labels, 60_000, 100, KEY)
    sets = label_sets(parts, labels)
    assert sets[:4] == [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 1, 9)]
    assert len(set(sets)) == 10
    assert set(Counter(label for held in sets for label in held).values()) == {30}
    assert {len(part) for part in parts} == {600}  # the size that the paper's split has on Fashion-MNIST


def test_cifar_10_and_cifar_100():
    labels = torch.arange(50_000) % 10
    sizes = {len(part) for part in Labels(3).split(labels, 50_000, 100, KEY)}
    assert sizes <= {498, 499, 500, 501}
    labels = torch.arange(50_000) % 100
    parts = Labels(20).split(labels, 50_000, 100, KEY)
    groups = set(label_sets(parts, labels))
    assert len(groups) == 5
    assert sorted(label for group in groups for label in group) == list(range(100))
    assert {len(part) for part in parts} == {500}


def test_a_class_is_shuffled_and_cut_evenly():
    labels = torch.tensor([0] * 7 + [1] * 4)
    parts = Labels(1).split(labels, 11, 4, KEY)
    assert label_sets(parts, labels) == [(0,), (1,), (0,), (1,)]
    assert [len(part) for part in parts] == [4, 2, 3, 2]
    assert any(parts[0].tolist() != Labels(1).split(labels, 11, 4, Key((seed,)))[0].tolist() for seed in range(5))


def test_random_labels_are_distinct_and_many_sets():
    labels = torch.arange(6000) % 10
    parts = Labels(3, "random").split(labels, 6000, 100, KEY)
    counts = label_counts(parts, labels, 10)
    assert (counts > 0).sum(1).tolist() == [3] * 100
    assert len(set(label_sets(parts, labels))) > 30  # of 120
    holders = (counts > 0).sum(0).double()
    assert (holders - 30).abs().max() < 4.5 * (100 * 0.3 * 0.7) ** 0.5
    assert holders.std() > 0


def test_random_leaves_no_class_without_a_holder():
    """5 clients with 2 of 10 labels: only a perfect deal covers all, which a plain draw almost never is."""
    labels = torch.arange(100) % 10
    for seed in range(20):
        parts = Labels(2, "random").split(labels, 100, 5, Key((seed,)))
        assert sum(len(part) for part in parts) == 100
        assert [len(held) for held in label_sets(parts, labels)] == [2] * 5


CLASSES = torch.arange(100) % 10

test_what_they_refuse = refused(
    [
        *(
            (partial(Labels(num, variant).split, CLASSES, 100, clients, KEY), line)
            for variant in ("balanced", "random")
            for num, clients, line in [
                (11, 5, r"labels_per_client is 11, but the training samples have 10 classes"),
                (2, 3, r"is 2: 3 clients hold at most 6 of 10 classes; raise it to 4 or more"),
            ]
        ),
        (
            lambda: Labels(1).split(torch.tensor([0] * 20 + [1]), 21, 4, KEY),
            r"client 3 would hold no data: 21 samples were dealt to 4 clients",
        ),
        (
            lambda: Shards(3).split(torch.arange(10), 10, 4, KEY),
            r"shards_per_client is 3: 12 shards for 4 clients, but only 10 samples; at most 2 a client",
        ),
    ]
)


def test_shards_of_a_small_table():
    labels = torch.tensor([1, 0, 1, 0, 2, 2, 0, 1])  # sorted, stable: 1 3 | 6 0 | 2 7 | 4 5
    parts = Shards(2).split(labels, 8, 2, KEY)
    shards = {(1, 3), (6, 0), (2, 7), (4, 5)}
    assert {tuple(part[run].tolist()) for part in parts for run in (slice(0, 2), slice(2, 4))} == shards


def test_few_labels_a_client_and_equal_sizes():
    labels = torch.arange(6000) % 10
    parts = Shards(2).split(labels, 6000, 100, KEY)
    assert {len(part) for part in parts} == {60}
    held = (label_counts(parts, labels, 10) > 0).sum(1)
    assert int(held.max()) == 2
    assert 0.02 < float((held == 1).double().mean()) < 0.25  # 19/199 pair up with their own class


def test_shards_are_dealt_at_random():
    labels = torch.arange(6000) % 10
    held = [label_counts(Shards(2).split(labels, 6000, 100, Key((seed,))), labels, 10) for seed in range(2)]
    assert not torch.equal(*held)
