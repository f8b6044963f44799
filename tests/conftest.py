"""Fixtures for all tests: one torch thread, no GPU unless a test is marked `gpu`, the command line in this process."""

import gc

gc.disable()  # until all tests are imported: that leaves hardly any garbage, and takes a third less time

import copy
import functools
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra

from fedcomp.check import world
from fedcomp.core.accelerated import Verdicts, judged_by
from fedcomp.model.contract import AnyModel
from fedcomp.random.keys import Key
from fedcomp.random.numba_jit import _CompileNotice
from tests.hidden_gpu import hide_gpu
from tests.quick_compose import compose_quickly

PLUGINS = ("bare", "outside", "trusting", "records.synthetic_runs", "tracking.wandb_pieces")
pytest_plugins = [f"tests.{name}" for name in PLUGINS]

torch.set_num_threads(1)
# Autograd counts devices at its first gradient. Were a test's fake GPU among them, it would start threads, and no
# process that is forked later could compute a gradient.
torch.ones(1, requires_grad=True).sum().backward()
_CompileNotice.said = True  # what a test logs does not depend on whether it is the first to compile

for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:  # pytest was started by nohup or in the background of a script
        signal.signal(_number, _handler)


def pytest_collection_finish() -> None:
    """From here on garbage is collected, among what the tests make and not among modules; seldom, as it is little."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True)
def _no_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the GPU, which `device=auto` would choose, except from tests marked `gpu`; skip these if there is none."""
    if request.node.get_closest_marker("gpu") is None:
        hide_gpu(monkeypatch)
    elif not torch.cuda.is_available():
        pytest.skip("there is no GPU")


@pytest.fixture(autouse=True)
def _own_verdicts() -> Iterator[None]:
    """Accelerated forms prove themselves anew in each test."""
    with judged_by(Verdicts()):
        yield


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run waits for its disk some twenty times, which takes longer than its rounds; no test loses power."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="session", autouse=True)
def _quick_compose() -> Iterator[None]:
    """Hydra composes a choice of groups once for all tests of this process."""
    with pytest.MonkeyPatch.context() as patch:
        compose_quickly(patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def _built_once() -> Iterator[None]:
    """The two networks of the checks are built once for all tests of this process; each simulation has a copy."""
    build = world.build
    built = functools.cache(lambda module, *given, **options: build(module, *given, **options))

    def copied(module: Any, key: Key, *given: Any, **options: Any) -> AnyModel:
        *shape, _ = given  # they do not look at the training samples
        known = module is world.mlp or module is world.with_batch_norm
        return copy.deepcopy(built(module, key, *shape, **options)) if known else build(module, key, *given, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "build", copied)
        yield


@pytest.fixture
def fedcomp(fedcomp_with_pictures: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`fedcomp("rounds=2", ...)`, as `fedcomp_with_pictures`, without pictures, which are slow."""
    monkeypatch.setattr("fedcomp.training.writer.plot_curve", lambda *_: None)
    monkeypatch.setattr("fedcomp.training.writer.plot_slowest", lambda *_: None)
    monkeypatch.setattr("fedcomp.training.setup.plot_partition", lambda *_: None)
    return fedcomp_with_pictures


@pytest.fixture
def fedcomp_with_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`fedcomp("rounds=2", ...)` runs the command line with outputs in `tmp_path`; returns the exit status."""
    from fedcomp.cli.main import main

    def call(*arguments: str) -> int:
        GlobalHydra.instance().clear()
        outputs = [] if any("output_root" in argument for argument in arguments) else [f"output_root={tmp_path}"]
        monkeypatch.setattr(sys, "argv", ["fedcomp", *arguments, *outputs])
        with monkeypatch.context() as patch:
            if not any(re.match("experiment|launcher|sweeper|hydra", argument) for argument in arguments):
                patch.setattr(Hydra, "get_mode", lambda *_, **__: None)  # it composes everything to read hydra.mode
            try:
                main()
            except SystemExit as end:
                return int(end.code or 0)
        return 0

    return call
