"""Whether estimators can decode a run's messages, and their memories do not diverge; asked before the first round."""

from fedcomp.participation.cohorts import cohort_size, largest_mean_squares
from fedcomp.simulation.simulation import Simulation


def check_estimators(simulation: Simulation) -> None:
    """Raise ValueError if an estimator cannot decode a round's messages, or its error would grow with the weights.

    The uplink's weights are those of the participation; the downlink has one sender, the server, of weight 1. Where
    the number of participants is random, rounds that cannot be decoded are refused as they come.
    """
    algorithm, dim, rounds = simulation.algorithm, simulation.model.dim, simulation.rounds
    uplink, participation = algorithm.compressors.get("uplink"), simulation.participation
    size = cohort_size(participation, len(simulation.shards.sizes), rounds)
    if uplink is not None and size is not None:
        uplink.check_senders(dim, size)
    for name, compressor in algorithm.compressors.items() if algorithm.remembers else ():
        if compressor.estimator.recursive:
            up = name == "uplink"
            squares = largest_mean_squares(participation, simulation.importance, rounds) if up else 1.0
            compressor.check_weights(dim, squares)
