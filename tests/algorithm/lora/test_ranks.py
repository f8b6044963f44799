"""Ranks by client: where they come from, and what is sent with them."""

from functools import partial

import torch

from fedcomp.algorithm.contract import Setup
from fedcomp.algorithm.lora.components import DENSE
from fedcomp.algorithm.lora.flexlora import FlexLoRA
from fedcomp.algorithm.lora.flora import FLoRA
from fedcomp.algorithm.lora.hetlora import HetLoRA
from fedcomp.algorithm.lora.ranks import ranks_of_clients
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.core.pytree import flatten
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.looped import looped
from tests.lora_networks import lora_mlp, lora_mlp_b, lora_mlp_head
from tests.parts import Adam, Compressor, ErrorFeedback, Muon, Sgd, TopK
from tests.refused import refused
from tests.rounds import rounds

SGD = Sgd(lr=0.1, batch_size=4)
RANKS = (1, 2, 1, 2, 1, 2, 1)


def test_shares_are_drawn_from_the_key_and_lists_are_taken() -> None:
    layout = LoraLayout.of(world.model_of(partial(lora_mlp, rank=4), world.dataset()).tensors)
    setup = Setup(4000, (), Key(("ranks",)))
    drawn = ranks_of_clients({1: 0.25, 4: 0.5, 2: 0.25}, layout, setup, torch.zeros(1))
    assert drawn.shape == (4000, 2)
    assert torch.equal(drawn[:, 0], drawn[:, 1])
    found = torch.bincount(drawn[:, 0], minlength=5) / 4000
    assert torch.allclose(found, torch.tensor([0, 0.25, 0.25, 0, 0.5]), atol=5 * 0.008)
    assert torch.equal(drawn, ranks_of_clients({1: 0.25, 4: 0.5, 2: 0.25}, layout, setup, torch.zeros(1)))
    few = Setup(3, (), Key())
    assert ranks_of_clients([3, 1, 2], layout, few, torch.zeros(1)).tolist() == [[3, 3], [1, 1], [2, 2]]
    assert ranks_of_clients(None, layout, few, torch.zeros(1)).tolist() == [[4, 4]] * 3


def _topk(dim: int) -> int:
    """Bits of a fifth of the entries with their places, each in ceil(log2 dim) bits."""
    return max(1, round(0.2 * dim)) * (32 + (dim - 1).bit_length())


@looped("make", [FlexLoRA, HetLoRA, FLoRA])
@looped("uplink, bits", [(DENSE, lambda dim: 32 * dim), (Compressor(TopK(0.2, "index")), _topk)])
def test_bits_are_those_of_the_own_components_and_of_the_head(make, uplink, bits) -> None:
    for one in rounds(world.simulation(make(SGD, RANKS, uplink=uplink), lora_mlp_head), 2):
        dims = [RANKS[client] * (5 + 6) + 21 for client in one.cohort.clients]
        assert one.bits["uplink"] == sum(map(bits, dims))
        assert make is FLoRA or one.bits["downlink"] == 32 * sum(dims)  # FLoRA's: test_planted.py


@looped("make", [FlexLoRA, HetLoRA, FLoRA])
def test_a_codec_that_leaves_nothing_out_changes_nothing(make) -> None:
    """It carries differences to what the server knows, for each kind of client by itself."""
    sims = [world.simulation(make(SGD, RANKS, uplink=one), lora_mlp_head) for one in (DENSE, Compressor(TopK(1.0)))]
    dense, coded = (world.run(sim, last=2) for sim in sims)
    for one, other in zip(flatten(dense).values(), flatten(coded).values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@looped("solver", [Sgd(lr=0.1, momentum=0.9, epochs=2), Adam(lr=0.1), Muon(lr=0.1, skip_last=0)])
def test_a_component_that_is_zero_in_both_factors_stays_zero(solver) -> None:
    """So that a client of a lower rank needs no mask in training."""
    sim = world.simulation(HetLoRA(solver, [1] * 7), lora_mlp)
    theta, _ = sim.model.init(Key())
    layout = LoraLayout.of(sim.model.tensors)
    own = layout.put(theta[None], [(a * _first(a, 1), b) for a, b in layout.factors(theta[None])])

    def train(data, theta, stats):
        return solver.run(data, theta, stats, (0, 1))

    cohort = sim.cohort(0)
    executor = sim.clients(Key(), Ledger())
    after = executor.map_clients(train, cohort, own.expand(cohort.size, -1), own.new_zeros(cohort.size, 0)).value
    for a, b in layout.factors(after):
        assert not a[:, 1:].any()
        assert not b[:, :, 1:].any()
        assert a[:, 0].all()
        assert b[:, :, 0].all()


def _first(a: torch.Tensor, rank: int) -> torch.Tensor:
    return (torch.arange(a.shape[1]) < rank)[:, None].to(a.dtype)


test_ranks_and_codecs_that_do_not_fit_are_refused_before_the_first_round = refused(
    [
        ({"ranks": [1, 2]}, "algorithm.ranks has 2 ranks, but there are 7 clients"),
        ({"ranks": [3] * 7}, "algorithm.ranks has 3, above the model's rank 2: raise model.rank"),
        ({"ranks": [0] * 7}, "must be a list with a rank, 1 or more"),
        ({"ranks": []}, "must be a list with a rank, 1 or more"),
        ({"ranks": {1: 0.5, 2: 0.6}}, "must have positive shares that sum to 1"),
        ({"ranks": None, "module": world.mlp}, "the model has no low-rank adapters"),
        ({"ranks": None, "module": lora_mlp_b}, "the model's A is frozen"),
        ({"make": FLoRA, "uplink": Compressor(TopK(0.2), ErrorFeedback())}, "take compressor.feedback=none"),
        ({"make": FLoRA, "uplink": Compressor(TopK(None, k=30))}, "k=30"),  # rank 1: 11 entries of each matrix
    ],
    lambda ranks=RANKS, module=lora_mlp, make=HetLoRA, **options: world.simulation(
        make(SGD, ranks, **options), module
    ).init(),
)
