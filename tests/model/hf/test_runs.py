"""Whole runs of `model=hf`: what is saved, resumed and exported."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from fedcomp.api import Run, run
from fedcomp.api.export import export
from fedcomp.records.checkpoint import read_last
from fedcomp.records.reader import read_runs
from fedcomp.records.run_folder import CHECKPOINT
from fedcomp.replay.networks import networks
from fedcomp.replay.replayed import replayed

transformers = pytest.importorskip("transformers", reason="the extra hf")
saved = pytest.importorskip("safetensors.torch", reason="the extra hf")

NETWORK = "{model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 4}"
GIVEN = ("model=hf", "model.initial=random", f"model.config={NETWORK}", "dataset=text")
TEXTS = (
    "dataset.prompt=ask",
    "dataset.answer=say",
    "dataset.length=24",
    "num_clients=3",
    "pictures=false",
    "device=cpu",
)
STEPS = ("client.steps=2", "client.epochs=null", "client.batch_size=4", "eval_every=1")


def _run(folder: Path, *more: str) -> Run:
    texts = folder / "texts.jsonl"
    texts.write_text("\n".join(json.dumps({"ask": f"what is {i}", "say": f"it is {i % 7}"}) for i in range(40)))
    return run([*GIVEN, *TEXTS, f"dataset.path={texts}", f"output_root={folder}", *more])


def test_a_run_has_its_adapter_alone_and_exports_it(tmp_path: Path) -> None:
    """A of r (q, k, v, o, gate, up: 6 x 32; down: 64) and B of as many outputs, in two layers."""
    done = _run(tmp_path, "rounds=2", *STEPS)
    dim = 2 * 8 * ((6 * 32 + 64) + (5 * 32 + 2 * 64))
    assert done.lines[-1]["bits/uplink"] == 2 * 3 * 32 * dim
    content = read_last(done.folder / CHECKPOINT)
    assert sum(tensor.numel() for tensor in content.state.values()) < 1.1 * dim
    export(done.folder, tmp_path / "adapter")
    export(done.folder, tmp_path / "merged", merge=True)
    with pytest.raises(ValueError, match="merged is a folder with files in it: give the name of a new one"):
        export(done.folder, tmp_path / "merged")
    assert sorted(file.name for file in (tmp_path / "adapter").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    assert (tmp_path / "merged" / "config.json").is_file()


def test_more_rounds_are_those_of_a_run_from_the_start(tmp_path: Path) -> None:
    short, whole = tmp_path / "short", tmp_path / "whole"
    for folder in (short, whole):
        folder.mkdir()
    _run(short, "rounds=1", *STEPS)
    resumed, whole_run = _run(short, "rounds=3", *STEPS), _run(whole, "rounds=3", *STEPS)
    one, other = (read_last(each.folder / CHECKPOINT) for each in (resumed, whole_run))
    assert one is not None
    assert all(torch.equal(one.state[name], other.state[name]) for name in other.state)


def test_checkpointing_changes_no_bit_of_a_run_with_dropout(tmp_path: Path) -> None:
    states = []
    for number, checkpointing in enumerate(("false", "true")):
        folder = tmp_path / str(number)
        folder.mkdir()
        given = "model.dropout=0.2", "chunk_size=2", f"model.checkpointing={checkpointing}", "model.attention=eager"
        content = read_last(_run(folder, "rounds=1", *given, *STEPS).folder / CHECKPOINT)
        states.append(content.state)
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_moved_base_is_exported_whole(tmp_path: Path) -> None:
    done = _run(tmp_path, "rounds=1", "algorithm=flora", *STEPS)
    with pytest.raises(ValueError, match="moved its frozen base, .*: take --merge"):
        export(done.folder, tmp_path / "adapter")
    export(done.folder, tmp_path / "merged", merge=True)


@pytest.mark.parametrize("algorithm", ["decomfl", "fedkseed"])
def test_a_whole_network_by_scalars(algorithm: str, tmp_path: Path) -> None:
    done = _run(tmp_path, "rounds=1", "model.adapter=none", f"algorithm={algorithm}")
    assert done.lines[-1]["bits/uplink"] < 3 * 32 * 100


@pytest.mark.parametrize(
    ("merge", "given"),
    [
        (True, ["algorithm=flora"]),
        (False, ["model.adapter=none"]),
        (False, ["model.adapter=none", "+model.config.tie_word_embeddings=true"]),
    ],
    ids=["a base that moved", "whole", "whole, tied"],
)
def test_the_folder_that_transformers_loads_is_the_run_s_model(tmp_path: Path, merge: bool, given: list[str]) -> None:
    done = _run(tmp_path, "rounds=2", *STEPS, *given)
    export(done.folder, tmp_path / "network", merge=merge)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "network", local_files_only=True).eval()
    tokens = torch.arange(2 * 9).reshape(2, 9)
    model = done.model()
    with torch.no_grad():
        torch.testing.assert_close(loaded(tokens).logits.mT, model(tokens), atol=1e-5, rtol=0)
    export(done.folder, tmp_path / "model.safetensors")
    model.load_state_dict(saved.load_file(tmp_path / "model.safetensors"))


def test_differences_of_losses_need_weights_in_float32(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="take them in float32, by model.dtype=float32"):
        _run(tmp_path, "rounds=1", "algorithm=decomfl", "model.dtype=bfloat16", "eval_every=1")


def test_the_folder_of_the_small_llama_names_the_script_that_makes_it(tmp_path: Path) -> None:
    missing = tmp_path / "shakespeare_llama_0000"
    with pytest.raises(ValueError, match="no such folder; python scripts/pretrain_small.py makes it"):
        _run(tmp_path, "rounds=1", "model.initial=pretrained", "model.config=null", f"model.path={missing}", *STEPS)


def test_another_base_is_refused_by_the_name_of_its_file(tmp_path: Path) -> None:
    """A run with half of its rounds does not go on, is not evaluated, and its traffic is not timed."""
    base = tmp_path / "base"
    transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(vocab_size=259, **yaml.safe_load(NETWORK))
    ).save_pretrained(base)
    given = "model.initial=pretrained", "model.config=null", f"model.path={base}", "record_traffic=true", *STEPS
    done = _run(tmp_path, "rounds=2", *given)
    before = replayed(*read_runs([done.folder]), *networks(["network=lte"]))
    kept = json.loads((done.folder / "provenance.json").read_text())["model"]
    assert sorted(kept) == ["config.json", "frozen tensors", "generation_config.json", "model.safetensors"]
    weights = saved.load_file(base / "model.safetensors")
    saved.save_file(
        {name: 1.01 * tensor for name, tensor in weights.items()}, base / "model.safetensors", {"format": "pt"}
    )
    for read in (done.model, lambda: replayed(*read_runs([done.folder]), *networks(["network=lte"]))):
        with pytest.raises(ValueError, match=r"not those of the run: model\.safetensors has changed; restore them"):
            read()
    with pytest.raises(ValueError, match=r"have changed since .*: model: model\.safetensors has changed; restore them"):
        _run(tmp_path, "rounds=4", *given)
    shutil.rmtree(base)
    assert replayed(*read_runs([done.folder]), *networks(["network=lte"]))[0].lines == before[0].lines
