"""Checkpoints, a run's status and other replaced files: round trip, whole or absent, one line for what is wrong."""

import os
import resource
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedcomp.records.atomic_write import write_atomically
from fedcomp.records.checkpoint import Checkpoint, Damaged, drop_older, load, resume, save
from fedcomp.records.run_folder import owned
from fedcomp.records.status import Status, read_status, write_status
from tests.looped import looped
from tests.raising import raising


@dataclass(frozen=True)
class State:
    theta: Tensor
    counts: Tensor


STATE = State(torch.tensor([1.5, float("nan")]), torch.tensor([2**60]))


def _saved(folder: Path) -> Path:
    path = folder / "checkpoint.pt"
    save(path, Checkpoint(7, STATE, {"uplink": 2**63}, 12.5), "abcd")
    return path


def test_round_trip(tmp_path: Path) -> None:
    loaded = load(_saved(tmp_path), STATE, "abcd")
    assert loaded.round == 7
    assert loaded.ledger == {"uplink": 2**63}
    assert loaded.seconds == 12.5
    assert torch.equal(loaded.state.theta.view(torch.int32), STATE.theta.view(torch.int32))
    assert torch.equal(loaded.state.counts, STATE.counts)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


@looped("share", [0.0, 0.3, 0.9, 0.999])
def test_half_written(tmp_path: Path, share: float) -> None:
    path = _saved(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(Damaged, match=r"checkpoint .* is damaged \(.*\); overwrite=true starts the run anew") as caught:
        resume(path, STATE, "abcd", pytest.fail)
    assert "\n" not in str(caught.value)


def test_a_flipped_bit_anywhere_is_noticed(tmp_path: Path) -> None:
    """In tensors, in the archive's own bytes, in its padding and in the checksum."""
    path = _saved(tmp_path)
    content = path.read_bytes()
    for place in [*range(0, len(content), 29), len(content) - 1]:
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with pytest.raises(Damaged, match="is damaged") as caught:
            load(path, STATE, "abcd")
        assert "weights_only" not in str(caught.value)


def test_the_file_is_torch_s_and_holds_no_more_than_the_state(tmp_path: Path) -> None:
    """A row of a large tensor is saved alone, and one that is repeated as often as it is."""
    rows = torch.arange(100_000.0).view(10, -1)
    state = State(rows[3], torch.ones(1).expand(5))
    path = tmp_path / "checkpoint.pt"
    save(path, Checkpoint(1, state, {}, 0.0), "abcd")
    assert path.stat().st_size < 2 * rows[3].numel() * 4
    kept = torch.load(path, weights_only=True)["state"]
    assert torch.equal(kept["theta"], rows[3])
    assert kept["counts"].tolist() == [1.0] * 5


def _two(folder: Path) -> tuple[Path, list[str]]:
    path = folder / "checkpoint.pt"
    for round in (3, 6):
        save(path, Checkpoint(round, STATE, {}, 0.0), "abcd")
    return path, []


def _resumed(path: Path, notes: list[str]) -> int | None:
    start = resume(path, STATE, "abcd", notes.append)
    return start and start.round


def _flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])


