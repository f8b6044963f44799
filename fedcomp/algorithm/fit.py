"""Whether a run's other parts are what an algorithm declares to need; asked before the first round."""

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm
from fedcomp.compressor import Compressor
from fedcomp.core.cohort import server
from fedcomp.core.folders import name_of
from fedcomp.model.contract import NETWORK, AnyModel, frozen_of, kind_of
from fedcomp.network.deadline import VARYING_LENGTH
from fedcomp.network.links.contract import Network
from fedcomp.participation.cohorts import cohort_size, some_idle
from fedcomp.participation.contract import Participation
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge


def check_model(algorithm: Algorithm, model: AnyModel, precision: str) -> None:
    """Raise ValueError unless the model is of the kind that the algorithm learns, in products that are exact enough."""
    learns, kind = algorithm.learns, kind_of(model)
    if learns != kind:
        remedy = f"model={learns}" if learns != NETWORK else f"a network, or the algorithm that learns {kind}"
        raise ValueError(
            f"algorithm={algorithm.config_name} needs a model of kind {learns}, but the model is of kind {kind}: "
            f"take {remedy}"
        )
    if algorithm.exact_losses and precision != "fp32":
        raise ValueError(
            f"algorithm={algorithm.config_name} takes differences of nearly equal losses, which precision={precision} "
            "would round away: take precision=fp32"
        )
    if algorithm.exact_losses and any(one.dtype is torch.bfloat16 for one in frozen_of(model).values()):
        raise ValueError(
            f"algorithm={algorithm.config_name} takes differences of nearly equal losses, which frozen weights in "
            "bfloat16 would round away: take them in float32, by model.dtype=float32"
        )


def check_parts(algorithm: Algorithm) -> None:
    """Raise ValueError for a part of another class than it needs, or a predictor that it cannot tell the mean."""
    for group, kind in algorithm.needs.items():
        part = vars(algorithm)[group]
        if not isinstance(part, kind):
            raise ValueError(
                f"algorithm={algorithm.config_name} needs {group}={kind.__module__.split('.')[-1]}, but "
                f"{group}={name_of(part)} was chosen: leave {group} out, or take another algorithm"
            )
    for name, compressor in algorithm.compressors.items():
        if compressor.predicts and not algorithm.predicts:
            group = "compressor" if name == "uplink" else name
            raise ValueError(
                f"algorithm={algorithm.config_name} has memories of its own, or sends what cannot be predicted: "
                f"take {group}.predictor=none, or algorithm=fedavg"
            )


def check_participation(algorithm: Algorithm, participation: Participation, num_clients: int, rounds: int) -> None:
    """Raise ValueError if clients may be left out of a round and must not, or if its cohorts have a wrong size."""
    idle = some_idle(participation, num_clients, rounds)
    if algorithm.full_participation and idle:
        raise ValueError(
            f"algorithm={algorithm.config_name} needs every client in every round, but participation="
            f"{name_of(participation)} leaves some out: take participation=full"
        )
    algorithm.check_cohort(cohort_size(participation, num_clients, rounds))
    uplink = algorithm.compressors.get("uplink")
    follows = uplink is not None and uplink.predictor.follows_senders
    if follows and idle and algorithm.weights != "uniform":
        raise ValueError(
            f"algorithm.weights={algorithm.weights} does not go with compressor.predictor=ef21 where clients may be "
            "idle: the server's mean is over all of them, and all count alike. Take algorithm.weights=uniform, or "
            "participation=full"
        )


def check_deadline(algorithm: Algorithm, network: Network, model: AnyModel) -> None:
    """Raise ValueError if the network has a deadline, and the algorithm or its weights cannot do without late clients.

    It needs every client, or as many in every round, or several messages of a client in a round; or it takes the
    weights' shares of their sum, or none; or they are to be unbiased (`inverse`) and cannot be.
    """
    if network.deadline is None:
        return
    name, given = algorithm.config_name, f"network.deadline={network.deadline}"
    if algorithm.full_participation:
        raise ValueError(
            f"{given} leaves late clients out, but algorithm={name} needs every client in every round: leave the "
            "deadline out"
        )
    if algorithm.several_uplinks:
        raise ValueError(
            f"{given} is for methods whose rounds have one phase up, but the clients of algorithm={name} send again "
            "after the server's answer: leave the deadline out"
        )
    try:
        algorithm.check_cohort(None)
    except ValueError as error:
        raise ValueError(
            f"{given} leaves late clients out, but algorithm={name} needs as many clients in every round: leave "
            "the deadline out"
        ) from error
    if algorithm.normalises_weights and network.deadline_weights != "renormalise":
        raise ValueError(
            f"network.deadline_weights={network.deadline_weights} is not for algorithm={name} as configured, which "
            "takes each weight's share of their sum, or counts clients alike: take network.deadline_weights=renormalise"
        )
    if network.deadline_weights != "inverse":
        return
    if network.down == "multicast":
        raise ValueError(
            "network.deadline_weights=inverse is not for network.down=multicast, where a client's time depends on the "
            "others' rates: take network.down=unicast, or other weights"
        )
    if any(_length_varies(compressor, model) for compressor in algorithm.compressors.values()):
        raise ValueError(VARYING_LENGTH)


def _length_varies(compressor: Compressor, model: AnyModel) -> bool:
    """Whether the number of bits of a message depends on the data."""
    x = torch.full((1, model.dim), 0.5)  # which may also be a probability
    common = SharedKnowledge(Key(("length",)), torch.zeros(1, dtype=torch.int64), model.layers, x)
    payload, _ = compressor.encode(x, compressor.init(1, x[0]), server(), common, common.key.fold_in("private"))
    return isinstance(payload.total_bits, Tensor)
