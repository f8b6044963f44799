"""Methods of adapters with ranks by client against the suite; a new one adds a line to CASES."""

from fedcomp.algorithm.lora.flexlora import FlexLoRA
from fedcomp.algorithm.lora.flora import FLoRA
from fedcomp.algorithm.lora.hetlora import HetLoRA
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase, suite
from tests.conformance.bits import dense, topk
from tests.lora_networks import lora_mlp, lora_mlp_head
from tests.parts import Adam, Compressor, Sgd, TopK

SGD = Sgd(lr=0.1, batch_size=4, epochs=2)
ADAM = Adam(lr=0.02, steps=3, batch_size=4, weight_decay=0.1, decoupled=True)
RANKS, TOPK = {1: 0.5, 2: 0.5}, Compressor(TopK(0.2, "index"))


def _stacks(dim, stats, layers, cohort):
    """The whole cohort's adapters to all."""
    each = 32 * dim
    return {"uplink": cohort * each, "downlink": world.NUM_CLIENTS * cohort * each, "broadcast": cohort * each}


def _sums(dim, stats, layers, cohort):
    """5 x 6 entries of the first matrix and the head's 21."""
    each = 32 * (5 * 6 + 21)
    return {"uplink": cohort * 32 * dim, "downlink": world.NUM_CLIENTS * each, "broadcast": each}


CASES = [
    AlgorithmCase("flora", FLoRA(SGD, sends="stack"), _stacks, lora_mlp),
    AlgorithmCase("flora-weights", FLoRA(SGD, sends="weights"), _sums, lora_mlp_head),
    AlgorithmCase("flora-ranks", FLoRA(ADAM, RANKS, weights="uniform"), None, lora_mlp_head),
    AlgorithmCase("flora-topk", FLoRA(SGD, RANKS, uplink=TOPK), None, lora_mlp_head),
    AlgorithmCase("flexlora", FlexLoRA(SGD), dense, lora_mlp),
    AlgorithmCase("flexlora-topk", FlexLoRA(SGD, uplink=TOPK), topk, lora_mlp),
    AlgorithmCase("flexlora-ranks", FlexLoRA(ADAM, RANKS, residual=2, weights="uniform"), None, lora_mlp_head),
    AlgorithmCase("hetlora", HetLoRA(SGD), dense, lora_mlp),
    AlgorithmCase("hetlora-ranks", HetLoRA(ADAM, RANKS, dilute=False, weights="samples"), None, lora_mlp_head),
    AlgorithmCase("hetlora-topk", HetLoRA(ADAM, RANKS, uplink=TOPK), None, lora_mlp_head),
    AlgorithmCase("hetlora-pruned", HetLoRA(ADAM, gamma=0.5, penalty=0.1), None, lora_mlp_head),
]

test_algorithm = suite(CASES)
