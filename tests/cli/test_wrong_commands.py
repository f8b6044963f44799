"""Every wrong command is refused in one line, which says what was given, what is allowed and what to do."""

import os
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

import fedcomp as api
from tests.cli.wrong_commands import CHOICES, MINE, OF_THE_RUN, OPTIONS, SHORT, TOGETHER, VALUES
from tests.looped import looped
from tests.outside import write_files

QUICK = ("rounds=1", "num_clients=2", "quiet=true", "pictures=false")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the commands name; outputs go beside it."""
    folder = tmp_path / "here"
    files = {
        "t.csv": "a,y\n1,2\n2,3\n3,4\n4,5\n",
        "only.csv": "y\n1\n2\n3\n",
        "quits.py": "import sys\nsys.exit(3)\n",
        "tinyshakespeare.txt": "\n\n".join(f"{name}:\n{'abcde ' * 300}" for name in ("ann", "bob")),
        f"{MINE}/experiment/fast.yaml": "rounds: 3\n",
        f"{MINE}/experiment/bad.yaml": "a: [1\n",
        f"{MINE}/experiment/bare.yaml": "# @package _global_\ndownlink: null\n",
        f"{MINE}/compressor/halves.yaml": "_target_: halves.Halves\nshare: 0.5\nfeedback: none\n",
        f"{MINE}/compressor/thirds.yaml": "_target_: thirds.Thirds\n",
        f"{MINE}/model/ready.yaml": "_target_: torch.nn.Linear\nin_features: 64\nout_features: 10\n",
        f"{MINE}/thirds.py": "def Thirds(share): pass\ndef Whole(): pass\n",
        f"{MINE}/compressor/blank.yaml": "share: 0.5\n",
        f"{MINE}/compressor/later.yaml": "_target_: thirds.Whole\n_partial_: true\n",
        f"{MINE}/compressor/bare.yaml": "_target_: Whole\n",
        f"{MINE}/compressor/begins.yaml": "defaults: [topkk, _self_]\n",
        f"{MINE}/compressor/unmarked.yaml": "_target_: unmarked.Unmarked\nshare: 0.5\n",
        f"{MINE}/unmarked.py": "class Unmarked:\n    share: float\n",
        f"{MINE}/compressor/queued.yaml": "_target_: queue.Whole\n",
        f"{MINE}/compressor/above.yaml": "# @package _global_\n_target_: thirds.Whole\n",
        f"{MINE}/queue.py": "def Whole(): pass\n",
        "shadow/compressor/own.yaml": "_target_: thirds.Whole\n",
        "shadow/torch.py": "",
        "same/compressor/topk.yaml": "_target_: halves.Halves\n",
    }
    write_files(folder, files)
    (folder / "empty").mkdir()
    np.save(folder / "complex.npy", np.ones((2, 3), complex))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    return tmp_path


@looped("words, says", [*OF_THE_RUN, *CHOICES, *OPTIONS, *VALUES, *TOGETHER])
def test_one_clear_line(fedcomp, capsys, monkeypatch, place: Path, words: str, says: str) -> None:
    cluster = "slurm" in words or "optuna" in words
    if cluster:
        pytest.importorskip("submitit", reason="no submitit here: pip install 'fedcomp[grids]'")
    first, _, rest = words.partition(" ")
    given = shlex.split(f"{SHORT[first]} {rest}" if first in SHORT else words.replace("MINE", shlex.quote(MINE)))
    keys = {word.partition("=")[0] for word in given}
    quick = [] if "--help" in words else [word for word in QUICK if word.partition("=")[0] not in keys]
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere" if cluster else os.environ["PATH"])
        assert fedcomp(*quick, *given) in (1, 2)
    shown = capsys.readouterr()
    assert shown.out == ""
    line = shown.err.partition("\n  File")[0].strip()  # where a module of the user's own ends the process
    assert line.startswith("fedcomp: error: ")
    assert "\n" not in line
    assert says in line
    assert not re.search("hydra|Lexer|override|struct|type 'str'", line, re.IGNORECASE)
    assert [path.name for path in place.iterdir()] == ["here"] or (words, says) not in OF_THE_RUN


def test_missing_submitit_is_one_line_with_the_remedy(fedcomp, capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert fedcomp(*QUICK, "launcher=slurm") == 2
    assert capsys.readouterr().err == "fedcomp: error: launcher=slurm needs submitit: pip install 'fedcomp[grids]'\n"


@looped("given, said", [(3, "3 is no config"), (["launcher=joblib"], "launcher=joblib is for the")])
def test_from_python(given: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        api.run(given)


@looped(
    "words",
    [
        "algorithm=fedavg_svrg client.lr=0.01",
        "client.steps=3 client.epochs=null",
        "compressor=topk compressor.k=5 compressor.fraction=null",
        "compressor.precision=float16 compressor.feedback=error",
        "+width=3 model.hidden=[${width}]",
    ],
)
def test_what_says_one_thing_runs(fedcomp, words: str) -> None:
    assert fedcomp(*QUICK, *words.split()) == 0


def test_an_option_that_an_experiment_sets_for_another_choice_is_said_to_be_its(fedcomp, capsys) -> None:
    assert fedcomp(*QUICK, "experiment=quickstart", "partition=iid") == 1
    said = capsys.readouterr().err
    assert "there is no option 'partition.alpha' (there are: seed): experiment=quickstart sets it, for its own" in said
