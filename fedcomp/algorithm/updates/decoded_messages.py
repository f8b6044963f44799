"""Messages that both ends decode one by one: what a client writes into its own memory is what the server got.

Methods with control variates need it: the server's sum and the clients' parts agree only if a client adds to its part
what the server decoded of its message, not what it meant to send. Every client can decode its own message.

Shape legend: M clients of the cohort, D parameters.
"""

from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.compressor import Compressor
from fedcomp.compressor.estimators.estimator import WeightedSum
from fedcomp.compressor.feedback import NoFeedback
from fedcomp.core.cohort import Cohort


def check_decodable(name: str, uplink: Compressor) -> None:
    """Raise ValueError if the uplink has a memory of its own, or messages that are decoded jointly."""
    if not isinstance(uplink.feedback, NoFeedback):
        raise ValueError(f"compressor.feedback must be none: {name} remembers at the clients what was sent")
    if uplink.predicts:
        raise ValueError(f"compressor.predictor must be none: {name} sends differences to memories of its own")
    if not isinstance(uplink.estimator, WeightedSum):
        raise ValueError(
            f"compressor.estimator must be weighted_sum: a client of {name} decodes its own message, and cannot decode "
            "those of others with it"
        )


def send_decoded(name: str, uplink: Compressor, x: Tensor, cohort: Cohort, ctx: Context, relay: bool = False) -> Tensor:
    """Clients send x [M, D] in the message called `name`; what the server, with `relay` everybody, decodes of each.

    Raises ValueError: `check_decodable`, which a method calls in its `__post_init__` too, to say so before the first
    round; or an earlier message of the round has this name.
    """
    check_decodable("the algorithm", uplink)
    common, nothing = ctx.common(name, cohort), uplink.init(cohort.size, x[0])  # no memory
    payload, _ = uplink.encode(x, nothing, cohort, common, ctx.sender_key(name))
    received = ctx.link.up(payload)
    decoded = uplink.decode(ctx.link.relay(received) if relay else received, common)
    uplink.check_finite(ctx.link, x, payload, decoded, common)
    return ctx.sent.noted(name, nothing, (decoded, nothing))[0]
