"""What is odd in a data set that passes `check`, and makes results other than they seem."""

from collections.abc import Iterator

from fedcomp.dataset.contract import Dataset, Samples

SPREAD = (0.1, 10.0)
"""Standard deviation of normalised inputs, of which nothing is said."""
LOOKED_AT = 256
"""Samples whose scale a run looks at."""
COMPARED, COMPARED_BYTES = 20_000, 2**28
"""Samples of either set that are compared with the other's; fewer where they are large."""
MOST_SHARED = 0.1
"""Share of the test samples that may be training samples too without a word: rows of small tables repeat."""


def notes(data: Dataset) -> Iterator[str]:
    """What a run says of a data set of the user's own."""
    wrong = off_scale(data, LOOKED_AT)
    if wrong is not None:
        yield (
            f"{wrong}, with which most networks hardly learn: correct its mean and std, which are in the units of x "
            "(0 to 255 of uint8)"
        )
    unseen = unseen_classes(data)
    if unseen:
        yield f"no training sample is of class {unseen[0]}, of which test samples are: mix the samples before the split"
    share = shared(data)
    if share > MOST_SHARED:
        yield f"{share:.0%} of the test samples are training samples too, so that metrics are not of unseen samples"


def off_scale(data: Dataset, seen: int) -> str | None:
    """What is said of inputs that are not of the order of one once they are normalised; None: they are, or are tokens.

    Args:
        seen: training samples, and test samples, that are looked at, the first ones.
    """
    if data.vocab_size is not None:
        return None
    for what, samples in (("inputs", data.train), ("inputs of the test", data.test)):
        x = data.normalise(samples.x[:seen]).double()
        mean, deviation = float(x.mean()), float(x.std(correction=0))
        if not (SPREAD[0] <= deviation <= SPREAD[1] and abs(mean) <= SPREAD[1]):
            return f"{what} have mean {mean:.3g} and standard deviation {deviation:.3g} after normalisation"
    return None


def unseen_classes(data: Dataset) -> list[int]:
    """The classes of test samples that no training sample has."""
    if data.task != "classification":
        return []
    return sorted(set(data.test.y.unique().tolist()) - set(data.train.y.unique().tolist()))


def shared(data: Dataset) -> float:
    """The share of the test samples whose inputs are those of a training sample, of the first of both."""
    train, test = _hashes(data.train), _hashes(data.test)
    return len(train & test) / max(len(test), 1)


def _hashes(samples: Samples) -> set[int]:
    x = samples.x.flatten(1)
    size = max(1, x.shape[1] * x.element_size())
    return {hash(row.tobytes()) for row in x[: min(COMPARED, max(1, COMPARED_BYTES // size))].numpy()}
