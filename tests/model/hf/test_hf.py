"""Networks of transformers: what is trained, sent and refused. Acceptance figures are derived by hand."""

import json
import shutil

import pytest
import torch

from fedcomp.compressor.dense import Dense
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.model.batched.functional import Functional
from fedcomp.model.contract import Batch, Model
from fedcomp.model.flat import copy_sharing_frozen
from fedcomp.model.hf.folder import files_read
from fedcomp.model.hf.hf import network
from fedcomp.wire import SharedKnowledge
from tests.model.hf.networks import CLASSES, CONFIGS, KEY, LENGTH, PAD, VOCAB, built, module, tokens
from tests.refused import one_line_error

pytest.importorskip("transformers", reason="pip install 'fedcomp[hf]'")

QV = {"rank": 4, "targets": ["q_proj", "v_proj"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A causal Llama as `save_pretrained` writes it."""
    path = tmp_path_factory.mktemp("llama")
    made = module(adapter="none").network
    made.save_pretrained(path)
    return path


def test_floats_by_hand() -> None:
    """Llama of width 32, 4 heads and 2 of keys, 2 layers; adapters of rank 4 on q (32 to 32) and v (32 to 16)."""
    layout = LoraLayout.of(Model(module(**QV)).tensors)
    assert (layout.a.size, layout.b.size, layout.rest.size) == (512, 384, 0)
    only_b = LoraLayout.of(Model(module(**QV, trains="b")).tensors)
    assert (only_b.a.size, only_b.dim) == (0, 384)


SIZES = {"hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
OPT_125M = {"model_type": "opt", **SIZES, "vocab_size": 50272, "max_position_embeddings": 2048}
OPT_125M |= {"word_embed_proj_dim": 768}


def test_the_message_of_opt_125m_from_its_config_alone() -> None:
    """Rank 8 on q and v: 12 layers x 2 x (8 x 768 + 768 x 8) floats; nothing is allocated."""
    with torch.device("meta"):
        model = Model(module("opt", config=OPT_125M, rank=8, targets=["q_proj", "v_proj"]))
    assert model.dim == 294_912
    assert all(tensor.is_meta for tensor in model.frozen.values())
    assert sum(tensor.numel() for tensor in model.frozen.values()) == 125_239_296
    common = SharedKnowledge(KEY, torch.zeros(1, dtype=torch.int64), model.layers)
    message = Dense().encode(torch.empty(1, model.dim, device="meta"), common, KEY)
    assert message.total_bits == 9_437_184
    layout = LoraLayout.of(model.tensors)
    assert (layout.a.size, layout.b.size, layout.rest.size) == (147_456, 147_456, 0)


def test_rotary_tables_are_no_statistics_and_a_shared_embedding_counts_once() -> None:
    tied = {**CONFIGS["llama"], "vocab_size": 259, "tie_word_embeddings": True}
    whole = Model(module(adapter="none", config=tied))
    assert (whole.num_stats, whole.dim) == (0, 26_880)


def test_the_right_layers_in_the_models_order() -> None:
    """OPT has v before q."""
    names = [name for name, one in module("opt", **QV).named_parameters() if one.requires_grad][:4]
    assert [name.split(".")[-2] for name in names] == ["v_proj", "v_proj", "q_proj", "q_proj"]
    of_gpt2 = Model(module("gpt2", targets=["c_attn"])).tensors
    assert (of_gpt2[0].lora.inputs, of_gpt2[0].lora.outputs) == (32, 96)


def test_threads_share_the_base() -> None:
    model = Functional(module(), lambda outputs, y: outputs, (LENGTH,), vocab_size=VOCAB)
    worker, own = model._worker(), dict(model.module.named_parameters())
    for name, tensor in worker.named_parameters():
        assert (tensor.data_ptr() == own[name].data_ptr()) == (not tensor.requires_grad), name


def test_a_folder_is_read_once_and_first_values_come_from_the_key(folder, monkeypatch) -> None:
    options = {"path": str(folder), "initial": "pretrained", "config": None}
    model = built(**options)
    twin = built(key=KEY.fold_in(1), **options)
    monkeypatch.setattr("fedcomp.model.hf.hf.load", None)
    assert torch.equal(model.init(KEY.fold_in(1))[0], twin.init(KEY.fold_in(1))[0])
    assert not torch.equal(model.init(KEY)[0], twin.init(KEY.fold_in(1))[0])
    assert all(torch.equal(tensor, twin.frozen[name]) for name, tensor in model.frozen.items())


def test_random_weights_are_the_same_for_every_seed() -> None:
    first, second = (built(key=KEY.fold_in(seed)).frozen for seed in range(2))
    assert first.keys() == second.keys()
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


def test_the_first_outputs_are_the_folders(folder) -> None:
    import transformers

    x = tokens(3)
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder)
    wanted = plain(input_ids=x, attention_mask=torch.ones_like(x)).logits.mT
    found = network((LENGTH,), VOCAB, "next_token", (LENGTH,), VOCAB, str(folder))
    torch.testing.assert_close(found(x), wanted, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", CONFIGS)
def test_padding_changes_nothing(name, attention) -> None:
    """Padding behind a sequence, and before it where positions are given: as without it, by transformers' own mask."""
    causal = name != "bert"
    net = module(name, classifies=not causal, attention=attention).eval()
    x = tokens(2)
    short = torch.cat([x[:, :6], torch.full((2, 4), PAD)], 1)
    left = torch.cat([torch.full((2, 4), PAD), x[:, :6]], 1)
    with torch.no_grad():
        more = {"use_cache": False} if causal else {}
        plain = net.network(input_ids=short, attention_mask=(short != PAD).long(), **more)
        found = net(short)
        if causal:
            torch.testing.assert_close(found.mT[:, :6], plain.logits[:, :6], atol=1e-6, rtol=1e-5)
            torch.testing.assert_close(net(left).mT[:, 4:], plain.logits[:, :6], atol=1e-6, rtol=1e-5)
        else:
            torch.testing.assert_close(found, plain.logits, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["llama", "gpt2", "opt"])
def test_classifiers_read_the_last_real_token(name) -> None:
    net = module(name, classifies=True).eval()
    assert sorted(
        {one.split(".")[1] for one, part in net.named_parameters() if "lora" not in one and part.requires_grad}
    ) == ["score"]
    x = tokens(2)
    short = torch.cat([x[:, :6], torch.full((2, 4), PAD)], 1)
    other = torch.cat([x[:, :5], x[:, 6:7], torch.full((2, 4), PAD)], 1)
    with torch.no_grad():
        assert not torch.allclose(net(short), net(other))


def test_a_bf16_base_with_float32_adapters() -> None:
    net = module(classifies=True, dtype="bfloat16")
    dtypes = {one.requires_grad: one.dtype for one in net.parameters()}
    assert dtypes == {True: torch.float32, False: torch.bfloat16}


def test_a_network_in_float64() -> None:
    x = tokens(2)
    torch.testing.assert_close(module().double()(x).float(), module()(x), atol=1e-6, rtol=1e-5)


def test_the_networks_own_dropout_is_off_unless_asked_for() -> None:
    assert not built("gpt2").draws_in_training
    assert built("gpt2", base_dropout=True, attention="eager").draws_in_training
    assert built(dropout=0.1).draws_in_training


def test_the_files_that_are_read(folder) -> None:
    wanted = ["config.json", "generation_config.json", "model.safetensors"]
    assert sorted(one.name for one in files_read(folder)) == wanted


DRAWN = {"path": None, "initial": "random"}
WRONG = [
    ({"path": None}, "model=hf needs model.path=DIR, .*, or model.initial=random"),
    ({"pad_token": VOCAB}, "model.pad_token=40 is none of the network's 40 tokens"),
    (DRAWN | {"config": {"model_type": "lama"}}, r"\(Unrecognized model identifier: lama\)$"),
    (DRAWN | {"config": CONFIGS["llama"] | {"hidden_size": 30}}, "size .30. is not a multiple of the number of"),
    ({"path": "no_such"}, "model.path=no_such: there is no such folder"),
    ({"targets": ["c_attn"]}, "no linear layer is called c_attn; there are q_proj, k_proj, v_proj"),
    ({"adapter": "none", "dtype": "bfloat16"}, "model.adapter=none trains all: take float32"),
    ({"config": {"model_type": "llama"}}, "model.config describes a network in place of a folder"),
    ({"train_head": "yes"}, "model.train_head=yes must be true, false or auto"),
]


@pytest.mark.parametrize(("options", "line"), WRONG)
def test_wrong_options(options, line, folder) -> None:
    with pytest.raises(ValueError, match=line):
        network((LENGTH,), VOCAB, "next_token", (LENGTH,), VOCAB, **({"path": str(folder)} | options))


def test_networks_that_need_other_masks_or_another_attention() -> None:
    """Bloom counts distances on its own mask, Llama 4 attends in chunks, of which a mask given to it says nothing."""
    bloom = {"model_type": "bloom", "hidden_size": 32, "n_layer": 1, "n_head": 4, "vocab_size": VOCAB}
    with one_line_error("such a network .it has no attention=sdpa: take model.attention=eager"):
        module(config=bloom)
    with one_line_error("bloom does not run with fedcomp's attention masks, which say .* take another network"):
        module(config=bloom, attention="eager")
    chunks = {"num_local_experts": 2, "head_dim": 8, "num_hidden_layers": 1, "attention_chunk_size": 4}
    llama4 = CONFIGS["llama"] | chunks | {"model_type": "llama4_text"}
    with one_line_error(r"llama4_text does not run with .*\(its outputs differ from those with its own"):
        module(config=llama4)
    module(config=llama4 | {"attention_chunk_size": LENGTH})


def test_data_that_do_not_fit(folder) -> None:
    with pytest.raises(ValueError, match="the dataset has 41 tokens, but the network's embedding 40"):
        network((LENGTH,), 41, "next_token", (LENGTH,), 41, str(folder))
    with pytest.raises(ValueError, match="have 3000 tokens, but the network takes 2048 .max_position_embeddings"):
        network((3000,), VOCAB, "next_token", (3000,), VOCAB, str(folder))
    roberta = CONFIGS["bert"] | {"model_type": "roberta", "max_position_embeddings": LENGTH + 3}
    assert module(classifies=True, config=roberta | {"pad_token_id": 2}).pad == 2
    with pytest.raises(ValueError, match=f"samples have {LENGTH} tokens, but the network takes {LENGTH - 1} "):
        module(classifies=True, config=roberta | {"pad_token_id": 3})
    with pytest.raises(ValueError, match="model=hf reads tokens"):
        network((8,), 3, "classification", (), None, str(folder))
    with pytest.raises(ValueError, match="bert is no causal language model"):
        module("bert")
    without = {key: value for key, value in CONFIGS["llama"].items() if key != "pad_token_id"}
    with pytest.raises(ValueError, match="needs a padding token"):
        module(classifies=True, config=without)
    with pytest.raises(ValueError, match="needs a padding token"):
        module(classifies=True, config=without | {"pad_token_id": -1})
    assert module(classifies=True, config=without, pad_token=3).pad == 3
    assert module(classifies=True, config=without, padding_token=3).pad == 3
    with pytest.raises(ValueError, match=r"filled up with token 3, but token 0 is .* or give model.pad_token=3"):
        module(classifies=True, padding_token=3)
    assert module(classifies=True, padding_token=3, pad_token=3).pad == 3


def test_a_folder_that_does_not_fit_into_memory_is_not_read(folder) -> None:
    with one_line_error(r"needs [\d,]+\.\d GiB for its parameters and a copy, .*: take a smaller model"):
        built(path=str(folder), initial="pretrained", config=None, rank=10**10)


def test_folders_that_cannot_be_read(folder, tmp_path) -> None:
    from safetensors.torch import load_file, save_file

    def read(path):
        return network((LENGTH,), VOCAB, "next_token", (LENGTH,), VOCAB, str(path))

    with pytest.raises(ValueError, match=r"has no config\.json"):
        read(tmp_path)
    for name, file in (("pickled", "pytorch_model.bin"), ("empty", "notes.txt")):
        path = tmp_path / name
        path.mkdir()
        shutil.copy(folder / "config.json", path)
        (path / file).write_bytes(b"x")
        with pytest.raises(
            ValueError, match=r"only pickled weights" if name == "pickled" else r"no model\.safetensors"
        ):
            read(path)
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    (damaged / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:500])
    with pytest.raises(ValueError, match="damaged cannot be read"):
        read(damaged)
    for text in (b"", b"{", b"\xff\xfe\x00", b"[]", b"{}", b'{"weight_map": ["x"]}', b'{"weight_map": {"head": 3}}'):
        (damaged / "model.safetensors.index.json").write_bytes(text)
        with one_line_error(r"damaged: its model.safetensors.index.json, which says .* is damaged \(.+\): copy the fo"):
            read(damaged)
    weights = load_file(folder / "model.safetensors")
    for name in ("model.layers.1.mlp.up_proj.weight", "lm_head.weight"):
        renamed = tmp_path / name
        shutil.copytree(folder, renamed)
        own = {f"{one}_" if one == name else one: tensor for one, tensor in weights.items()}
        save_file(own, renamed / "model.safetensors", {"format": "pt"})
        with pytest.raises(ValueError, match=f"its weights lack {name.removesuffix('.weight')}"):
            read(renamed)
    config = json.loads((folder / "config.json").read_text())
    for key, value, line in (
        ("num_hidden_layers", 3, "its weights lack model.layers.2"),
        ("model_type", "own", "is of no network that transformers"),
        ("quantization_config", {"quant_method": "bitsandbytes", "load_in_4bit": True}, "has quantised weights"),
    ):
        other = tmp_path / key
        shutil.copytree(folder, other)
        (other / "config.json").write_text(json.dumps(config | {key: value}))
        with pytest.raises(ValueError, match=line):
            read(other)


def test_a_head_that_the_folder_lacks_is_drawn_and_one_that_it_has_is_kept(folder, tmp_path) -> None:
    def of(path, key):
        options = {"path": str(path), "initial": "pretrained", "config": None}
        return built(classifies=True, key=key, **options)

    new = of(folder, KEY)
    head = LoraLayout.of(new.tensors).rest
    assert head.size == 32 * CLASSES
    assert not torch.equal(head.take(new.init(KEY)[0]), head.take(new.init(KEY.fold_in(1))[0]))
    module(classifies=True, adapter="none").network.save_pretrained(tmp_path)
    old = of(tmp_path, KEY)
    assert torch.equal(head.take(old.init(KEY)[0]), head.take(old.init(KEY.fold_in(1))[0]))


def test_copies_of_a_whole_network_keep_shared_weights() -> None:
    model = built(adapter="none", config={**CONFIGS["llama"], "tie_word_embeddings": True})
    twin = copy_sharing_frozen(model.module).network
    assert twin.lm_head.weight is twin.model.embed_tokens.weight
    x, y = tokens(1, 2), tokens(1, 2, seed=1)
    theta, stats = model.init(KEY)
    found = model.gradient(theta[None], Batch(x, y, None, stats[None])).grad[0]
    torch.nn.functional.cross_entropy(model.module(x[0]), y[0]).backward()
    wanted = torch.cat([one.grad.flatten() for one in model.module.parameters()])
    assert float((found - wanted).norm()) <= 1e-6 * float(wanted.norm())
    shared = model.module.network.model.embed_tokens.weight.grad
    torch.testing.assert_close(found[: shared.numel()], shared.flatten(), rtol=0, atol=1e-7)
