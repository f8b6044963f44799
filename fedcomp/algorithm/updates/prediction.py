"""FedAvg's compressors with predictors (compressor/predictors.py): which go together, and what clients are told.

compressor.predictor=aggregate is CAFe, ef21 is EF21, and downlink.predictor=ef21_p is EF21-P, whose clients train from
w, the model that messages to all N clients say. CAFe's clients have to know the last mean: with sends=mean_update they
do, with sends=step where the server's step is the mean, and with sends=model the mean goes down beside the model, 32 D
bits to each participant.
"""

from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.algorithm.updates import begun
from fedcomp.compressor import Compressor, Memory
from fedcomp.core.cohort import Cohort


def first_flag(uplink: Compressor, sends_model: bool) -> tuple[Tensor, ...]:
    """([1] int64, 1 once there was a mean; on the host, where it is asked); () if none goes beside a model."""
    return (begun.flag(),) if uplink.predictor.observes and sends_model else ()


def send_prediction(
    uplink: Compressor, memory: Memory, started: tuple[Tensor, ...], cohort: Cohort, ctx: Context
) -> Memory:
    """The server sends the last mean, dense; the memory with what arrived. Nothing unless `started` has a 1."""
    if not any(map(begun.yes, started)):
        return memory
    return uplink.told(memory, ctx.send_dense("prediction", memory.shared, cohort))


def check_predictors(uplink: Compressor, downlink: Compressor, sends: str, steps_with_mean: bool) -> None:
    """Raise ValueError if the predictors of the two directions do not fit what FedAvg sends down.

    Args:
        sends: "model", "step" or "mean_update". steps_with_mean: whether the server's step is the mean.
    """
    up, down = uplink.predictor, downlink.predictor
    if up.starts_at_model:
        raise ValueError("compressor.predictor=ef21_p follows a model: it is the downlink's; take ef21 or aggregate")
    if down.observes:
        raise ValueError("downlink.predictor=aggregate makes no sense: the server sends to all; take ef21_p, or ef21")
    if downlink.predicts and downlink.carries_model != (sends == "model"):
        raise ValueError(
            f"downlink.predictor does not fit algorithm.sends={sends}: ef21_p follows the model (sends=model or auto), "
            "ef21 what is sent by step or mean_update"
        )
    if up.observes and sends == "step" and not steps_with_mean:
        raise ValueError(
            "compressor.predictor=aggregate needs that clients know the mean, but with algorithm.sends=step and this "
            "server optimizer they are sent another step: take algorithm.sends=mean_update, or server.lr=1 without "
            "momentum"
        )