def test_the_one_before_is_used_with_one_line(tmp_path: Path) -> None:
    path, notes = _two(tmp_path)
    assert (_resumed(path, notes), notes) == (6, [])
    _flip(path)
    assert _resumed(path, notes) == 3
    (line,) = notes
    assert line == (
        f"checkpoint {path} is damaged (its checksum is not the one that was written), and now called "
        "checkpoint-damaged.pt: going on from the one before it, of round 3"
    )
    save(path, Checkpoint(4, STATE, {}, 0.0), "abcd")
    assert _resumed(tmp_path / "checkpoint-before.pt", notes) == 3  # no damaged file has taken its place
    drop_older(path)
    assert [left.name for left in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_the_one_before_is_used_if_a_kill_came_between_the_two_renamings(tmp_path: Path) -> None:
    path, notes = _two(tmp_path)
    path.unlink()
    assert _resumed(path, notes) == 3
    assert notes == [f"{path} is gone: going on from the checkpoint before it, of round 3"]
    assert _resumed(tmp_path / "other.pt", notes) is None


def test_two_damaged_checkpoints_are_one_line(tmp_path: Path) -> None:
    path, notes = _two(tmp_path)
    for damaged in (path, tmp_path / "checkpoint-before.pt"):
        _flip(damaged)
    with pytest.raises(Damaged, match=r"checkpoint\.pt is damaged .*; so is the one before it, checkpoint-before\.pt$"):
        resume(path, STATE, "abcd", notes.append)
    assert notes == []


def test_what_is_of_another_run_or_version_is_one_line(tmp_path: Path) -> None:
    path = _saved(tmp_path)
    for like, config_hash, said in (
        (STATE, "ffff", "is of config abcd, not ffff; overwrite=true starts the run anew"),
        (State(torch.zeros(3), STATE.counts), "abcd", "does not fit: state 'theta' is"),
        ((torch.ones(1), STATE), "abcd", "it lacks 0, 1.theta, 1.counts, as one of another version of fedcomp"),
    ):
        with pytest.raises(ValueError, match=said):
            load(path, like, config_hash)


def test_the_file_is_synced_before_its_renaming_and_the_folder_after(tmp_path: Path, monkeypatch) -> None:
    events = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(descriptor: int) -> None:
        events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def noted_replace(old: Path, new: Path) -> None:
        events.append("renaming")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    write_atomically(tmp_path / "status.json", b"{}")
    assert events == ["file", "renaming", "folder"]


@pytest.mark.parametrize(
    ("fails", "error", "said"),
    [
        ("fsync", OSError(5, "Input/output error"), "cannot write .*: Input/output error"),
        ("replace", OSError(28, "No space left on device"), "cannot write .*: No space left on device"),
        ("fsync", KeyboardInterrupt("by hand"), "by hand"),
    ],
)
def test_a_write_that_dies_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch, fails: str, error: BaseException, said: str
) -> None:
    path = tmp_path / "status.json"
    write_atomically(path, b"old")
    monkeypatch.setattr(os, fails, raising(error))
    with pytest.raises((ValueError, KeyboardInterrupt), match=said):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [left.name for left in tmp_path.iterdir()] == ["status.json"]


def test_a_checkpoint_that_the_disk_has_no_room_for_is_one_line(tmp_path: Path) -> None:
    """torch's writer says `unexpected pos` where the disk says why, and of the last bytes some may have room."""
    path, content = tmp_path / "checkpoint.pt", State(torch.zeros(10_000), torch.zeros(1))
    save(path, Checkpoint(1, content, {}, 0.0), "hash")
    limits, whole = resource.getrlimit(resource.RLIMIT_FSIZE), path.stat().st_size
    for room in (4096, whole - 100, whole - 1):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        try:
            with pytest.raises(ValueError, match=r"cannot write .*checkpoint.pt: File too large; free the place"):
                save(path, Checkpoint(2, content, {}, 0.0), "hash")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert [left.name for left in tmp_path.iterdir()] == ["checkpoint.pt"]
        assert load(path, content, "hash").round == 1


def test_what_a_killed_process_left_half_written_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint.pt.77.tmp").write_bytes(b"half")
    with owned(tmp_path):
        assert not (tmp_path / ".checkpoint.pt.77.tmp").exists()


def test_status_comes_back(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    for status in (Status("running", 3), Status("failed", 4, "ValueError: lr is 0")):
        write_status(tmp_path, status)
        assert read_status(tmp_path) == status
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


@looped("content", ["", "[]", '{"state": "running"}', '{"state": "asleep", "round": 1}'])
def test_what_is_no_status_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "status.json").write_text(content)
    with pytest.raises(ValueError, match=r"status\.json"):
        read_status(tmp_path)


def test_unwritable_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot write"):
        write_status(tmp_path / "file", Status("running", 0))
