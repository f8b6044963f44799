"""Networks over tokens: parameter counts, what a prediction depends on, and clients one after another or padded."""

from functools import partial

import pytest
import torch
from torch import nn

from fedcomp.core.parameter_layout import BIAS, EMBEDDING, WEIGHT
from fedcomp.model.build import build
from fedcomp.model.chunking import chunk_size, num_activations
from fedcomp.model.contract import Batch
from fedcomp.model.loss import cross_entropy, evaluation_metrics, num_correct
from fedcomp.model.networks.characters import char_gpt, char_lstm
from fedcomp.random.keys import Key
from tests.looped import looped
from tests.model.plain_modules import assert_close, assert_gradient, plain_outputs

KEY = Key(("model", 0))
SMALL = {"lstm": partial(char_lstm, hidden=6, embedding=3), "gpt": partial(char_gpt, width=8, heads=2)}
LENGTH, VOCAB, CLIENTS, BATCH = 7, 5, 3, 4


def built(factory, every=False, length=LENGTH, vocab=VOCAB):
    shape = (length,) if every else ()
    return build(factory, KEY, (length,), vocab, "next_token", target_shape=shape, vocab_size=vocab)


def batch(every=False):
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(VOCAB, (CLIENTS, BATCH, LENGTH), generator=generator)
    y = torch.randint(VOCAB, (CLIENTS, BATCH, LENGTH) if every else (CLIENTS, BATCH), generator=generator)
    return x, y


def rows(model):
    theta = torch.stack([model.init(KEY.fold_in(client))[0] for client in range(CLIENTS)])
    return theta, torch.zeros(CLIENTS, 0)


@looped(
    "factory, count",
    [
        (char_lstm, 819_920),
        (partial(char_lstm, layers=1, bias=False, init_std=0.01), 291_456),
        (partial(char_lstm, layers=1), 293_584),
        (partial(char_lstm, bias=False), 815_744),
        (char_gpt, 115_536),
    ],
)
def test_parameter_counts(factory, count):
    assert built(factory, length=80, vocab=80).dim == count


def test_small_first_weights():
    model = built(partial(char_lstm, init_std=0.01), length=80, vocab=80)
    theta, _ = model.init(KEY)
    assert abs(float(theta.std()) / 0.01 - 1) < 5 / (2 * model.dim) ** 0.5


def test_what_its_tensors_are():
    kinds = [tensor.kind for tensor in built(char_lstm).tensors]
    assert kinds == [EMBEDDING, WEIGHT, WEIGHT, BIAS, BIAS, WEIGHT, WEIGHT, BIAS, BIAS, WEIGHT, BIAS]


@looped("name", SMALL)
@looped("every", [False, True])
def test_gradients_are_those_of_plain_modules(name, every):
    model = built(SMALL[name], every)
    theta, stats = (part.double() for part in rows(model))
    x, y = batch(every)
    weight = torch.ones(CLIENTS, BATCH)
    weight[1, 2:] = 0
    for real in (None, weight):
        assert_gradient(model, cross_entropy, theta, Batch(x, y, real, stats), 1e-9)
    for client in range(CLIENTS):
        outputs = model.outputs(theta[client], stats[client], x[client])
        assert_close(outputs, plain_outputs(model.module, theta[client], stats[client], x[client]), 1e-9)


@pytest.mark.parametrize("name", SMALL)
def test_clients_never_go_through_vmap_on_a_cpu(name, monkeypatch):
    monkeypatch.setattr("fedcomp.model.batched.functional.vmap", None)
    model = built(SMALL[name])
    theta, stats = rows(model)
    assert model.gradient(theta, Batch(*batch(), None, stats)).grad.abs().sum() > 0


@looped("name", SMALL)
def test_a_position_sees_no_later_one(name):
    model = built(SMALL[name], every=True)
    (theta, _), (x, _) = model.init(KEY), batch()
    changed = x[0].clone()
    changed[:, 4] = (changed[:, 4] + 1) % VOCAB
    before, after = (model.outputs(theta, torch.zeros(0), tokens) for tokens in (x[0], changed))
    torch.testing.assert_close(before[..., :4], after[..., :4], rtol=1e-5, atol=1e-6)
    assert float((before[..., 4:] - after[..., 4:]).abs().amin(1).min()) > 0


@looped("name", SMALL)
def test_the_last_position_alone_is_the_last_of_all(name):
    (x, _), every, last = batch(), built(SMALL[name], every=True), built(SMALL[name])
    theta, stats = last.init(KEY)
    found = every.outputs(theta, stats, x[0])[..., -1]
    torch.testing.assert_close(found, last.outputs(theta, stats, x[0]), rtol=1e-5, atol=1e-6)


def test_chunks_of_recurrent_networks():
    model = built(char_lstm, length=80, vocab=80)
    assert chunk_size(model, torch.device("cpu"), (80,), 10, torch.int64) == 1
    assert num_activations(model, (80,), torch.int64) == 80 + 80 * 8 + 6 * 256 * 2 * 80 + 80


@looped(
    "factory, options, line",
    [
        (char_lstm, {"vocab_size": None}, r"model=char_lstm predicts the next of a sequence of tokens"),
        (char_gpt, {"vocab_size": None}, r"take dataset=shakespeare, text or huggingface with a column of texts"),
        (
            char_gpt,
            {"num_outputs": 3},
            r"but the texts of this dataset have 3 classes: leave the label out \(dataset=t",
        ),
        (partial(char_gpt, width=10, heads=4), {}, r"model.width=10 must be a multiple of model.heads=4"),
        (lambda: nn.Linear(LENGTH, VOCAB), {}, r"does not take inputs of shape \(7,\) of tokens, as the dataset"),
        (lambda: nn.Embedding(VOCAB, 4), {}, r"gives outputs of shape \(7, 4\), the dataset needs \(5,\); set"),
    ],
)
def test_what_does_not_fit_is_refused(factory, options, line):
    given = {"input_shape": (LENGTH,), "num_outputs": VOCAB, "task": "next_token", "vocab_size": VOCAB}
    with pytest.raises(ValueError, match=line):
        build(factory, KEY, **(given | options))


def test_loss_and_metrics_of_several_targets_a_sample():
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(2, 3, 5, 4, generator=generator)  # [M, B, O, T]
    y = torch.randint(5, (2, 3, 4), generator=generator)
    losses, correct = cross_entropy(outputs, y), num_correct(outputs, y, 2)
    logs = outputs.log_softmax(2)
    for client in range(2):
        for sample in range(3):
            each = [-logs[client, sample, y[client, sample, place], place] for place in range(4)]
            torch.testing.assert_close(losses[client, sample], torch.stack(each).mean())
            right = outputs[client, sample].argmax(0) == y[client, sample]
            assert float(correct[client, sample]) == float(right.sum()) / 4
    found = evaluation_metrics("next_token", losses.sum(), correct.sum(), 6)
    assert list(found) == ["loss", "accuracy", "perplexity"]
    torch.testing.assert_close(found["perplexity"], losses.mean().exp())
    assert float(found["accuracy"]) == pytest.approx(float(correct.mean()))
    assert list(evaluation_metrics("classification", losses.sum(), correct.sum(), 6)) == ["loss", "accuracy"]
    assert list(evaluation_metrics("regression", losses.sum(), correct.sum(), 6)) == ["loss"]
