"""Methods of adapters against the suite; a new one adds a line to PARTS, or to RANKED if clients differ in rank."""

from fedcomp.algorithm.lora.fedsa_lora import FedSALoRA
from fedcomp.algorithm.lora.fedsrd import FedSRD
from fedcomp.algorithm.lora.ffa_lora import FFALoRA
from fedcomp.algorithm.lora.flasc import FLASC
from fedcomp.algorithm.lora.flexlora import FlexLoRA
from fedcomp.algorithm.lora.flora import FLoRA
from fedcomp.algorithm.lora.hetlora import HetLoRA
from fedcomp.algorithm.lora.lora_fair import LoRAFAIR
from fedcomp.algorithm.lora.rolora import RoLoRA
from fedcomp.server.adamw import AdamW
from tests.algorithm.test_conformance import UPDATES
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase, suite
from tests.conformance.bits import dense, floats, links, topk
from tests.lora_networks import lora_mlp, lora_mlp_b, lora_mlp_head
from tests.parts import DENSE, Adam, Compressor, ErrorFeedback, ServerSgd, Sgd, TopK

SGD, TOPK = Sgd(lr=0.2, batch_size=4), Compressor(TopK(0.3, "index"), ErrorFeedback())
TWO_EPOCHS, TOP_FIFTH = Sgd(lr=0.1, batch_size=4, epochs=2), Compressor(TopK(0.2, "index"))
ADAM, RANKS = Adam(lr=0.02, steps=3, batch_size=4, weight_decay=0.1, decoupled=True), {1: 0.5, 2: 0.5}
A_ALONE = links(lambda *of: 32 * 22)
K_BOTH_WAYS = links(
    lambda dim, *rest: round(0.3 * dim) * (32 + (dim - 1).bit_length()), lambda dim, *rest: round(0.5 * dim) * 32 + dim
)
"""Half of the entries down, whose places are a bitmap."""
SUMS = links(floats, lambda *of: 32 * (5 * 6 + 21), to_all=True)
"""5 x 6 entries of the first matrix and the head's 21 go down."""


def _stacks(dim, stats, layers, cohort):
    """The whole cohort's adapters to all."""
    sent = cohort * 32 * dim
    return {"uplink": sent, "downlink": world.NUM_CLIENTS * sent, "broadcast": sent}


PARTS = [
    AlgorithmCase("ffa_lora", FFALoRA(SGD, ServerSgd(), DENSE, DENSE), dense, lora_mlp_b),
    AlgorithmCase("fedsa_lora", FedSALoRA(SGD, DENSE), A_ALONE, lora_mlp),
    AlgorithmCase("fedsa_lora-topk", FedSALoRA(SGD, TOPK, "uniform"), None, lora_mlp_head),
    AlgorithmCase("fedsrd", FedSRD(SGD, drop=0.5), None, lora_mlp_head),
    AlgorithmCase("fedsrd-whole", FedSRD(SGD, 0.5, 0.2, truncates=False, drop=0.0, weights="samples"), None, lora_mlp),
    AlgorithmCase("flasc", FLASC(SGD, AdamW(lr=0.02), TOPK, 0.5), K_BOTH_WAYS, lora_mlp),
    AlgorithmCase("flasc-update", FLASC(SGD, ServerSgd(), TOPK, 0.5, "update"), None, lora_mlp_head),
    AlgorithmCase("lora_fair", LoRAFAIR(SGD, DENSE), dense, lora_mlp),
    AlgorithmCase("lora_fair-topk", LoRAFAIR(SGD, Compressor(TopK(0.3))), None, lora_mlp_head),
    AlgorithmCase("rolora", RoLoRA(SGD, DENSE), None, lora_mlp),
    AlgorithmCase("rolora-topk", RoLoRA(SGD, TOPK, "uniform"), None, lora_mlp_head),
]

RANKED = [
    AlgorithmCase("flora", FLoRA(TWO_EPOCHS, sends="stack"), _stacks, lora_mlp),
    AlgorithmCase("flora-weights", FLoRA(TWO_EPOCHS, sends="weights"), SUMS, lora_mlp_head),
    AlgorithmCase("flora-ranks", FLoRA(ADAM, RANKS, weights="uniform"), None, lora_mlp_head),
    AlgorithmCase("flora-topk", FLoRA(TWO_EPOCHS, RANKS, uplink=TOP_FIFTH), None, lora_mlp_head),
    AlgorithmCase("flexlora", FlexLoRA(TWO_EPOCHS), dense, lora_mlp),
    AlgorithmCase("flexlora-topk", FlexLoRA(TWO_EPOCHS, uplink=TOP_FIFTH), topk, lora_mlp),
    AlgorithmCase("flexlora-ranks", FlexLoRA(ADAM, RANKS, residual=2, weights="uniform"), None, lora_mlp_head),
    AlgorithmCase("hetlora", HetLoRA(TWO_EPOCHS), dense, lora_mlp),
    AlgorithmCase("hetlora-ranks", HetLoRA(ADAM, RANKS, dilute=False, weights="samples"), None, lora_mlp_head),
    AlgorithmCase("hetlora-topk", HetLoRA(ADAM, RANKS, uplink=TOP_FIFTH), None, lora_mlp_head),
    AlgorithmCase("hetlora-pruned", HetLoRA(ADAM, gamma=0.5, penalty=0.1), None, lora_mlp_head),
]

CASES = PARTS + RANKED
test_parts, test_ranks = suite(PARTS, UPDATES), suite(RANKED, [*UPDATES, *PARTS])
