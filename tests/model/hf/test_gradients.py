"""One client after another, by vmap, folded into the batch, and by PEFT: the same gradients, for every architecture."""

import copy
import warnings

import pytest
import torch
from torch.nn import functional

from fedcomp.model.batched.folded import Folded
from fedcomp.model.batched.functional import Functional
from fedcomp.model.contract import Batch, StepDraws
from tests.model.hf.networks import CLASSES, CONFIGS, KEY, PAD, built, tokens

pytest.importorskip("transformers", reason="pip install 'fedcomp[hf]'")
peft = pytest.importorskip("peft", reason="pip install peft")

TARGETS = {
    "llama": ["q_proj", "v_proj", "down_proj"],
    "gpt2": ["c_attn", "c_fc"],
    "opt": ["q_proj", "v_proj", "fc1"],
    "bert": ["query", "value", "output.dense"],
}
CLIENTS, BATCH = 3, 4


def data(classifies: bool, padded: bool):
    x = tokens(CLIENTS, BATCH, padded=padded)
    if classifies:
        return x, torch.randint(0, CLASSES, (CLIENTS, BATCH), generator=torch.Generator().manual_seed(2))
    y = tokens(CLIENTS, BATCH, seed=1).masked_fill(x == PAD, -100)
    y[:, 1, :7] = -100  # as of a prompt: the sample counts for less than the others
    y[0, 2] = -100
    return x, y


def start(model):
    theta, stats = model.init(KEY)
    noise = torch.randn(CLIENTS, model.dim, generator=torch.Generator().manual_seed(3))
    return theta + 0.05 * noise, stats.repeat(CLIENTS, 1)


def of_peft(model, name: str, classifies: bool, theta, x, y, real):
    """[M, D] gradients by PEFT's own modules, in the order of our rows; of real samples alone."""
    trained = [one for one, part in model.module.network.named_parameters() if part.requires_grad]
    shapes = model.shapes
    base = copy.deepcopy(model.module.network)
    for part in list(base.named_modules()):
        if hasattr(part[1], "lora_A"):
            base.set_submodule(part[0], part[1].base)
    task = "SEQ_CLS" if classifies else "CAUSAL_LM"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT sets fan_in_fan_out of GPT-2 and says so
        own = peft.LoraConfig(task_type=task, r=4, lora_alpha=8, target_modules=TARGETS[name])
        wrapped = peft.get_peft_model(base, own).eval()
    named = dict(wrapped.named_parameters())

    def of(one: str):
        for factor in ("lora_A", "lora_B"):
            if one.endswith(factor):
                return named[f"base_model.model.{one}.default.weight"]
        part, _, leaf = one.rpartition(".")
        return named[f"base_model.model.{part}.modules_to_save.default.{leaf}"]

    leaves = [of(one) for one in trained]
    rows = []
    for client in range(CLIENTS):
        pieces = theta[client].split([shape.numel() for shape in shapes])
        with torch.no_grad():
            for leaf, piece, shape in zip(leaves, pieces, shapes, strict=True):
                leaf.copy_(piece.view(shape))
        keep = slice(None) if real is None else real[client] > 0
        x_B, y_B = x[client][keep], y[client][keep]
        if not len(x_B):
            rows.append(torch.zeros_like(theta[client]))
            continue
        logits = wrapped(input_ids=x_B, attention_mask=(x_B != PAD).long()).logits
        loss = functional.cross_entropy(logits if classifies else logits.mT, y_B)
        rows.append(torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, leaves)]))
    return torch.stack(rows)


