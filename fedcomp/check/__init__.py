"""What a part must pass, ours or a user's: `fedcomp-check` on the command line, and these for tests of one's own.

    from fedcomp.check import AlgorithmCase, CodecCase, check_algorithm, check_codec
    check_codec(CodecCase("quarter", Quarter(), lambda layers: 32 * max(1, round(0.25 * sum(layers)))))

Each raises `Failed`, an AssertionError with the smallest example that was found.
"""

from fedcomp.check import algorithm, codec, dataset, messages, model
from fedcomp.check.algorithm import AlgorithmCase
from fedcomp.check.codec import CodecCase
from fedcomp.check.dataset import DatasetCase
from fedcomp.check.failed import Failed

__all__ = [
    "AlgorithmCase",
    "CodecCase",
    "DatasetCase",
    "Failed",
    "check_algorithm",
    "check_codec",
    "check_dataset",
    "check_model",
]


def check_codec(case: CodecCase) -> None:
    """All checks of a codec. Raises Failed."""
    for check in (*codec.CHECKS, *messages.CHECKS, messages.check_other_process):
        check(case)


def check_algorithm(case: AlgorithmCase) -> None:
    """All checks of an algorithm. Raises Failed."""
    for check in algorithm.CHECKS:
        check(case)


def check_model(case: AlgorithmCase) -> None:
    """All checks of a model (`fedcomp.check.model.case_of`). Raises Failed."""
    for check in model.CHECKS:
        check(case)


def check_dataset(case: DatasetCase) -> None:
    """All checks of a data set. Raises Failed."""
    for check in dataset.CHECKS:
        check(case)
