"""The small Llama of the fine-tuning experiments: where it lies, and that the script saves what transformers loads."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from fedcomp.config.compose import compose
from tests.bare import DATA


@pytest.mark.data("tinyshakespeare.txt")
def test_the_experiments_name_its_folder() -> None:
    from scripts.pretrain_small import folder_of

    name = folder_of(Path(DATA) / "tinyshakespeare.txt").name
    for experiment in ("shakespeare_lora", "who_speaks"):
        path = Path(compose([f"experiment=fine_tuning/{experiment}", "dataset.root=here"]).model.path)
        assert path == Path("here", name), "settings have changed: run the script, and name its new folder"


@pytest.mark.thorough
@pytest.mark.skipif(find_spec("transformers") is None, reason="no transformers: pip install 'fedcomp[hf]'")
def test_it_saves_a_folder_once(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModelForCausalLM

    from scripts.pretrain_small import TRAINING, main

    monkeypatch.setitem(TRAINING, "steps", 1)
    speeches = (f"ROLE {number % 3}:\nThis is line {number} of a play that has a few of them." for number in range(400))
    (tmp_path / "tinyshakespeare.txt").write_text("\n\n".join(speeches))
    for said in ("saved in", "nothing to do"):
        main(["--root", str(tmp_path)])
        assert said in capsys.readouterr().out
    (folder,) = tmp_path.glob("shakespeare_llama_*")
    assert AutoModelForCausalLM.from_pretrained(folder).num_parameters() == 689_664
    assert (folder / "pretraining.json").is_file()