CASES = [(name, name == "bert") for name in CONFIGS] + [("gpt2", True), ("llama", True)]


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(("name", "classifies"), CASES)
def test_all_forms_agree_with_peft(name, classifies, attention, padded) -> None:
    """Also with empty places, one client without any sample, and samples that count by their number of targets."""
    model = built(name, classifies, targets=TARGETS[name], attention=attention)
    assert type(model) is Folded
    theta, stats = start(model)
    x, y = data(classifies, padded)
    real = torch.tensor([[1.0] * BATCH, [1.0, 1.0, 0.0, 0.0], [0.0] * BATCH])
    for weight in (None, real):
        wanted = of_peft(model, name, classifies, theta, x, y, weight)
        batch = Batch(x, y, weight, stats)
        looped = model._looped(True, theta, batch, None)
        found = {"folded": model.gradient(theta, batch), "looped": looped}
        found["vmap"] = Functional._together(model, True, theta, batch, None)
        assert not model.vmap_refused
        for form, one in found.items():
            error = float((one.grad - wanted).norm() / wanted.norm())
            assert error <= 1e-6, (form, error)
            torch.testing.assert_close(one.loss, looped.loss)


@pytest.mark.parametrize("given", [{}, {"dropout": 0.3}, {"base_dropout": True}, {"adapter": "none"}], ids=str)
@pytest.mark.parametrize("name", list(CONFIGS))
def test_checkpointed_layers_have_the_same_gradients_bit_for_bit_and_keep_less(name, given) -> None:
    """Of one client and of several, with empty places and dropout; what is kept for the backward pass is counted."""
    made = {"targets": TARGETS[name], "adapter": "lora"} | given
    plain, model = (built(name, name == "bert", checkpointing=one, **made) for one in (False, True))
    theta, stats = start(model)
    x, y = data(name == "bert", True)
    real = torch.tensor([[1.0] * BATCH, [1.0, 1.0, 0.0, 0.0], [0.0] * BATCH])
    ids = torch.tensor([5, 2, 9])
    assert model.draws_in_training == ("dropout" in given or ("base_dropout" in given and name != "llama"))

    def kept(one, form, *given) -> tuple[torch.Tensor, int]:
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: sizes.append(tensor.numel()) or tensor, lambda t: t
        ):
            return form(one, True, *given).grad, sum(sizes)

    forms = [type(model)._looped] + ([Folded._folded] if isinstance(model, Folded) else [])
    for rows, weight in ((slice(None), None), (slice(None), real), (slice(1), None)):
        draws = StepDraws(KEY.fold_in("step"), ids[rows])
        batch = Batch(x[rows], y[rows], None if weight is None else weight[rows], stats[rows])
        for form in forms:
            (grad, few), (wanted, many) = (kept(one, form, theta[rows], batch, draws) for one in (model, plain))
            assert torch.equal(grad, wanted)
            assert few < 0.6 * many
        taken = model.gradient(theta[rows], batch, draws).grad
        alone = len(theta[rows]) == 1 or len(forms) == 1
        assert torch.equal(taken, forms[0 if alone else -1](plain, True, theta[rows], batch, draws).grad)
    assert not model._worker().checkpoints.on


def test_dropout_draws_alike_in_all_forms() -> None:
    model = built(dropout=0.3, attention="eager")
    theta, stats = start(model)
    x, y = data(False, False)
    draws = StepDraws(KEY.fold_in("step"), torch.tensor([5, 2, 9]))
    batch = Batch(x, y, None, stats)
    looped = model._looped(True, theta, batch, draws)
    for found in (model.gradient(theta, batch, draws), Functional._together(model, True, theta, batch, draws)):
        torch.testing.assert_close(found.grad, looped.grad, rtol=1e-4, atol=1e-6)
    other = model._looped(True, theta, batch, StepDraws(KEY, draws.ids))
    assert not torch.allclose(looped.grad, other.grad, rtol=1e-2)


def test_losses_without_a_gradient() -> None:
    model = built("bert", True, targets=["query"])
    theta, stats = start(model)
    x, y = data(True, True)
    loss, _ = model.batch_loss(theta, Batch(x, y, None, stats))
    assert not loss.requires_grad
    torch.testing.assert_close(loss.float(), model.gradient(theta, Batch(x, y, None, stats)).loss)
