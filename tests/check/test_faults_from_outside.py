"""`fedcomp-check` finds faults of parts in a folder outside the repository, and passes sound ones."""

from pathlib import Path

import pytest

from fedcomp.api import run
from fedcomp.check import report
from fedcomp.cli.check import main
from fedcomp.config.compose import compose
from fedcomp.core.folders import CONF
from fedcomp.provenance.checked import unchecked
from fedcomp.provenance.code import source
from tests.looped import looped
from tests.outside import write_files
from tests.thorough import thorough

CODEC = """
from dataclasses import dataclass

import torch

from fedcomp.compressor import Codec
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float

LAST, FIRST = [], {}


@dataclass(frozen=True)
class Faulty(Codec):
    fault: str
    unbiased = True

    def encode(self, x, common, sender_key):
        LAST[:] = [x.clone()]
        FIRST.setdefault((common.key, tuple(common.ids.tolist()), common.dim), x.clone())
        scale = Field(x.abs().mean(1, keepdim=True), Float())
        return Payload({"values": Field(x, Float())} if self.fault == "biased" else {"scale": scale})

    def decode(self, payload, common):
        if self.fault == "biased":
            return 0.9 * payload.expect(values=common.dim)[0]
        (scale,) = payload.expect(scale=1)
        if self.fault == "variable":
            return LAST[0]
        found = FIRST.get((common.key, tuple(common.ids.tolist()), common.dim))
        return scale.expand(-1, common.dim) if found is None else found
"""
ALGORITHM = """
from dataclasses import dataclass, fields, replace

import torch

from fedcomp.algorithm.fedavg import FedAvg

FIRST = {}


@dataclass(frozen=True)
class Peeking(FedAvg):
    peek: str = "none"

    def round(self, state, cohort, ctx):
        held = ctx.clients.map_clients(first_feature, cohort, torch.zeros(cohort.size, 1))  # of every client's samples
        method = FedAvg(**{field.name: getattr(self, field.name) for field in fields(FedAvg)})
        if self.peek == "client":  # what a client sends depends on the samples of the others
            client = replace(self.client, lr=self.client.lr * (1 + 0.1 * float(held.tanh().mean())))
            method = replace(method, client=client)
        new, metrics = method.round(state, cohort, ctx)
        if self.peek == "old":  # what the compressor remembers is dropped
            new = replace(new, uplink=state.uplink)
        if self.peek == "typo":
            metrics = self.metric
        if self.peek == "global":  # a memory outside of the state: of the first network alone
            metrics = {**metrics, "moved": (state.theta - FIRST.setdefault("theta", state.theta)).norm()}
        if self.peek == "accuracy":
            metrics = {**metrics, "test/accuracy": held.mean()}
        return (replace(new, theta=new.theta + 1e-3 * held.mean()) if self.peek == "server" else new), metrics


def first_feature(data, row):
    return row + data.take(torch.zeros_like(data.ids)[:, None])[0].flatten(1).mean(1, keepdim=True)
"""
DATASET = """
import torch

from fedcomp.dataset.contract import Dataset, Samples


def load(fault: str = "none") -> Dataset:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randint(0, 256, (200, 5), generator=generator).float(), torch.arange(200) % 3
    train = Samples(x[:150], y[:150])
    test = train if fault == "leaked" else Samples(x[150:], y[150:])
    return Dataset("bytes", train, test, "classification", 3, std=torch.ones(1) if fault == "raw" else x.std(0))
"""
MODEL = """
import torch


class Squeezing(torch.nn.Linear):
    def __init__(self, input_shape, num_outputs):
        super().__init__(input_shape[0], num_outputs)

    def forward(self, x):
        return super().forward(x).squeeze()
"""
OTHERS = """
from dataclasses import dataclass

import torch

from fedcomp.client.sgd import Sgd
from fedcomp.participation.uniform import Uniform
from fedcomp.partition.iid import IID
from fedcomp.random.keys import Key
from fedcomp.server.sgd import Sgd as ServerSgd


@dataclass(frozen=True)
class Alike(Uniform):
    def sample(self, key, importance, round_index=0):
        return super().sample(key, torch.ones_like(importance), round_index)


class Nobody(Uniform):
    def sample(self, key, importance, round_index=0):
        return None


class Twice(IID):
    def split(self, labels, num_samples, num_clients, key, owners=None):
        return super().split(labels, num_samples, 1, key, owners) * num_clients


@dataclass(frozen=True)
class OneForAll(IID):
    def split(self, labels, num_samples, num_clients, key, owners=None):
        return super().split(labels, num_samples, num_clients, Key(), owners)


@dataclass(frozen=True)
class Backwards(ServerSgd):
    def step(self, update, slots, theta):
        return super().step(-update, slots, theta)


@dataclass(frozen=True, kw_only=True)
class Unhooked(Sgd):
    def hook(self, data, start, grad_fn):
        return None
"""
CONFIGS = {
    "others.py": OTHERS,
    "participation/alike.yaml": "defaults: [uniform, _self_]\n_target_: others.Alike\n",
    "participation/nobody.yaml": "defaults: [uniform, _self_]\n_target_: others.Nobody\n",
    "partition/twice.yaml": "defaults: [iid, _self_]\n_target_: others.Twice\n",
    "partition/one_for_all.yaml": "defaults: [iid, _self_]\n_target_: others.OneForAll\n",
    "server/backwards.yaml": "defaults: [sgd, _self_]\n_target_: others.Backwards\n",
    "client/unhooked.yaml": "defaults: [sgd, _self_]\n_target_: others.Unhooked\n",
    "model/squeezing.yaml": "_target_: squeezing_net.Squeezing\n_partial_: true\n",
    "squeezing_net.py": MODEL,
    "compressor/faulty.yaml": "_target_: faulty_codec.Faulty\nfault: none\nfeedback: none\n",
    "algorithm/peeking.yaml": (CONF / "algorithm/fedavg.yaml")
    .read_text()
    .replace("fedcomp.algorithm.fedavg.FedAvg", "peeking.Peeking")
    + "peek: none\n",
    "dataset/bytes.yaml": "_target_: bytes_data.load\nfault: none\n",
    "faulty_codec.py": CODEC,
    "peeking.py": ALGORITHM,
    "bytes_data.py": DATASET,
}


