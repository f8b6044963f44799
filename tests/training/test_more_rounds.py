"""A run of more rounds goes on from a finished one, and ends bit for bit as from the start."""

from pathlib import Path

import pytest

from fedcomp.records.provenance import read_provenance
from tests.left import assert_same_run

OPTIONS = ["num_clients=4", "model=logistic", "client.steps=2", "pictures=false", "threads=1", "eval_every=2"]
MEMORIES = ["compressor=topk", "compressor.feedback=error", "server=adam", "participation=bernoulli"]
NETWORK = ["network=lte", "participation=bernoulli"]
STUDY = ["repeats=2", "compressor=topk"]


def _folder(root: Path, rounds: int) -> Path:
    (folder,) = (path.parent for path in root.rglob("config.yaml") if f"\nrounds: {rounds}\n" in path.read_text())
    return folder


@pytest.mark.parametrize(
    ("options", "first", "then"),
    [
        pytest.param(MEMORIES, 3, 6),
        pytest.param(NETWORK, 4, 5, marks=pytest.mark.thorough),
        pytest.param(STUDY, 21, 24, marks=pytest.mark.thorough),
    ],
)
def test_more_rounds_end_as_from_the_start(fedcomp, tmp_path: Path, capsys, options, first: int, then: int) -> None:
    assert fedcomp(*OPTIONS, *options, f"rounds={first}") == 0
    folder = _folder(tmp_path, first)
    capsys.readouterr()
    assert fedcomp(*OPTIONS, *options, f"rounds={then}") == 0
    shown = capsys.readouterr().err
    assert f"going on from round {first} of {folder}" in shown
    assert f"resuming after round {first}" in shown
    longer, anew = _folder(tmp_path, then), tmp_path / "anew"
    assert fedcomp(*OPTIONS, *options, f"rounds={then}", f"output_root={anew}") == 0
    assert_same_run(longer, anew)
    provenance = read_provenance(longer)
    assert provenance is not None
    assert provenance.continues == f"{folder}, round {first}"
    assert [one.to_round for one in provenance.sessions] == [first, then]
    assert fedcomp(*OPTIONS, *options, f"rounds={then}") == 0
    assert "already finished" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["client.schedule=cosine"], "the method or a schedule depends on the number of rounds"),
        (["client.schedule=exponential", "client.lr_final=0.9"], None),
        (["algorithm=fedsparsify"], "the method or a schedule depends on the number of rounds"),
        (["repeats=2"], "the method or a schedule depends on the number of rounds"),
        (["participation=bernoulli", "participation.probability=1e-9"], "nobody took part in them"),
    ],
)
def test_rounds_that_depend_on_their_number_are_not_continued(fedcomp, tmp_path, capsys, options, why) -> None:
    for rounds in (1, 2):
        assert fedcomp(*OPTIONS, *options, f"rounds={rounds}") == 0
    shown = capsys.readouterr().err
    assert ("going on from round 1" in shown) is (why is None)
    assert why is None or f"they cannot be continued: {why}; starting anew" in shown


def test_only_an_undamaged_finished_run_of_the_same_settings_is_continued(fedcomp, tmp_path: Path, capsys) -> None:
    def said(*words: str) -> str:
        capsys.readouterr()
        assert fedcomp(*OPTIONS, *words) == 0
        return capsys.readouterr().err

    said("rounds=2")
    for other in (["client.lr=0.2"], ["seed=1"], ["overwrite=true"]):
        assert "going on from" not in said("rounds=3", *other)
    assert "going on from" not in said("rounds=1")
    assert "going on from round 3 of" in said("rounds=4"), "the one with the most rounds"
    record = _folder(tmp_path, 4) / "metrics.jsonl"
    record.write_text(record.read_text().replace('"test/loss": ', '"test/loss": 1'))
    assert "is not what the run wrote" in said("rounds=5")
