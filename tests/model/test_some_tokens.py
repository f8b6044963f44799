"""Targets of -100 do not count: in the loss and its gradient, for many clients at once, and in the metrics."""

import copy
import dataclasses
from functools import partial

import pytest
import torch
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedcomp.algorithm.heterogeneity.feddyn import FedDyn
from fedcomp.dataset.check import check
from fedcomp.dataset.contract import NO_TARGET, Dataset, Samples
from fedcomp.evaluation.per_client import scores
from fedcomp.model.build import build
from fedcomp.model.contract import Batch
from fedcomp.model.loss import SOME_TOKENS, cross_entropy, evaluation_sums, mean_loss, metrics_of_sums, training_loss
from fedcomp.model.networks.characters import char_gpt
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.looped import looped
from tests.parts import Compressor, Dense, Full, Sgd

KEY = Key(("model", 0))
CLIENTS, BATCH, LENGTH, VOCAB = 3, 4, 7, 5


def tokens(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """x and y; sample 0 of each row has no target, the others between 1 and all."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randint(VOCAB, (2, *shape, LENGTH), generator=generator)
    first = torch.randint(LENGTH, shape, generator=generator)
    first[..., 0] = LENGTH
    return x, y.masked_fill(torch.arange(LENGTH) < first[..., None], NO_TARGET)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # attention under vmap, on purpose
def test_a_batch_is_the_mean_of_its_targets_and_its_gradient_has_no_nan() -> None:
    model = build(
        partial(char_gpt, width=8, heads=2), KEY, (LENGTH,), VOCAB, "next_token", target_shape=(LENGTH,),
        vocab_size=VOCAB, some_tokens=True,
    )  # fmt: skip
    x, y = tokens(CLIENTS, BATCH)
    y[2] = NO_TARGET  # a client without any
    theta = torch.stack([model.init(KEY.fold_in(client))[0] for client in range(CLIENTS)])
    real = torch.ones(CLIENTS, BATCH)
    real[1, 3] = 0
    losses, grads = [], []
    for client, kept in ((0, 4), (1, 3)):
        network = copy.deepcopy(model.module)
        vector_to_parameters(theta[client], network.parameters())
        loss = functional.cross_entropy(network(x[client, :kept]), y[client, :kept])
        losses.append(loss.detach())
        grads.append(parameters_to_vector(torch.autograd.grad(loss, list(network.parameters()))))
    for at_once in (False, True):
        model.slow_by_vmap = not at_once
        found = model.gradient(theta, Batch(x, y, real, theta[:, :0]))
        torch.testing.assert_close(found.loss, torch.stack([*losses, torch.zeros(())]))
        torch.testing.assert_close(found.grad, torch.stack([*grads, torch.zeros(model.dim)]))
        exact, _ = model.batch_loss(theta, Batch(x, y, real, theta[:, :0]))
        torch.testing.assert_close(exact.float(), found.loss)
    assert not model.vmap_refused


def test_metrics_are_of_the_targets_whatever_the_batches() -> None:
    _, y = tokens(BATCH)
    y[1] = torch.tensor([1, 2, NO_TARGET, 3, 4, NO_TARGET, 0])  # three answers, as packed
    outputs = torch.randn(BATCH, VOCAB, LENGTH, generator=torch.Generator().manual_seed(2))
    outputs[1] = functional.one_hot(y[1].clamp(min=0), VOCAB).T.float()
    outputs[1, :, 3] = torch.eye(VOCAB)[0]  # the first token of the second answer is wrong
    sums = sum(evaluation_sums(SOME_TOKENS, outputs[part], y[part]) for part in (slice(0, 1), slice(1, 4)))
    found = {name: float(value) for name, value in metrics_of_sums(SOME_TOKENS, sums, BATCH).items()}
    counts = y != NO_TARGET
    right = (outputs.argmax(1) == y) & counts
    whole = [bool(right[row][counts[row]].all()) for row in (2, 3)] + [True, False, True]
    assert found["loss"] == pytest.approx(float(functional.cross_entropy(outputs, y)))
    assert found["perplexity"] == pytest.approx(float(functional.cross_entropy(outputs, y).exp()))
    assert found["accuracy"] == pytest.approx(float(right.sum() / counts.sum()))
    assert found["exact_match"] == pytest.approx(sum(whole) / 5)
    share = right.sum(1) / counts.sum(1).clamp(min=1)
    torch.testing.assert_close(scores(SOME_TOKENS, outputs, y), share.double())


def test_without_such_targets_loss_and_metrics_are_the_tasks_own() -> None:
    x, y = torch.randint(VOCAB, (2, BATCH, LENGTH))
    data = Dataset("words", Samples(x, y), Samples(x, y), "next_token", VOCAB, vocab_size=VOCAB)
    assert (data.some_tokens, data.judged_by) == (False, "next_token")
    assert training_loss("next_token", "ignored", data.some_tokens) is cross_entropy
    _, some = tokens(BATCH)
    data = dataclasses.replace(data, test=Samples(x, some))
    assert (data.some_tokens, data.judged_by) == (True, SOME_TOKENS)
    check(data)
    outputs = torch.randn(1, BATCH, VOCAB, LENGTH)
    all_count = mean_loss(training_loss("next_token", "ignored", True), outputs, y[None], None)
    torch.testing.assert_close(all_count, mean_loss(cross_entropy, outputs, y[None], None))


@looped(
    "change, line",
    [
        ({"y": torch.full((BATCH, LENGTH), NO_TARGET)}, "train.y has no target: all are -100"),
        ({"y": torch.full((BATCH, LENGTH), -1)}, "train.y is -1 at sample 0"),
        ({"y": torch.tensor([[NO_TARGET] * 6 + [VOCAB]]).expand(BATCH, -1)}, r"train.y is 5 at sample 0, entry 6"),
        ({"y": torch.tensor([[NO_TARGET] * 6 + [2]]).expand(BATCH, -1)}, "train.y is class 2 in all 4 samples"),
    ],
)
def test_targets_that_cannot_be_used(change: dict, line: str) -> None:
    x, y = tokens(BATCH)
    data = Dataset(
        "words", Samples(**({"x": x, "y": y} | change)), Samples(x, y), "next_token", VOCAB, vocab_size=VOCAB
    )
    with pytest.raises(ValueError, match=line):
        check(data)


def test_clients_count_by_their_targets() -> None:
    """As FedAvg weights them, and as clients of FedDyn are told once, in 32 bits each way."""
    x, y = tokens(BATCH)
    y[0, 0] = 1
    sizes = (1, 3)
    data = Dataset("text", Samples(x, y), Samples(x, y), "next_token", VOCAB, vocab_size=VOCAB)
    network = partial(char_gpt, width=8, heads=2)
    counts = [int((part != NO_TARGET).sum()) for part in y.split(sizes)]
    algorithm = FedDyn(Sgd(lr=0.1), Compressor(Dense()), weights="tokens")
    sim = world.simulation(algorithm, network, Full(), data=data, sizes=sizes)
    assert sim.cohort(0).weight.tolist() == pytest.approx([count / sum(counts) for count in counts])
    ledger = Ledger()
    sim.round(0, sim.init(), ledger)
    spent = ledger.metrics(sim.model.dim)
    assert spent["bits/uplink"] == spent["bits/downlink"] == 2 * 32 * (sim.model.dim + 1)
    y[1:] = NO_TARGET
    with pytest.raises(ValueError, match="no token of client 1 is to be predicted"):
        world.simulation(algorithm, network, Full(), data=data, sizes=sizes).cohort(0)
    with pytest.raises(ValueError, match="weights=tokens counts tokens to predict, and dataset=.* has none: take"):
        world.simulation(algorithm).cohort(0)