@pytest.fixture
def mine(outside: Path) -> str:
    """A folder of one's own parts below the current one."""
    return write_files(outside / "mine", CONFIGS).name


QUICK = ("rounds=1", "num_clients=2", "pictures=false", "quiet=true", "overwrite=true", "device=cpu")
FOUND = {
    "compressor=faulty compressor.fault=variable": "faulty, receiver: vectors of 1 entries",
    "compressor=faulty compressor.fault=cache": "faulty, other process: faulty, a vector of 1 entries: x [0, 0] is",
    "compressor=faulty compressor.fault=biased": "faulty, unbiased: the mean of 4 draws of entry",
    "algorithm=peeking algorithm.peek=server": "peeking, server end: round 1: the model test.theta depends on samples",
    "algorithm=peeking algorithm.peek=client": "peeking, client ends: round",
    "dataset=bytes dataset.fault=raw": "bytes, normalisation: inputs have mean",
    "dataset=bytes dataset.fault=leaked": "bytes, held out: 100.0% of the test samples are training samples too",
    "participation=alike rounds=1": "alike, weights: round 0: clients",
    "partition=one_for_all": "one_for_all of digits, keys: two keys deal the same samples",
    "server=backwards": "backwards, learns: 100 updates of 0.1 (optimum - model) bring the distance from",
    "client=unhooked": "unhooked, hook: with an algorithm's Hook that gives ones",
}
SLOWLY = [words for words in FOUND if "compressor" in words or "client" in words]
"""Behind a process of their own, or with rounds of two networks; in tests/conformance these faults are planted too."""


