"""Count sketches: linear, unbiased for odd rows, by the hashes of the run."""

import pytest
import torch
from torch import Tensor

from fedcomp.compressor.projections.count_sketch import CountSketch
from fedcomp.random.keys import Key
from fedcomp.wire import SharedKnowledge
from tests.looped import looped


def _known(dim: int, num: int = 1, *name: int) -> SharedKnowledge:
    return SharedKnowledge(Key(("sketch test", *name)), torch.arange(num), (dim,))


def _estimates(codec: CountSketch, x: Tensor, num: int) -> Tensor:
    """[num, D] with hashes of their own."""
    known = [_known(len(x), 1, draw) for draw in range(num)]
    return torch.cat([codec.estimates(codec.sketch(x[None], one), one) for one in known])


def test_sketches_are_linear() -> None:
    x = torch.randn(3, 500, generator=torch.Generator().manual_seed(0))
    codec, known, weight = CountSketch(5, 40), _known(500, 3), torch.tensor([2.0, -0.5, 0.3])
    cells = codec.sketch(x, known)
    torch.testing.assert_close(weight @ cells, codec.sketch((weight @ x)[None], known)[0], rtol=0, atol=1e-5)


@looped("rows, least, most", [(1, 0.9, 1.1), (3, 0.38, 0.46), (5, 0.24, 0.30)])
def test_estimates_are_unbiased_and_as_precise_as_their_rows(rows: int, least: float, most: float) -> None:
    x = torch.randn(2048, generator=torch.Generator().manual_seed(1))
    off = _estimates(CountSketch(rows, 256), x, 60) - x
    variance = float(off.square().mean()) * 256 / float(x.square().sum())
    assert least < variance < most
    # Over entries and draws; a lower median of four rows has -0.29.
    scaled = off * 256**0.5 / x.norm()
    assert abs(float(scaled.mean())) < 5 * float(scaled.mean(1).std()) / 60**0.5 + 1e-3


# (r, c): mean recall of the ten largest, and the standard deviation of one draw's.
def test_entries_that_collide_add_up_with_their_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    signs = torch.tensor([1.0, -1.0, 1.0])
    monkeypatch.setattr(CountSketch, "_hashes", lambda *_: (torch.tensor([0, 0, 1]), signs))
    codec, x = CountSketch(3, 2), torch.tensor([[5.0, 2.0, 7.0]])
    assert codec.estimates(codec.sketch(x, _known(3)), _known(3)).tolist() == [[3.0, -3.0, 7.0]]


def test_a_seed_of_the_run_gives_all_messages_the_same_hashes() -> None:
    codec, x = CountSketch(3, 20), torch.randn(2, 100, generator=torch.Generator().manual_seed(3))
    one, other = (SharedKnowledge(Key((n,)), torch.arange(2) + n, (100,), seed=torch.tensor([9])) for n in (1, 2))
    assert torch.equal(codec.sketch(x, one), codec.sketch(x, other))
    assert not torch.equal(codec.sketch(x, _known(100, 2, 1)), codec.sketch(x, _known(100, 2, 2)))


def test_touched_cells_are_those_of_the_entries() -> None:
    codec, known = CountSketch(3, 50), _known(400)
    x = torch.zeros(1, 400)
    x[0, [3, 77]] = torch.tensor([1.5, -4.0])
    assert torch.equal(codec.touched(torch.tensor([3, 77]), known), codec.sketch(x, known)[0] != 0)


def test_a_sketch_that_compresses_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    CountSketch(5, 20).check_dim(100)
    assert "a sketch of 5 x 20 cells for 100 entries compresses nothing" in caplog.text
