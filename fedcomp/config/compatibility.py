"""Whether the parts of a run fit together, checked before the first round.

Shape legend: N clients.
"""

from __future__ import annotations

from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm
from fedcomp.compressor import Compressor
from fedcomp.config.schema import Dtype, Precision
from fedcomp.core.cohort import server
from fedcomp.core.folders import part_name
from fedcomp.dataset.contract import Dataset
from fedcomp.model.contract import NETWORK, AnyModel, TaskModel, kind_of, tensors_of
from fedcomp.network.deadline import VARYING_LENGTH
from fedcomp.network.links.contract import Network
from fedcomp.participation.contract import Participation
from fedcomp.participation.uniform import Uniform
from fedcomp.random.keys import Key
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import SharedKnowledge

NUM_COHORTS = 1000
"""Cohorts drawn to estimate a mean over random cohorts."""


def check_needs(algorithm: Algorithm, config: DictConfig) -> None:
    """Check `algorithm.needs`, {part: class}, such as {"client": Svrg}.

    Raises:
        ValueError: a part is of another class.
    """
    for group, kind in algorithm.needs.items():
        if not isinstance(vars(algorithm)[group], kind):
            name, chosen = _choice(config, "algorithm"), _choice(config, group)
            wanted = kind.__module__.split(".")[-1]
            raise ValueError(
                f"algorithm={name} needs {group}={wanted}, but {group}={chosen} was chosen: leave {group} out, or take "
                "another algorithm"
            )


def check_learns(algorithm: Algorithm, model: AnyModel, config: DictConfig) -> None:
    """Check `algorithm.learns`, the kind of model that the algorithm trains (default: a network).

    Raises:
        ValueError: the model is of another kind.
    """
    learns, kind = algorithm.learns, kind_of(model)
    if learns != kind:
        name, chosen = (_choice(config, group) for group in ("algorithm", "model"))
        remedy = f"model={learns}" if learns != NETWORK else f"a network, or the algorithm that learns {chosen}"
        raise ValueError(
            f"algorithm={name} needs a model of kind {learns}, but model={chosen} is of kind {kind}: take {remedy}"
        )


def check_evaluation(simulation: Simulation, config: DictConfig) -> None:
    """Check that clients can be judged one by one, where they are to be.

    Raises:
        ValueError: the model is no network, or the data do not say whose the test samples are.
    """
    if simulation.per_client is not None and isinstance(simulation.model, TaskModel):
        chosen = _choice(config, "model")
        raise ValueError(f"evaluation=per_client is for networks, not for model={chosen}: take evaluation=pooled")
    _ = simulation.client_samples


def check_participation(algorithm: Algorithm, participation: Any, config: DictConfig, num_clients: int) -> None:
    """Check `algorithm.full_participation`: whether the algorithm needs every client in every round.

    Then `algorithm.check_cohort`, whether it can work with so many clients a round.

    Raises:
        ValueError: it does, and some clients may be left out; or the algorithm's own.
    """
    if algorithm.full_participation and _some_idle(participation, num_clients, config.rounds):
        name, chosen = (_choice(config, group) for group in ("algorithm", "participation"))
        raise ValueError(
            f"algorithm={name} needs every client in every round, but participation={chosen} leaves some out: take "
            "participation=full"
        )
    algorithm.check_cohort(_cohort_size(participation, num_clients, config.rounds))


def _cohort_size(participation: Any, num_clients: int, rounds: int) -> int | None:
    """Clients of a round, if all rounds have as many; None: their number is random, or varies."""
    if isinstance(participation, Uniform):
        return participation.num_participants
    return None if _some_idle(participation, num_clients, rounds) else num_clients


def check_deadline(network: Network, simulation: Simulation, config: DictConfig) -> None:
    """Check that clients may be late, and that weights which are to be unbiased can be.

    Raises:
        ValueError: the network has a deadline, and the algorithm needs every client, as many in every round, or
            several messages of a client in a round; weights that it ignores, or `inverse` that cannot be unbiased.
    """
    if network.deadline is None:
        return
    algorithm = simulation.algorithm
    name, given = _choice(config, "algorithm"), f"network.deadline={network.deadline}"
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
    if algorithm.ignores_weights and network.deadline_weights != "renormalise":
        raise ValueError(
            f"network.deadline_weights={network.deadline_weights} has no effect on algorithm={name} as configured, "
            "with which clients on time count alike: take network.deadline_weights=renormalise"
        )
    if network.deadline_weights != "inverse":
        return
    if network.down == "multicast":
        raise ValueError(
            "network.deadline_weights=inverse is not for network.down=multicast, where a client's time depends on the "
            "others' rates: take network.down=unicast, or other weights"
        )
    if any(_length_varies(compressor, simulation) for compressor in algorithm.compressors.values()):
        raise ValueError(VARYING_LENGTH)


def _length_varies(compressor: Compressor, simulation: Simulation) -> bool:
    """Whether the number of bits of a message through this part depends on the data."""
    x = torch.full((1, simulation.model.dim), 0.5)  # which may also be a probability
    common = SharedKnowledge(Key(("length",)), torch.zeros(1, dtype=torch.int64), simulation.model.layers, x)
    payload, _ = compressor.encode(x, compressor.init(1, x[0]), server(), common, common.key.fold_in("private"))
    return isinstance(payload.total_bits, Tensor)


