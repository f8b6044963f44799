"""What BiCompFL claims of its tables 5 to 12, and what our runs decide."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, median

from scripts.reproduce.bicompfl_tables import ADAPTIVE, BASELINES, CFL, GR, PRIVATE, RECONST, SPLIT, TABLES
from scripts.reproduce.experiment import Experiment
from scripts.reproduce.markdown import average, every, less, verdict
from scripts.reproduce.markdown import claims as table
from scripts.reproduce.printed import accuracies, bits, within
from scripts.reproduce.records import Records


def claims(records: Mapping[str, Records]) -> str:
    """Where the paper does not say what a method does, its claims about it are not judged: see the text below."""
    lenet, fashion = "appendix I: LeNet-5 on MNIST", "section 4, figure 1: 4CNN on Fashion-MNIST, i.i.d."
    rows: list[tuple[str, str, Experiment | str]] = [
        (
            '"an order of magnitude" fewer bits than "multiple benchmarks" (abstract; GR-Fixed and the median baseline '
            "of table 5)",
            _tenth(records["5"]),
            TABLES["5"],
        ),
        (
            f'"higher maximum accuracies after 200 epochs than the non-stochastic baselines" ({lenet}), i.i.d.',
            _higher(records["5"]),
            TABLES["5"],
        ),
        ("the same, Dirichlet(0.1)", _higher(records["6"]), TABLES["6"]),
        (
            'GR-CFL "substantially reduces the communication cost without loss in performance" (section 4), LeNet-5, '
            "i.i.d.",
            _conventional(records["5"]),
            TABLES["5"],
        ),
        ("the same, Dirichlet(0.1)", _conventional(records["6"]), TABLES["6"]),
        (
            f'GR-Reconst "does not suffer notable performance degradation" ({lenet}), i.i.d.',
            verdict(within(records["5"], GR, RECONST, 0.005)),
            TABLES["5"],
        ),
        (f'SplitDL: "only a minor loss in performance, especially in the i.i.d. setting" ({lenet})', "", ""),
        (f'"the bitrates are comparable for all our methods" but SplitDL ({lenet})', "", ""),
        (
            '"more than a factor of 1000" fewer bits than FedAvg, and 32 than DoubleSqueeze, Neolithic and Liec '
            "(section 4, figure 2(a): 4CNN on MNIST, i.i.d.)",
            _thousandth(records["7"]),
            TABLES["7"],
        ),
        (
            'adaptive blocks "can drastically reduce the average bitrate" (appendix I: 4CNN on MNIST, i.i.d.)',
            _saves(records["7"]),
            TABLES["7"],
        ),
        (
            f'PR "converges significantly slower than" GR "for any block allocation method" ({fashion})',
            _slower(records["9"]),
            TABLES["9"],
        ),
        (
            f'SplitDL "comes without performance degradation" ({fashion})',
            "",
            "",
        ),
        (
            'GR and PR "both achieve better results with a bitrate smaller by a factor of 5 than the best baselines" '
            "(section 4, figure 2(c): 6CNN on CIFAR-10, i.i.d.)",
            _fifth(records["11"]),
            TABLES["11"],
        ),
    ]
    return table(rows)


def _tenth(records: Records) -> str:
    """Whether GR-Fixed sends less than a tenth of the bits of the median baseline; nothing before all have run."""
    own, found = bits(records, GR), [bits(records, name) for name in BASELINES]
    known = [one for one in found if one is not None]
    if own is None or len(known) < len(BASELINES):
        return ""
    return f"{verdict(10 * own < median(known))}: {median(known) / own:.3g} times"


def _higher(records: Records) -> str:
    """Whether each variant that the paper describes in full is above each baseline."""
    variants = (GR, "BiCompFL-GR-Adaptive", ADAPTIVE, RECONST, PRIVATE)
    values = accuracies(records, *variants, "FedAvg", *BASELINES)
    own, others = values[: len(variants)], values[len(variants) :]
    return verdict(every([less(theirs, one) for one in own for theirs in others]))


def _conventional(records: Records) -> str:
    """Whether GR-CFL is less than half a point below FedAvg, with a tenth of the bits."""
    found = [bits(records, name) for name in ("FedAvg", CFL)]
    dense, own = found
    holds = every([within(records, "FedAvg", CFL, 0.005), less(None if own is None else 10 * own, dense)])
    if holds is None or own is None or dense is None:
        return ""
    theirs, ours = accuracies(records, "FedAvg", CFL)
    assert theirs is not None
    assert ours is not None
    seeds = len(records.where(label=CFL))
    return (
        f"{verdict(holds)}: {100 * ours:.2f} % where FedAvg has {100 * theirs:.2f} %, {dense / own:.0f} times fewer "
        f"bits ({seeds} seed{'s' if seeds > 1 else ''})"
    )


def _thousandth(records: Records) -> str:
    """Whether SplitDL, whose bits the paper states, sends so much less."""
    own = bits(records, SPLIT)
    factors = {"FedAvg": 1000, "Doublesqueeze": 32, "Neolithic": 32, "Liec": 32}
    found = {name: bits(records, name) for name in factors}
    return verdict(every([less(None if own is None else factors[name] * own, one) for name, one in found.items()]))


def _saves(records: Records) -> str:
    """Whether both adaptive allocations send less than two thirds of the bits of fixed blocks."""
    fixed, *adaptive = (bits(records, name) for name in (GR, "BiCompFL-GR-Adaptive", ADAPTIVE))
    limit = None if fixed is None else fixed / 1.5
    return verdict(every([less(one, limit) for one in adaptive]))


def _slower(records: Records) -> str:
    """Whether PR's accuracy, as a mean over the rounds, is below that of GR."""
    if None in accuracies(records, GR, PRIVATE):
        return ""
    shared, private = (
        average(records.where(label=name), lambda run: fmean(line["test/accuracy"] for line in run.lines))
        for name in (GR, PRIVATE)
    )
    return verdict(less(private, shared))


def _fifth(records: Records) -> str:
    values = accuracies(records, GR, PRIVATE, "FedAvg", *BASELINES)
    best = every([less(theirs, own) for own in values[:2] for theirs in values[2:]])
    limit = min((one for name in BASELINES if (one := bits(records, name)) is not None), default=None)
    fewer = [less(None if (own := bits(records, name)) is None else 5 * own, limit) for name in (GR, PRIVATE)]
    return verdict(every([best, *fewer]))
