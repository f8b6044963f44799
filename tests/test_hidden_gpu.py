"""Tests that do not ask for a GPU compute on the CPU, also on a machine that has one."""

import os

import pytest
import torch

from fedcomp.runtime.process_settings import pick_device
from tests.hidden_gpu import hide_gpu


def test_a_test_that_is_not_marked_sees_no_gpu() -> None:
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert not torch.cuda.is_available()
    assert pick_device("auto").type == "cpu"


def test_a_gpu_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert pick_device("auto").type == "cuda"
    hide_gpu(monkeypatch)
    assert pick_device("auto").type == "cpu"
    with pytest.raises(ValueError, match="0 GPUs are visible here"):
        pick_device("cuda")


@pytest.mark.gpu
def test_one_that_is_marked_sees_what_there_is() -> None:
    assert torch.cuda.is_available()
    assert pick_device("auto").type == "cuda"
