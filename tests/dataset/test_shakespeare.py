"""Windows of roles: what is an input, a target, a role's own, held out and left out; and every wrong text."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedcomp.dataset import byte_tokens, shakespeare
from fedcomp.dataset.check import check
from fedcomp.dataset.shakespeare import ALPHABET
from tests.bare import DATA
from tests.looped import looped
from tests.refused import one_line_error

real = pytest.mark.data("tinyshakespeare.txt")


def speech(num: int, seed: int = 0) -> str:
    """Letters, with a blank at every seventh place."""
    letters = np.random.default_rng(seed).choice(list("abcdefghijklm"), num)
    letters[3::7] = " "
    letters[-1] = "z"
    return "".join(letters)


def write(folder: Path, roles: dict[str, str]) -> str:
    blocks = "\n\n".join(f"{name}:\n{text}" for name, text in roles.items())
    (folder / "tinyshakespeare.txt").write_text(blocks + "\n")
    return str(folder)


def words(tokens: torch.Tensor) -> str:
    return "".join(ALPHABET[token] for token in tokens.tolist())


def load(root, **options):
    return shakespeare.load(root, **({"min_chars": 81, "max_samples": None, "max_test": None} | options))


def test_the_alphabet_is_leafs():
    assert len(ALPHABET) == len(set(ALPHABET)) == 80
    assert (ALPHABET[0], ALPHABET[1], ALPHABET[11], ALPHABET[25], ALPHABET[79]) == ("\n", " ", "0", "A", "}")


def test_windows_targets_and_the_gap(tmp_path):
    text = speech(1000)
    dataset = load(write(tmp_path, {"ANN": text}))
    check(dataset)
    assert (dataset.input_shape, dataset.num_outputs, dataset.vocab_size, dataset.labels) == ((80,), 80, 80, None)
    num_train = 828  # floor(0.9 * 920)
    assert len(dataset.train) == num_train
    assert len(dataset.test) == 920 - num_train - 79
    inputs = dataset.normalise(dataset.train.x)
    assert inputs.dtype == dataset.input_dtype == torch.int64
    for start in (0, 1, 500, num_train - 1):
        assert words(inputs[start]) == text[start : start + 80]
        assert ALPHABET[dataset.train.y[start]] == text[start + 80]
    assert words(dataset.test.x[0]) == text[num_train + 79 : num_train + 159]
    last_target, first_test_target = num_train - 1 + 80, num_train + 79 + 80
    assert first_test_target - last_target == 80, "no character is a target of both"


def test_every_position_may_have_a_target(tmp_path):
    dataset = load(write(tmp_path, {"ANN": speech(1000)}), targets="all")
    check(dataset)
    assert dataset.target_shape == (80,)
    assert torch.equal(dataset.train.y[:, :-1], dataset.train.x[:, 1:].long())
    last = load(str(tmp_path)).train.y
    assert torch.equal(dataset.train.y[:, -1], last)


@pytest.mark.parametrize(("chars", "num_train", "num_test"), [(81, 1, 0), (160, 72, 0), (870, 711, 0), (871, 711, 1)])
def test_short_roles_train_without_being_tested(tmp_path, chars, num_train, num_test):
    root = write(tmp_path, {"ANN": speech(chars), "BOB": speech(2000)})
    dataset = load(root)
    assert int((dataset.train.owner == 0).sum()) == num_train
    assert len(dataset.test) == num_test + 1920 - 1728 - 79
    assert int(load(root, leaf_only=True).train.owner.max()) == int(num_test > 0)
    assert int(load(root, min_chars=chars + 1).train.owner.max()) == 0


def test_roles_are_owners_whose_blocks_are_joined(tmp_path):
    blocks = [f"BOB:\n{speech(1500)}", f"Ann:\n{speech(300, 1)}", "ANN:", f"BOB:\n  {speech(200, 2)}\n{speech(9, 3)}  "]
    (tmp_path / "tinyshakespeare.txt").write_text("\n\n".join(blocks))
    dataset = load(str(tmp_path))
    assert dataset.train.owner.unique().tolist() == [0, 1]
    assert dataset.test.owner.unique().tolist() == [1]  # Ann's text is too short to be tested
    bob = " ".join([speech(1500), speech(200, 2), speech(9, 3)])
    own = dataset.train.x[dataset.train.owner == 1]
    assert len(own) == int(0.9 * (len(bob) - 80))
    assert all(words(window) == bob[start : start + 80] for start, window in enumerate(own))


def test_case_and_deleted_symbols(tmp_path):
    text = speech(400)
    root = write(tmp_path, {"Ann": text, "ANN": text[:100] + "$" + text[100:], "BOB": speech(2000)})
    assert int(load(root).train.owner.max()) == 2
    joined = load(root, upper=True)
    assert int(joined.train.owner.max()) == 1
    assert "$" not in "".join(map(words, joined.train.x))


def test_at_most_so_many_windows_at_even_distances(tmp_path):
    root = write(tmp_path, {"ANN": speech(1080), "BOB": speech(2080)})
    every, some = load(root), load(root, max_samples=100, max_test=50)
    assert some.train.owner.bincount().tolist() == [100, 100]
    expected = every.train.x[:900][torch.arange(100) * 9]
    assert torch.equal(some.train.x[:100], expected)
    step = -(-len(every.test) // 50)
    assert torch.equal(some.test.x, every.test.x[::step])
    assert len(some.test) <= 50


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ANN:\nwhat\n\nno speaker here\n", r"txt, line 4: 'no speaker here' begins a block, but is no 'SPEAKER:'"),
        ("ANN:\nol\u00e9\n", r"line 2: '\u00e9' is not one of the 80 symbols .* dataset.delete='\$\u00e9'"),
        ("ANN:\n\nBOB:\n", r"has no blocks of a line SPEAKER: and its speech"),
        ("", r"has no blocks"),
        (f"ANN:\n{speech(300)}\n", r"no role of .* is long enough for a test window"),
        (b"\xff\xfe", r"is no text in UTF-8"),
        (None, r"no text at .*/tinyshakespeare.txt: `curl --create-dirs -o /.* https:"),
    ],
)
def test_wrong_texts(tmp_path, text, line):
    if text is not None:
        content = text if isinstance(text, bytes) else text.encode()
        (tmp_path / "tinyshakespeare.txt").write_bytes(content)
    with one_line_error(line):
        load(str(tmp_path))


@looped(
    "options, line",
    [
        ({"min_chars": 80}, r"dataset.min_chars=80 must be a whole number, 81 or more"),
        ({"train_fraction": 1.0}, r"dataset.train_fraction=1.0 must be a number in \(0, 1\)"),
        ({"max_samples": 0}, r"dataset.max_samples=0 must be a whole number, 1 or more, or null"),
        ({"max_test": 0}, r"dataset.max_test=0"),
        ({"window": 80, "stride": 0}, r"dataset.stride=0 must be a whole number, 1 or more"),
        ({"join": "tab"}, r"dataset.join=tab"),
        ({"after_block": 1}, r"dataset.after_block=1, but .* has 1 speeches: give fewer"),
        ({"role_as_label": True, "targets": "all"}, r"one target a window: leave out dataset.targets=all"),
        ({"targets": "next"}, r"dataset.targets=next must be one of last, all"),
    ],
)
def test_wrong_options(tmp_path, options, line):
    with pytest.raises(ValueError, match=line):
        load(write(tmp_path, {"ANN": speech(1000)}), **options)


@real
@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "roles", "train", "test"),
    [
        ({"min_chars": 160}, 232, 903_981, 85_511),
        ({"min_chars": 81}, 256, 904_638, 85_511),
        ({"min_chars": 160, "leaf_only": True}, 151, 876_233, 85_511),
        ({"min_chars": 160, "leaf_only": True, "train_fraction": 0.8}, 183, 793_901, 184_114),
        ({"min_chars": 160, "max_samples": 500, "max_test": 8000}, 232, 101_323, 7_774),
    ],
)
def test_counts_of_the_real_text(options, roles, train, test):
    dataset = load(str(DATA), **options)
    assert int(dataset.train.owner.max()) + 1 == roles
    assert (len(dataset.train), len(dataset.test)) == (train, test)


@real
@pytest.mark.slow
def test_a_bigram_table_predicts_287_of_a_thousand():
    dataset = load(str(DATA), min_chars=160)
    table = torch.zeros(80, 80)
    table.index_put_((dataset.train.x[:, -1].long(), dataset.train.y), torch.ones(len(dataset.train)), accumulate=True)
    right = table.argmax(1)[dataset.test.x[:, -1].long()] == dataset.test.y
    assert float(right.double().mean()) == pytest.approx(0.287, abs=5e-4)
    assert float((dataset.test.y == 1).double().mean()) == pytest.approx(0.188, abs=5e-4)


def test_bytes_of_roles_for_a_model_that_has_learnt_the_beginning(tmp_path):
    """Lines as they stand, in any symbols, from a speech on; windows side by side; no character trains and tests."""
    said = {"ANN": ["abc d\n é", *(f"line {number:03}" for number in range(60))], "BOB": ["x" * 300]}
    blocks = [f"{name}:\n{line}" for name in said for line in said[name]]
    (tmp_path / "tinyshakespeare.txt").write_text("\n\n".join(["ANN:\nold", "CAT:", "BOB:\nold", *blocks]))
    options = {"bytes": True, "after_block": 2, "join": "newline", "window": 16, "min_chars": 17, "targets": "all"}
    dataset = load(str(tmp_path), **options, stride=4, test_stride=16, train_fraction=0.8)
    check(dataset)
    assert dataset.vocab_size == dataset.num_outputs == 259
    assert dataset.input_shape == dataset.target_shape == (16,)
    whole = "\n".join(said["ANN"])
    own = dataset.train.x[dataset.train.owner == 0]
    num_windows = len(whole.encode()) - 16
    windows = [whole.encode()[start : start + 16] for start in range(0, int(0.8 * num_windows), 4)]
    assert [byte_tokens.decode(row) for row in own.numpy()] == [one.decode(errors="replace") for one in windows]
    assert torch.equal(own[:, 1:], dataset.train.y[dataset.train.owner == 0][:, :-1])
    tested = dataset.test.x[dataset.test.owner == 0]
    first = int(0.8 * num_windows) + 15
    windows = [whole[start - 1 : start + 15] for start in range(first, num_windows, 16)]
    assert [byte_tokens.decode(row) for row in tested.numpy()] == windows


def test_who_speaks(tmp_path):
    roles = {"ANN": speech(900), "BOB": speech(600, seed=1)}
    dataset = load(write(tmp_path, roles), role_as_label=True, bytes=True, window=32, stride=16, test_stride=32)
    check(dataset)
    assert (dataset.task, dataset.num_outputs, dataset.class_names) == ("classification", 2, ("ANN", "BOB"))
    for samples in (dataset.train, dataset.test):
        assert torch.equal(samples.y, samples.owner)
        assert samples.y.unique().tolist() == [0, 1]
        for window, role in zip(samples.x.numpy(), samples.y):
            assert byte_tokens.decode(window) in roles[dataset.class_names[role]]
    assert dataset.labels is not None


def test_a_heading_without_a_speech_is_none(tmp_path):
    (tmp_path / "play.txt").write_text("ANN:\n\n\nBOB:\nthis\nand that\n\nANN:\nyes")
    found = list(shakespeare.speeches(tmp_path / "play.txt"))
    assert found == [("BOB", 5, ["this", "and that"]), ("ANN", 9, ["yes"])]
