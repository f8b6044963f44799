"""What a run knows about its accelerated forms, and that a form which is wrong leaves no trace in its numbers."""

import pytest
import torch

from fedcomp.core import accelerated
from fedcomp.core.accelerated import DeviceLost, Form, Verdicts, close, judged_by, plainly, same_bits

FORM = Form("halves", "wholes")


def _one(value: float):
    return lambda: (torch.full((3,), value),)


def _fails():
    raise RuntimeError("no such kernel\nat 0x0")


@pytest.mark.parametrize(
    ("found", "tolerance", "said"),
    [
        (_one(2.0), 0.0, None),
        (_one(2.0 + 1e-5), 1e-4, None),
        (_one(2.0 + 2.0**-22), 0.0, "other results (the difference has norm 4.13e-07, the plain result 3.46)"),
        (_one(0.0), 1e-4, "other results (the difference has norm 3.46, the plain result 3.46)"),
        (_one(float("nan")), 1e-4, "other results (the difference has norm nan, the plain result 3.46)"),
        (lambda: (torch.full((3, 1), 2.0),), 1e-4, "torch.float32 (3, 1) instead of torch.float32 (3,)"),
        (_fails, 0.0, "an error (no such kernel)"),
    ],
)
def test_a_form_is_used_where_it_agrees(caplog, found, tolerance, said) -> None:
    assert FORM.agrees("three", found, _one(2.0), tolerance) is (said is None)
    assert FORM.refused is (said is not None)
    lines = [record.message for record in caplog.records]
    assert lines == ([] if said is None else [f"halves are not used, but wholes instead: {said}, for three"])


def test_both_compute_once_and_a_refusal_is_for_all_variants(caplog) -> None:
    asked: list[str] = []

    def noted(name: str, value: float):
        return lambda: asked.append(name) or (torch.tensor([value]),)

    for _ in range(2):
        assert FORM.agrees("a", noted("form", 1), noted("plain", 1))
    assert asked == ["plain", "form"]
    assert FORM.agrees("a", noted("form", 1), noted("plain", 1), again=True)
    assert not FORM.agrees("b", noted("form", 1), noted("plain", 2))
    assert asked == ["plain", "form"] * 3
    assert not FORM.agrees("a", noted("form", 1), noted("plain", 1), again=True)
    assert (len(asked), len(caplog.records)) == (6, 1)
    assert Form("others", "x").agrees("a", noted("form", 1), noted("plain", 1))


def test_safe_and_plainly_turn_all_off() -> None:
    with judged_by(Verdicts(safe=True)) as verdicts:
        assert FORM.refused
        assert not FORM.agrees("a", _fails, _fails)
        assert verdicts.in_words() == ("safe=true: all off",)
    with plainly():
        assert not FORM.agrees("a", _fails, _fails)
    assert not FORM.refused


def test_a_resumed_run_uses_the_same_forms() -> None:
    """A refusal holds everywhere; what agreed on one machine has to agree on another one too."""
    written: list[bytes] = []
    with judged_by(Verdicts(machine="one")) as verdicts:
        verdicts.keep = lambda: written.append(verdicts.dump())
        assert FORM.agrees("a", _one(1), _one(1))
        assert not Form("wrong", "plain").agrees("a", _one(1), _one(2))
    assert len(written) == 2
    for machine in ("one", "other"):
        later = Verdicts(machine=machine)
        later.restore(written[-1])
        with judged_by(later):
            assert Form("wrong", "plain").refused
            assert later.found.get("halves: a") == ("agrees" if machine == "one" else None)
    assert later.in_words() == (f"wrong: refused, {later.found['wrong']}",)


def test_bits_and_norms() -> None:
    nan, zero = torch.tensor([float("nan"), 1.0]), torch.tensor([0.0])
    assert same_bits(nan, nan.clone())
    assert not same_bits(zero, -zero)
    assert close(nan, nan + 1e-6, 1e-4)
    assert not close(nan, torch.tensor([0.0, 1.0]), 1e-4)
    assert same_bits(torch.tensor(3), torch.tensor(3))


@pytest.mark.parametrize("lost", [False, True])
def test_a_device_that_is_lost_is_not_fallen_back_from(monkeypatch, lost) -> None:
    """The trial of a form fails, and so does all that follows it: one line, with the remedy."""
    real = torch.ones

    def ones(*size: int, device: object = None) -> torch.Tensor:
        if lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return real(*size)

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch, "ones", ones)
    if not lost:
        assert not FORM.agrees("a", _fails, _one(1))
        return
    with pytest.raises(DeviceLost, match=r"cannot be used .*no such kernel.*: run the same command with safe=true"):
        FORM.agrees("a", _fails, _one(1))
    assert accelerated._current.found == {}