def check_predictors(algorithm: Algorithm, participation: Participation, config: DictConfig, num_clients: int) -> None:
    """Check `algorithm.predicts`, and that clients who may be idle count alike where each of them is predicted.

    Raises:
        ValueError: a compressor predicts, and the algorithm cannot tell it the mean; or clients count by samples.
    """
    for name, compressor in algorithm.compressors.items():
        if compressor.predictor is not None and not algorithm.predicts:
            group = "compressor" if name == "uplink" else name
            raise ValueError(
                f"algorithm={_choice(config, 'algorithm')} has memories of its own, or sends what cannot be predicted: "
                f"take {group}.predictor=none, or algorithm=fedavg"
            )
    uplink = algorithm.compressors.get("uplink")
    predictor = uplink.predictor if uplink else None
    if predictor is None or not predictor.follows_senders or algorithm.weights == "uniform":
        return
    if _some_idle(participation, num_clients, config.rounds):
        raise ValueError(
            f"algorithm.weights={algorithm.weights} does not go with compressor.predictor=ef21 where clients may be "
            "idle: the server's mean is over all of them, and all count alike. Take algorithm.weights=uniform, or "
            "participation=full"
        )


def _some_idle(participation: Any, num_clients: int, rounds: int) -> bool:
    """Whether a client may be left out of a round."""
    return any(float(participation.inclusion(num_clients, index).min()) < 1 for index in range(rounds))


def check_samples(algorithm: Algorithm, dataset: Dataset, config: DictConfig) -> None:
    """Check `client.fixed_samples`: whether the local solver needs samples without random augmentation.

    Raises:
        ValueError: it does, and the dataset augments them, or their loss depends on the batch.
    """
    if algorithm.solver is None or not algorithm.solver.fixed_samples:
        return
    if dataset.unlabelled == "absent":
        raise ValueError(
            f"client={_choice(config, 'client')} needs a loss that is a mean over samples, but with "
            "dataset.unlabelled=absent it depends on the whole batch: take dataset.unlabelled=ignored, or client=sgd"
        )
    if dataset.augments:
        name, chosen = (_choice(config, group) for group in ("client", "dataset"))
        raise ValueError(
            f"client={name} needs the same samples in every gradient, but dataset={chosen} changes them at random: "
            "take dataset.crop_padding=0, dataset.flip=false and no dataset.rescale, or client=sgd"
        )


def check_tensors(algorithm: Algorithm, model: AnyModel) -> None:
    """As `LocalSolver.check_tensors`."""
    if algorithm.solver is not None:
        algorithm.solver.check_tensors(tensors_of(model))


def check_precision(algorithm: Algorithm, config: DictConfig) -> None:
    """Check `algorithm.exact_losses`: whether the algorithm takes differences of nearly equal losses.

    Raises:
        ValueError: it does, and products have fewer bits than float32.
    """
    if algorithm.exact_losses and config.precision.name != "fp32":
        raise ValueError(
            f"algorithm={_choice(config, 'algorithm')} takes differences of nearly equal losses, which "
            f"precision={config.precision.name} would round away: take precision=fp32"
        )


def check_dtype(model: AnyModel, config: DictConfig) -> None:
    """Check that what clients compute in float64 is a network, whose products are not rounded to fewer bits.

    Raises:
        ValueError: it is not.
    """
    if config.dtype is not Dtype.float64:
        return
    if config.precision is not Precision.fp32:
        raise ValueError(f"dtype=float64 contradicts precision={config.precision.name}: take precision=fp32")
    if isinstance(model, TaskModel):
        raise ValueError(f"dtype=float64 is for networks, not for model={_choice(config, 'model')}: take dtype=float32")


def check_estimators(simulation: Simulation) -> None:
    """Raise ValueError if an estimator cannot decode a round's messages, or its error would grow with the weights.

    The uplink's weights are those of the participation; the downlink has one sender, the server, of weight 1. Where
    the number of participants is random, rounds that cannot be decoded are refused as they come.
    """
    algorithm, uplink = simulation.algorithm, simulation.algorithm.compressors.get("uplink")
    if uplink is not None:
        size = _cohort_size(simulation.participation, len(simulation.shards.sizes), simulation.rounds)
        if size is not None:
            uplink.check_senders(simulation.model.dim, size)
    if not algorithm.remembers:
        return
    dim = simulation.model.dim
    for name, compressor in algorithm.compressors.items():
        if not compressor.estimator.recursive:
            continue
        if name == "uplink":
            compressor.check_weights(dim, _largest_mean_squares(simulation))
            continue
        try:
            compressor.check_weights(dim, 1.0)
        except ValueError as error:
            raise ValueError(str(error).replace("compressor.", "downlink.")) from error


def _largest_mean_squares(simulation: Simulation) -> float:
    """The largest `mean_squares` of all rounds."""
    num_clients, participation = len(simulation.shards.sizes), simulation.participation
    first: dict[tuple[float, ...], int] = {}  # rounds with equal probabilities have the same distribution of cohorts
    for index in range(simulation.rounds):
        first.setdefault(tuple(participation.inclusion(num_clients, index).tolist()), index)
    return max(mean_squares(participation, simulation.importance, index) for index in first.values())


def mean_squares(participation: Participation, importance: Tensor, index: int) -> float:
    """The mean of sum_i w_i^2 over the non-empty cohorts of round `index`.

    Exact with full participation; otherwise the mean of `NUM_COHORTS` cohorts, which are the same in every run.

    Args:
        importance: [N] float64 above 0: data sizes, or ones for equal weights.
    """
    full = bool((participation.inclusion(len(importance), index) == 1).all())
    sums = []
    for draw in range(1 if full else NUM_COHORTS):
        cohort = participation.sample(Key(("squared weights", draw)), importance, index)
        if cohort.size:
            sums.append(float(cohort.weight.double().square().sum()))
    return sum(sums) / max(len(sums), 1)


def _choice(config: DictConfig, part: str) -> str:
    """What the choice of a part is called in conf/, such as lenet5."""
    return part_name(config[part].get("_target_"))
