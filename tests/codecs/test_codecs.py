"""Codecs outside of a simulation: every compressor's bytes and memory; the hooks for DistributedDataParallel."""

import functools
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as torchs
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

import fedcomp.codecs as fc
from fedcomp.codecs import ddp
from fedcomp.compressor import Compressor
from fedcomp.core.folders import CONF
from fedcomp.core.pytree import flatten
from fedcomp.model.networks.cnn import lenet5
from fedcomp.wire import Ledger
from tests.codecs import ddp_process as ranked
from tests.docs.pages import block
from tests.forked import Forked
from tests.refused import refused

NAMES = sorted(path.stem for path in (CONF / "compressor").glob("*.yaml"))
X = torch.randn(13, 40, generator=torch.Generator().manual_seed(0))


def _close(name: str, **options: object) -> float:
    """||C(x) - x||^2 / ||x||^2 of one message, read by a receiver that has only its bytes."""
    message = fc.codec(name, sender=2, num_senders=3, **options).encode(X)
    assert len(message.data) == -(-message.bits // 8)
    received = fc.codec(name, num_senders=3, **options).decode(message.data, X.shape, step=0, sender=2)
    assert received.shape == X.shape
    return float((received - X).square().sum() / X.square().sum())


def test_every_compressor_passes_bytes_alone() -> None:
    for name in NAMES:
        assert math.isfinite(_close(name)), name
    assert _close("dense") == 0
    assert _close("eden", bits=4, scale="min_mse") < 0.011


def test_feedback_goes_on_from_its_state() -> None:
    whole = fc.codec("topk", fraction=0.05, feedback="error")
    first = whole.encode(X)
    again = fc.codec("topk", fraction=0.05, feedback="error")
    again.load_state_dict(whole.state_dict())
    assert whole.encode(X) == again.encode(X)
    assert whole.encode(X) != first  # the error of the messages before is in it
    fresh = fc.codec("topk", fraction=0.05, feedback="error")
    assert fresh.encode(X) == first


def test_a_memory_that_was_loaded_goes_where_the_tensors_are(monkeypatch: pytest.MonkeyPatch) -> None:
    first = fc.codec("topk", fraction=0.05, feedback="error")
    first.encode(X)
    again = fc.codec("topk", fraction=0.05, feedback="error")
    again.load_state_dict(first.state_dict())
    seen = []

    def encode(self: object, x: Tensor, memory: object, *_: object) -> None:
        seen.extend(tensor.device for tensor in (x, *flatten(memory).values()))
        raise InterruptedError

    monkeypatch.setattr(Compressor, "encode", encode)
    monkeypatch.setattr(Tensor, "isfinite", lambda _: torch.ones(1))  # tensors of `meta` have no values
    with pytest.raises(InterruptedError):
        again.encode(X.to("meta"))
    assert len(seen) > 1
    assert set(seen) == {torch.device("meta")}


def test_the_mean_of_many_is_decoded_jointly() -> None:
    senders = [fc.codec("randk_spatial", fraction=0.2, sender=number, num_senders=4) for number in range(4)]
    messages = {sender.sender: sender.encode(X).data for sender in senders}
    jointly = fc.codec("randk_spatial", fraction=0.2, num_senders=4).mean(messages, X.shape, step=0)
    alone = fc.codec("randk", fraction=0.2, num_senders=4).mean(messages, X.shape, step=0)
    assert float((jointly - X).square().sum()) < 0.8 * float((alone - X).square().sum())  # all vectors are alike
    weights = {0: 1.0, 1: 0.0, 2: 0.0, 3: 0.0}
    one = fc.codec("randk", fraction=0.2, num_senders=4).mean(messages, X.shape, step=0, weights=weights)
    first = fc.codec("randk", fraction=0.2, num_senders=4).decode(messages[0], X.shape, step=0, sender=0)
    assert torch.equal(one, first)


def test_a_memory_is_of_one_tensor_and_stays_finite() -> None:
    sender = fc.codec("topk", fraction=0.1, feedback="error")
    sender.encode(X)
    with pytest.raises(
        ValueError, match=f"remembers a tensor of {X.numel()} entries, and this one has 1: take a codec"
    ):
        sender.encode(X.reshape(-1)[:1])
    before = sender.state_dict()["sent"]
    with pytest.raises(ValueError, match="a value that is not finite"):
        sender.encode(X / 0)
    assert all(torch.equal(before[name], one) for name, one in sender.state_dict()["sent"].items())


def test_a_receiver_remembers_its_senders_and_no_others() -> None:
    receiver = fc.codec("randk_temporal", fraction=0.1)
    messages = {number: fc.codec("randk_temporal", fraction=0.1, sender=number).encode(X).data for number in (0, 1, 5)}
    receiver.mean({number: messages[number] for number in (0, 1)}, X.shape, step=0)
    with pytest.raises(ValueError, match="remembers 2 senders, and here is sender 5: give num_senders"):
        receiver.mean({number: messages[number] for number in (0, 5)}, X.shape, step=0)  # whose row was that of 1
    with pytest.raises(ValueError, match=f"remembers tensors of {X.numel()} entries, and these have 50: take a codec"):
        receiver.mean({0: fc.codec("randk_temporal", fraction=0.1).encode(X.reshape(-1)[:50]).data}, (50,), step=1)
    known = fc.codec("randk_temporal", fraction=0.1, num_senders=6)
    known.mean({number: messages[number] for number in (0, 5)}, X.shape, step=0)
    assert known.state_dict()["received"]["receiver"].shape == (6, X.numel())


def test_a_receiver_keeps_no_memory_of_the_senders() -> None:
    options: dict[str, Any] = {"fraction": 0.1, "feedback": "error"}
    message = fc.codec("topk", sender=2, **options).encode(X)
    receiver = fc.codec("topk", **options)
    mean = receiver.mean({2: message.data}, X.shape, step=0)
    state = receiver.state_dict()
    assert all(not tensor.numel() for tensor in state["received"].values())
    older = {**state, "received": {**state["received"], "sender": torch.zeros(3, X.numel())}}
    again = fc.codec("topk", **options)
    again.load_state_dict(older)
    assert torch.equal(again.mean({2: message.data}, X.shape, step=0), mean)


TOPK, QSGD = fc.codec("topk", fraction=0.1), fc.codec("qsgd")
SENT, CODES = TOPK.encode(X).data, QSGD.encode(X).data
BOTH = {0: CODES, 1: CODES}


def _topk(data: Any) -> None:
    fc.codec("topk", fraction=0.1).decode(data, X.shape, step=0, sender=0)


def _qsgd(data: bytes = CODES, shape: Any = X.shape, **options: Any) -> None:
    fc.codec("qsgd").decode(data, shape, **({"step": 0, "sender": 0} | options))


test_what_is_wrong_is_refused_in_a_line = refused(
    [
        *((lambda wrong=wrong: _topk(wrong), "row 0: ") for wrong in (SENT[:-2], SENT + b"\0\0", b"")),
        (lambda: _topk(TOPK.encode(X)), r"give message\.data"),
        (lambda: fc.codec("topkk"), "no codec 'topkk'; there are chunk_topk"),
        (lambda: fc.codec("topk", share=0.1), r"no option 'compressor\.share'"),
        (lambda: fc.codec("topk", predictor="ef21"), "take predictor=none"),
        (lambda: fc.codec("topk", fraction=0), "fraction"),
        *((lambda of=of: QSGD.mean(of, X.shape, step=0), "bytes of each sender by its number") for of in ([SENT], {})),
        *((lambda of=of: QSGD.encode(of), "must be a tensor of one entry or more") for of in ([1.0], X[:0])),
        (lambda: fc.codec("qsgd", sender=1.5), "sender=1.5 must be a whole number, 0 or more"),
        (lambda: fc.codec("qsgd", sender=5, num_senders=2), "sender=5 must be a whole number from 0 to 1"),
        (lambda: fc.codec("qsgd", seed="a"), "seed=a must be a whole number"),
        (lambda: fc.codec("qsgd", num_senders=0), "num_senders=0 must be a whole number"),
        (lambda: QSGD.encode(X.to(torch.complex64)), "must be real, and this tensor is torch.complex64"),
        (lambda: QSGD.encode(X, layers=[600, -80]), "must be sizes that add up to the tensor's 520 entries"),
        (lambda: _qsgd(layers=[10]), "layers=.10. must be sizes that add"),
        (lambda: _qsgd(step=-1), "step=-1 must be a whole number"),
        (lambda: _qsgd(sender="0"), "sender=0 must be a whole number"),
        (lambda: _qsgd(shape=520), "shape=520 must be sizes of 1 or more"),
        (lambda: _qsgd(shape=(-1,)), "must be sizes of 1 or more: give tensor.shape"),
        (lambda: QSGD.mean(BOTH, X.shape, step=0, weights={0: 1.0}), "weights lack sender 1"),
        (lambda: QSGD.mean(BOTH, X.shape, step=0, weights={0: 1.0, 1: 1.0}), "messages sum to 2, and must to 1"),
        (lambda: QSGD.load_state_dict({}), "no state of a codec, it lacks dim, received, rows, sent, step"),
    ]
)


def test_lengths_that_the_layout_decides() -> None:
    assert fc.codec("sign").length((20, 3)) == -(-(23 + 64) // 8)
    assert fc.codec("qsgd").length((20, 3)) is None


def test_the_example_of_the_page(capsys) -> None:
    exec(block("docs/codecs.md", "python", "sender.encode"), {})
    assert capsys.readouterr().out == "398 50\n"


DIM = 64 * 16 + 16 + 16 * 10 + 10


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of three processes found."""
    folder = tmp_path_factory.mktemp("ddp")
    running = [
        Forked(functools.partial(ranked.main, rank, folder), [], folder, folder / f"shown {rank}")
        for rank in range(ranked.SIZE)
    ]
    assert [one.wait(300) for one in running] == [0] * len(running), [one.shown() for one in running]
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(ranked.SIZE)]


@pytest.mark.thorough
def test_every_codec_gives_the_model_of_the_simulation_bit_for_bit(together) -> None:
    for name, options in ranked.GATHERED.items():
        sim, ledger = ranked.simulation(name, **options), Ledger()
        state = sim.init()
        for step in range(ranked.GATHERED_STEPS):
            state, _ = sim.round(step, state, ledger)
            for found in together:
                assert torch.equal(found[name][0][step], state.theta), f"{name}, step {step}"
        bits = sum(found[name][1].bits for found in together)
        assert bits == ledger.metrics(DIM)["bits/uplink"], name


@pytest.mark.thorough
def test_bytes_carried_are_the_bits_and_what_fills_them_up(together) -> None:
    steps = ranked.GATHERED_STEPS
    for found in together:
        for name in ("dense", "sign", "eden", "randk"):
            count = found[name][1]
            assert count.carried == steps * -(-count.bits // steps // 8), name
        count = found["qsgd"][1]  # of varying length: eight bytes for each length, and up to the longest
        assert count.bits / 8 + 8 * steps <= count.carried


@pytest.mark.thorough
def test_other_hooks_learn_and_agree(together) -> None:
    for name in ("buckets", "gradients", "shared_randk", "powersgd"):
        theta, count, losses, _ = together[0][name]
        assert losses[-1] < losses[0] - 0.1, name
        assert all(torch.equal(found[name][0], theta) for found in together), name
        assert count.bits > 0, name
    assert together[0]["buckets"][3] > 1  # codecs: it had several buckets


@pytest.mark.thorough
def test_a_hook_goes_on_from_its_state(together) -> None:
    for found in together:
        for whole, again in found["resumed"]:
            assert torch.equal(whole, again)


STEPS = 4
"""torch's hook sends the gradients of the first two as they are."""


@pytest.fixture
def alone() -> Iterator[None]:
    """A group of this process without threads, torch's stand-in: those of gloo have aborted on a busy machine."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Bucket:
    """A bucket of gradients, as DDP gives it to a hook; the last one of a step."""

    def __init__(self, parameters: list[Tensor], gradients: list[Tensor], last: bool) -> None:
        self._parameters, self._gradients, self._last = parameters, gradients, last

    def buffer(self) -> Tensor:
        return torch.cat([gradient.flatten() for gradient in self._gradients])

    def parameters(self) -> list[Tensor]:
        return self._parameters

    def gradients(self) -> list[Tensor]:
        return self._gradients

    def is_last(self) -> bool:
        return self._last


def test_what_was_not_sent_is_kept_while_buckets_change_and_processes_go_on(alone) -> None:
    """All gradients so far are what was sent, and the memory. Draws of a sender and a receiver must agree for that."""
    model = nn.Sequential(nn.Linear(9, 7), nn.Linear(7, 5))
    parameters, generator = list(model.parameters()), torch.Generator().manual_seed(0)
    coder = fc.compressor("randk", fraction=0.2, scale="none", feedback="error")
    state = ddp.HookState(model, coder)
    given, sent = ([torch.zeros_like(parameter) for parameter in parameters] for _ in range(2))
    whole, parts = [[3, 2, 1, 0]], [[3, 2], [1, 0]]  # as DDP has them in a process's first step, and in the others
    for step, buckets in enumerate([whole, parts, parts, whole, parts, parts]):
        if step == 3:
            saved = state.state_dict()
            state = ddp.HookState(model, coder)
            state.load_state_dict(saved)
        for numbers in buckets:
            gradients = [torch.randn(parameters[number].shape, generator=generator) for number in numbers]
            for number, gradient in zip(numbers, gradients):
                given[number] += gradient
            own: Any = Bucket([parameters[number] for number in numbers], gradients, numbers is buckets[-1])
            ddp.all_gather_hook(state, own).wait()  # puts what was sent in the gradients' place
            for number, gradient in zip(numbers, gradients):
                sent[number] += gradient
    left = {numbers: state.codec(numbers).state_dict()["sent"]["sender"][0] for numbers in ((2, 3), (0, 1))}
    for numbers, memory in left.items():
        wanted = torch.cat([(given[number] - sent[number]).flatten() for number in numbers])
        assert torch.allclose(memory, wanted, atol=1e-5)


def _floats(model: nn.Module, x: Tensor, state: object, hook: object, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many floats are all-reduced in each step."""
    parallel = DistributedDataParallel(model)
    parallel.register_comm_hook(state, hook)
    plain, sizes = dist.all_reduce, list[int]()

    def counted(tensor: Tensor, *arguments: object, **options: object) -> object:
        assert tensor.dtype == torch.float32
        sizes.append(tensor.numel())
        done: torch.futures.Future[list[Tensor]] = torch.futures.Future()
        done.set_result([tensor])  # the sum over one process
        return SimpleNamespace(get_future=lambda: done)

    monkeypatch.setattr(dist, "all_reduce", counted)
    found = []
    for _ in range(STEPS):
        sizes.clear()
        parallel(x).square().sum().backward()
        found.append(sum(sizes))
    monkeypatch.setattr(dist, "all_reduce", plain)
    return found


@pytest.mark.parametrize(("rank", "least"), [(1, 2), (2, 2), (4, 1)])
def test_powersgd_sends_as_many_floats_as_torchs_hook(alone, monkeypatch, rank: int, least: float) -> None:
    """`least`: torch's `min_compression_rate`, 2 by default. Ours is 1: a difference for conv1 of rank 4."""
    perceptron = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    for model, x in ((lenet5((1, 28, 28), 10), torch.randn(4, 1, 28, 28)), (perceptron, torch.randn(4, 64))):
        state = ddp.HookState(model, rank=rank)
        ours = _floats(model, x, state, ddp.powersgd_hook, monkeypatch)
        assert set(ours) == {state.count.bits // 32 // STEPS}
        options = {"matrix_approximation_rank": rank, "start_powerSGD_iter": 2, "min_compression_rate": least}
        theirs = _floats(model, x, torchs.PowerSGDState(None, **options), torchs.powerSGD_hook, monkeypatch)
        assert theirs[2:] == ours[2:]
        assert ours[-1] < sum(parameter.numel() for parameter in model.parameters()) / 2