@pytest.mark.parametrize("overrides", [*(words for words in FOUND if words not in SLOWLY), *thorough(SLOWLY)])
def test_a_fault_is_found(mine: str, overrides: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config-dir", mine, *overrides.split()]) == 1
    assert f"FAILED {FOUND[overrides]}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "overrides",
    [
        *("algorithm=peeking", "dataset=bytes", "algorithm=mean_estimation"),
        "server=adam partition=iid participation=bernoulli rounds=1",
        *thorough(["compressor=qsgd model=linear", "client=gd"]),
    ],
)
def test_a_sound_part_passes(mine: str, overrides: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config-dir", mine, *overrides.split()]) == 0
    assert "FAILED" not in capsys.readouterr().out


def test_a_run_says_which_part_of_ones_own_has_not_passed(mine: str, monkeypatch, caplog) -> None:
    def said() -> str:
        source.cache_clear()  # as in a new process
        caplog.clear()
        with caplog.at_level("INFO", "fedcomp"):
            run(compose(["compressor=faulty", "compressor.fault=biased", *QUICK], mine))
        return caplog.text

    line = "compressor: faulty_codec.Faulty has not passed fedcomp-check as its code is now, and a simulation"
    for example, status in (("it is not", 1), (None, 0)):
        assert line in said()
        monkeypatch.setattr(report, "results", lambda *_, found=example: [report.CheckResult("", "", "", found)])
        assert main(["--config-dir", mine, "compressor=faulty"]) == status
    assert "has not passed" not in said()
    Path(mine, "faulty_codec.py").write_text(f"{CODEC}# and more")
    assert line in said()


def test_it_names_a_feedback_of_ones_own_and_not_the_codec(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(mine)
    dense = {"_target_": "fedcomp.compressor.dense.Dense"}
    config = {"compressor": {**dense, "feedback": {"_target_": "faulty_codec.Own"}}, "downlink": dense}
    (line,) = unchecked({**config, "algorithm": {}, "client": {}, "participation": {}})
    assert line.startswith("compressor: faulty_codec.Own has not passed fedcomp-check")


@looped(
    "peek, words",
    [
        ("old", "the state after it has the compressor's memory from before"),
        ("accuracy", "metric cannot be called test"),
    ],
)
def test_what_any_run_refuses_is_one_line(mine: str, peek: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config-dir", mine, "algorithm=peeking", f"algorithm.peek={peek}"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert words in said.err


def test_a_warning_is_said_once(mine: str, caplog: pytest.LogCaptureFixture) -> None:
    main(["--config-dir", mine, "model=squeezing"])
    assert len([one for one in caplog.records if "takes no batch of one sample" in one.getMessage()]) == 1


@looped(
    "overrides",
    [
        *("participation=uniform num_clients=9", "partition=one_each", "participation=absent"),
        *("participation=nobody", "partition=twice"),
    ],
)
def test_what_a_part_refuses_is_one_line(mine: str, overrides: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config-dir", mine, *overrides.split()]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_wrong_arguments_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rounds=3"]) == 2
    assert capsys.readouterr().err.startswith("error: nothing to check: choose one of compressor=NAME")


def test_an_error_in_ones_own_code_is_its_line(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config-dir", mine, "algorithm=peeking", "algorithm.peek=typo"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == "error: AttributeError: 'Peeking' object has no attribute 'metric'"
    assert second.startswith(f'  File "{Path(mine, "peeking.py").resolve()}", line ')
    assert second.endswith("in round: metrics = self.metric")


def test_what_was_found_before_an_error_is_shown(mine: str, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(report, "results", lambda part, *_: [report.CheckResult(part, "", "", "it is not")])
    assert main(["--config-dir", mine, "algorithm=peeking", "algorithm.peek=global"]) == 2
    said = capsys.readouterr()
    assert "FAILED peeking, : it is not" in said.out
    assert said.err.startswith("error: RuntimeError: The size of tensor")
