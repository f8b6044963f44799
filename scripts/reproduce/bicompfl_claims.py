"""What BiCompFL claims of its tables 5 to 12, and what our runs decide."""

from collections.abc import Mapping
from statistics import fmean, median

from scripts.reproduce.bicompfl_tables import ADAPTIVE, BASELINES, CFL, GR, PRIVATE, RECONST, SPLIT, TABLES
from scripts.reproduce.difference import all_above, none_below
from scripts.reproduce.experiment import Experiment
from scripts.reproduce.markdown import average, every, less, verdict
from scripts.reproduce.markdown import claims as table
from scripts.reproduce.printed import above, bits, finished
from scripts.reproduce.records import Records

VARIANTS = (GR, "BiCompFL-GR-Adaptive", ADAPTIVE, RECONST, PRIVATE)
"""Those that the paper describes in full, but for the options of adaptive blocks."""
REST = "not judged: the paper leaves [the other blocks](#splitdl-the-other-blocks) open"


def claims(records: Mapping[str, Records]) -> str:
    """Where the paper does not say what a method does, its claims about it are not judged, and the cell says so."""
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
            _no_loss(records["5"], GR, RECONST),
            TABLES["5"],
        ),
        (
            f'SplitDL: "only a minor loss in performance, especially in the i.i.d. setting" ({lenet})',
            _kept(records["5"], records["6"]),
            TABLES["5"],
        ),
        (f'"the bitrates are comparable for all our methods" but SplitDL ({lenet})', _range(records["5"]), TABLES["5"]),
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
        (f'SplitDL "comes without performance degradation" ({fashion})', REST, ""),
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
    """Whether each variant is above each baseline, if errors tell."""
    found = [one for name in VARIANTS for one in above(records, name, ("FedAvg", *BASELINES))]
    said = verdict(all_above(found))
    alone = any(one is not None and one.seeds == 1 for one in found)
    return f"{said}, some by one seed: the error of the test set alone" if said and alone else said


def _no_loss(records: Records, reference: str, label: str) -> str:
    """Whether a method is not below another by more than two standard errors, and by how much it differs."""
    (found,) = above(records, label, [reference])
    return "" if found is None else f"{verdict(none_below([found]))}: {found}"


def _conventional(records: Records) -> str:
    """Whether GR-CFL is not below FedAvg, with a tenth of the bits."""
    dense, own = (bits(records, name) for name in ("FedAvg", CFL))
    (found,) = above(records, CFL, ["FedAvg"])
    if own is None or dense is None or found is None:
        return ""
    holds = every([none_below([found]), 10 * own < dense])
    return f"{verdict(holds)}: {found}, {dense / own:.0f} times fewer bits"


def _kept(iid: Records, dirichlet: Records) -> str:
    """How far SplitDL that keeps its estimate is from PR-Fixed; no verdict: the paper does not say that it keeps it."""
    found = [above(records, SPLIT, [PRIVATE])[0] for records in (iid, dirichlet)]
    said = ", ".join(
        f"{split} {one}" for split, one in zip(("i.i.d.", "Dirichlet(0.1)"), found, strict=True) if one is not None
    )
    return f"{REST}; with `rest=keep`, beside PR-Fixed: {said}" if said else REST


def _range(records: Records) -> str:
    """The least and the most bits of the variants but SplitDL; no verdict, since the paper prints neither κ nor φ."""
    found = [one for name in VARIANTS if (one := bits(records, name)) is not None]
    open_ = "not judged: the paper prints neither κ nor φ of [adaptive blocks](#adaptive-blocks-the-capacity)"
    return f"{open_}; with κ = ln 256 and φ = 3: {min(found):.2g} to {max(found):.2g} bits" if found else open_


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
    chosen = finished(records, GR, PRIVATE)
    if chosen is None:
        return ""
    shared, private = (average(runs, lambda run: fmean(line["test/accuracy"] for line in run.lines)) for runs in chosen)
    return verdict(less(private, shared))


def _fifth(records: Records) -> str:
    best = all_above([one for name in (GR, PRIVATE) for one in above(records, name, ("FedAvg", *BASELINES))])
    limit = min((one for name in BASELINES if (one := bits(records, name)) is not None), default=None)
    fewer = [less(None if (own := bits(records, name)) is None else 5 * own, limit) for name in (GR, PRIVATE)]
    return verdict(every([best, *fewer]))
