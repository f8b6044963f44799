"""In which order the experiments of all pages are run: what a reader wants first."""

import importlib
from collections.abc import Iterable, Iterator, Sequence

from scripts.reproduce.experiment import Command, Experiment

PAPERS = (
    "fedscalar",
    "rand_k",
    "bicompfl",
    "fedmrn",
    "fedavg_svrg",
    "same_bits",
    "seconds",
    "neighbours",
    "fine_tuning",
)
FIRST = (
    # What readers quote: the methods of all papers beside each other, on the tasks that have no runs yet.
    "same_bits_mnist",
    "same_bits_shakespeare",
    # The tables that claims of papers are about and no run has decided.
    "bicompfl_mnist_lenet_iid",
    "bicompfl_mnist_lenet_noniid",
    "fedmrn_table1_non_iid_2",
    "fedmrn_table1_iid",
    "fedmrn_table1_non_iid_1",
    "bicompfl_mnist_cnn4_iid",
    "bicompfl_fashion_cnn4_iid",
    "bicompfl_cifar10_cnn6_iid",
    "fedmrn_ablation",
    # What papers leave open.
    "bicompfl_phi",
    "bicompfl_capacity",
    "bicompfl_mix_iid",
    "bicompfl_mix_noniid",
    "fedmrn_noise",
    "fedmrn_lenet5_alpha",
    "fedmrn_lenet5_alpha_cifar10",
    # The rest of the papers' tables, and theirs with a smaller network.
    "fedmrn_lenet5_fashion_mnist",
    "fedmrn_lenet5_cifar10",
    "fedmrn_table1_cifar10",
    "fedmrn_table1_svhn",
    "fedmrn_table1_cifar100",
    "bicompfl_mnist_cnn4_noniid",
    "bicompfl_fashion_cnn4_noniid",
    "bicompfl_cifar10_cnn6_noniid",
)
"""Experiments by name; those that are not named follow page by page."""


def ordered(papers: Sequence[str]) -> list[tuple[str, Experiment]]:
    """(page, experiment) of these pages, those of FIRST before the others."""
    found = [
        (name, experiment)
        for name in papers
        for experiment in importlib.import_module(f"scripts.reproduce.{name}").EXPERIMENTS
    ]
    return sorted(found, key=lambda one: FIRST.index(one[1].name) if one[1].name in FIRST else len(FIRST))


def of_turn(commands: Iterable[Command], later: bool) -> Iterator[Command]:
    """The commands of first seeds, or those of seeds after the first, which wait until every experiment has one."""
    return (one for one in commands if any(word.split(",")[0] in ("seed=1", "seed=2") for word in one) is later)
