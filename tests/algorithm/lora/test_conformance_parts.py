"""Methods that train or send a part of the adapters, against the suite; a new one adds a line to CASES."""

from fedcomp.algorithm.lora.fedsa_lora import FedSALoRA
from fedcomp.algorithm.lora.fedsrd import FedSRD
from fedcomp.algorithm.lora.ffa_lora import FFALoRA
from fedcomp.algorithm.lora.flasc import FLASC
from fedcomp.algorithm.lora.lora_fair import LoRAFAIR
from fedcomp.algorithm.lora.rolora import RoLoRA
from fedcomp.server.adamw import AdamW
from tests.conformance.algorithm import AlgorithmCase, suite
from tests.conformance.bits import dense
from tests.lora_networks import lora_mlp, lora_mlp_b, lora_mlp_head
from tests.parts import Compressor, Dense, ErrorFeedback, ServerSgd, Sgd, TopK

SGD = Sgd(lr=0.2, batch_size=4)
DENSE, TOPK = Compressor(Dense()), Compressor(TopK(0.3, "index"), ErrorFeedback())


def _a_alone(dim, stats, layers, cohort):
    each = 32 * 22
    return {"uplink": cohort * each, "downlink": cohort * each, "broadcast": each}


def _k_both_ways(dim, stats, layers, cohort):
    """Half of the entries down, whose places are a bitmap."""
    up, down = round(0.3 * dim) * (32 + (dim - 1).bit_length()), round(0.5 * dim) * 32 + dim
    return {"uplink": cohort * up, "downlink": cohort * down, "broadcast": down}


CASES = [
    AlgorithmCase("ffa_lora", FFALoRA(SGD, ServerSgd(), DENSE, DENSE), dense, lora_mlp_b),
    AlgorithmCase("fedsa_lora", FedSALoRA(SGD, DENSE), _a_alone, lora_mlp),
    AlgorithmCase("fedsa_lora-topk", FedSALoRA(SGD, TOPK, "uniform"), None, lora_mlp_head),
    AlgorithmCase("fedsrd", FedSRD(SGD, drop=0.5), None, lora_mlp_head),
    AlgorithmCase("fedsrd-whole", FedSRD(SGD, 0.5, 0.2, truncates=False, drop=0.0, weights="samples"), None, lora_mlp),
    AlgorithmCase("flasc", FLASC(SGD, AdamW(lr=0.02), TOPK, 0.5), _k_both_ways, lora_mlp),
    AlgorithmCase("flasc-update", FLASC(SGD, ServerSgd(), TOPK, 0.5, "update"), None, lora_mlp_head),
    AlgorithmCase("lora_fair", LoRAFAIR(SGD, DENSE), dense, lora_mlp),
    AlgorithmCase("lora_fair-topk", LoRAFAIR(SGD, Compressor(TopK(0.3))), None, lora_mlp_head),
    AlgorithmCase("rolora", RoLoRA(SGD, DENSE), None, lora_mlp),
    AlgorithmCase("rolora-topk", RoLoRA(SGD, TOPK, "uniform"), None, lora_mlp_head),
]

test_algorithm = suite(CASES)
