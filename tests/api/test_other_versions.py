"""Runs of other versions of fedcomp: what their config and checkpoint lack is said, and what can be read is read."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from fedcomp.api import Run, run
from fedcomp.records.checkpoint import CHECKSUM, FORMAT, read

OPTIONS = ["num_clients=4", "rounds=2", "pictures=false", "quiet=true", "device=cpu", "server=adam"]


@pytest.fixture
def finished(tmp_path: Path) -> Run:
    return run([*OPTIONS, f"output_root={tmp_path}", "compressor=topk", "compressor.feedback=error"])


def _edit_config(folder: Path, change: Callable[[dict], None]) -> None:
    plain = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    assert isinstance(plain, dict)
    change(plain)
    OmegaConf.save(OmegaConf.create(plain), folder / "config.yaml")


def _edit_checkpoint(folder: Path, change: Callable[[dict], None]) -> None:
    path = folder / "checkpoint.pt"
    content = read(path)
    change(content.tensors)
    parts = {"config_hash": "another", "round": content.round, "seconds": 1.0, "ledger": dict(content.ledger)}
    torch.save({"format": FORMAT, **parts, "state": content.tensors, "record": {}}, path)
    path.write_bytes(path.read_bytes() + CHECKSUM % hashlib.sha256(path.read_bytes()).hexdigest().encode())


def _weights(finished: Run) -> list[torch.Tensor]:
    return list(Run(finished.folder).model().state_dict().values())


def test_moved_classes_and_parts_that_did_not_exist(finished: Run) -> None:
    before = _weights(finished)

    def earlier(plain: dict) -> None:
        for key in ("evaluation", "network", "precision"):
            del plain[key]
        module, function = plain["model"]["_target_"].split(".")[-2:]
        plain["model"]["_target_"] = f"fedcomp.nets.{module}.{function}"
        plain["compressor"]["_target_"] = "fedcomp.codecs.topk.TopK"
        del plain["compressor"]["estimator"]

    _edit_config(finished.folder, earlier)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(torch.equal(one, other) for one, other in zip(_weights(finished), before, strict=True))


def test_keys_of_a_later_version_are_left_out(finished: Run) -> None:
    before = _weights(finished)
    _edit_config(finished.folder, lambda plain: plain.update(colour="blue"))
    with pytest.warns(UserWarning, match="this version of fedcomp has no colour: left out of the run's config"):
        assert all(torch.equal(one, other) for one, other in zip(_weights(finished), before, strict=True))


def test_a_checkpoint_without_what_the_model_does_not_need(finished: Run) -> None:
    before = _weights(finished)
    _edit_checkpoint(finished.folder, lambda tensors: tensors.update(colour=tensors.pop("optimizer.0")))
    with pytest.warns(UserWarning, match="of another version of fedcomp") as said:
        assert all(torch.equal(one, other) for one, other in zip(_weights(finished), before, strict=True))
    lines = [str(one.message) for one in said]
    assert len(lines) == 2
    assert lines[0].endswith("has colour, which this version does not know: left out")
    assert lines[1].endswith("lacks optimizer.0: the model does not depend on it")


def test_a_checkpoint_without_what_the_model_follows_from(finished: Run) -> None:
    _edit_checkpoint(finished.folder, lambda tensors: tensors.pop("theta"))
    with pytest.raises(ValueError, match="lacks theta, which the model follows from: read it with the fedcomp that"):
        finished.model()


def test_a_checkpoint_of_another_size(finished: Run) -> None:
    _edit_checkpoint(finished.folder, lambda tensors: tensors.update(theta=tensors["theta"][:7]))
    with pytest.raises(ValueError, match=r"does not fit: state 'theta' is torch.float32 \(7,\), but this run needs"):
        finished.model()
