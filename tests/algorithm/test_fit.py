"""Parts that do not go with an algorithm are refused before the first round, and those that do are not."""

import pytest
import torch

from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from tests.looped import looped

SOME = "participation=uniform participation.num_participants=3"
COINS = "participation=bernoulli participation.probability=1.0 participation.schedule={50: 0.5}"
REFUSED = [
    ("fedscalar compressor=topk", "FedScalar has no use for compressor=topk: leave compressor at its default, dense"),
    ("fedscalar compressor@downlink=sign", "FedScalar has no use for downlink=sign: leave downlink at its default"),
    ("fedscalar server.lr=0.5", "FedScalar has no use for server.lr=0.5: leave server at its default, sgd"),
    ("fedscalar downlink.feedback=error", "FedScalar has no use for downlink.feedback=error: leave downlink"),
    ("fedbif server=adam", "FedBiF has no use for"),
    ("decomfl client.momentum=0.5", "DeComFL has no use for client.momentum=0.5"),
    ("fedkseed client.schedule=cosine", "FedKSeed has no use for client.schedule=cosine"),
    ("decomfl precision=bf16", "algorithm=decomfl takes differences of nearly equal losses, which precision=bf16"),
    ("fedkseed precision=bf16", "algorithm=fedkseed takes differences of nearly equal losses"),
    ("fedkseed +algorithm.weight_decay=0.1", "algorithm.weight_decay"),
    ("decomfl dataset=vectors model=mean_vector", "algorithm=decomfl needs a model of kind network"),
    ("fedbat client=adam", "algorithm=fedbat needs client=sgd, but client=adam was chosen"),
    ("m3 compressor.predictor=ef21", "algorithm=m3 has memories of its own"),
    ("marina_p compressor=topk", "algorithm.p_up=1 sends every update whole, so that TopK is never used"),
    ("fedavg algorithm.weights=even", "algorithm.weights=even must be one of samples, tokens, uniform"),
    ("tamuna participation=bernoulli", "TAMUNA needs as many clients in every round"),
    (f"tamuna algorithm.sparsity=4 {SOME}", "is above the 3 clients"),
    (f"cser {SOME}", "algorithm=cser needs every client in every round, but participation=uniform leaves some out"),
    (f"liec {SOME}", "algorithm=liec needs every client in every round, but participation=uniform leaves some out"),
    (f"streaming_diloco client.steps=2 {SOME}", "algorithm=streaming_diloco needs every client in every round"),
    (f"cser {COINS}", "needs every client in every round, but participation=bernoulli leaves some out"),
    ("fedavg_svrg num_clients=443 dataset=diabetes model=linear dataset.test_fraction=0", "but only 442 training"),
]
ALLOWED = [
    "cser participation=uniform participation.num_participants=20",
    "marina_p compressor=topk algorithm.p_up=0.5",
    "m3 compressor=randk",
    "m3 compressor@downlink=randk downlink.k=3",
]


def _build(words: str) -> None:
    overrides = words.replace("{50: 0.5}", "{50:0.5}").split()
    build_simulation(compose([f"algorithm={overrides[0]}", *overrides[1:]]), torch.device("cpu"))


@looped("words, line", REFUSED)
def test_what_does_not_go_together_is_refused(words: str, line: str) -> None:
    with pytest.raises(ValueError, match=line) as error:
        _build(words)
    assert "\n" not in str(error.value)


@looped("words", ALLOWED)
def test_what_goes_together_is_built(words: str) -> None:
    _build(words)
