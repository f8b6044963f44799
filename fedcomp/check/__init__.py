"""What a part must pass, ours or a user's: `fedcomp-check` on the command line, and these for tests of one's own.

    from fedcomp.check import AlgorithmCase, CodecCase, check_algorithm, check_codec
    check_codec(CodecCase("quarter", Quarter(), lambda layers: 32 * max(1, round(0.25 * sum(layers)))))

Each raises `Failed`, an AssertionError with the smallest example that was found.
"""

from fedcomp.check import algorithm, client, codec, dataset, messages, model, participation, partition, server
from fedcomp.check.algorithm import AlgorithmCase
from fedcomp.check.client import ClientCase
from fedcomp.check.codec import CodecCase
from fedcomp.check.dataset import DatasetCase
from fedcomp.check.failed import Failed
from fedcomp.check.participation import ParticipationCase
from fedcomp.check.partition import PartitionCase
from fedcomp.check.server import ServerCase

__all__ = [
    "AlgorithmCase",
    "ClientCase",
    "CodecCase",
    "DatasetCase",
    "Failed",
    "ParticipationCase",
    "PartitionCase",
    "ServerCase",
    "check_algorithm",
    "check_client",
    "check_codec",
    "check_dataset",
    "check_model",
    "check_participation",
    "check_partition",
    "check_server",
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


def check_client(case: ClientCase) -> None:
    """All checks of a local solver, and those of an algorithm, of FedAvg with it. Raises Failed."""
    for check in client.CHECKS:
        check(case)
    check_algorithm(case.within())


def check_server(case: ServerCase) -> None:
    """All checks of a server optimiser. Raises Failed."""
    for check in server.CHECKS:
        check(case)


def check_partition(case: PartitionCase) -> None:
    """All checks of a partition. Raises Failed."""
    for check in partition.CHECKS:
        check(case)


def check_participation(case: ParticipationCase) -> None:
    """All checks of a participation. Raises Failed."""
    for check in participation.CHECKS:
        check(case)
