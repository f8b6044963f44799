"""`fedcomp-check compressor=NAME ...`: whether a part has what a part of fedcomp must have."""

import contextlib
import functools
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcomp.core.folders import part_name
from fedcomp.runtime.command import command, exit_status

GROUPS = ("compressor", "algorithm", "client", "server", "model", "dataset", "partition", "participation")
EPILOG = """\
examples:
  fedcomp-check compressor=topk compressor.fraction=0.03            one of fedcomp's, with options
  fedcomp-check --config-dir mine compressor=quarter                one of your own
  fedcomp-check --config-dir mine algorithm=fednova client.lr=0.01  an algorithm, with the local steps that it takes
  fedcomp-check --config-dir mine model=residual dataset=spirals    a model on the data that it is for, and the data
  fedcomp-check --config-dir mine partition=zipf participation=pairs num_clients=50    who has data, and who takes part

A compressor is checked as a codec and within algorithm=fedavg, a client (local solver) by its steps and within it, an
algorithm on a small federation with a perceptron and with BatchNorm, a partition on the data of dataset=. Some checks
are statistical: they fail beyond five standard errors.
exit status: 0 all checks passed, 1 some did not, 2 a wrong argument (one line on standard error)
"""
Job = tuple[str, Any, Sequence[Callable[[Any], None]]]


def main(argv: Sequence[str] | None = None) -> int:
    """Check the parts that the overrides choose. Returns the exit status."""
    parser = command(
        "fedcomp-check", "Check parts of a run, of fedcomp or of your own, such as a compressor or a model.", EPILOG
    )
    parser.add_argument("--config-dir", type=Path, metavar="DIR", help="a folder of your own configs and Python files")
    parser.add_argument("overrides", nargs="+", metavar="GROUP=NAME | OPTION=VALUE", help="as of fedcomp itself")
    given = parser.parse_intermixed_args(argv)
    return exit_status(lambda: _check(given.overrides, given.config_dir))


def _check(overrides: Sequence[str], config_dir: Path | None) -> int:
    chosen = [group for group in GROUPS if any(word.startswith(f"{group}=") for word in overrides)]
    if not chosen:
        raise ValueError(f"nothing to check: choose one of {', '.join(f'{group}=NAME' for group in GROUPS)}")
    from omegaconf import OmegaConf  # the rest takes seconds
    from rich.console import Console

    from fedcomp.check.report import CheckResult, results, show
    from fedcomp.config.compose import compose
    from fedcomp.config.instantiate import check_keys
    from fedcomp.provenance.checked import keep_passed
    from fedcomp.training.error_location import located

    config = compose(overrides, config_dir)
    check_keys(config)
    jobs = {"compressor": _compressor, "algorithm": _algorithm, "client": _client, "server": _server}
    jobs |= {"model": _model, "dataset": _dataset, "partition": _partition, "participation": _participation}
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 200)
    found: list[CheckResult] = []
    with _once(), located():
        for group in chosen:
            name = next(word for word in overrides if word.startswith(f"{group}=")).partition("=")[2]
            own: list[CheckResult] = []
            try:
                for part, case, checks in jobs[group](name, config):
                    own += results(part, case, checks)
            except Exception:  # of the next case's first round: what is known of those before is shown
                if found or own:
                    show([*found, *own], console)
                raise
            if own and all(one.example is None for one in own):
                keep_passed(group, OmegaConf.to_container(config[group], resolve=True))  # type: ignore[arg-type]
            found += own
    show(found, console)
    return int(any(one.example is not None for one in found))


@contextlib.contextmanager
def _once() -> Iterator[None]:
    """Within the block a warning of fedcomp's is said once: a part is made anew for every check."""
    said: set[str] = set()

    def first_time(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        new = text not in said
        said.add(text)
        return new

    log = logging.getLogger("fedcomp")
    log.addFilter(first_time)
    try:
        yield
    finally:
        log.removeFilter(first_time)


def _compressor(name: str, config: Any) -> Iterator[Job]:
    from fedcomp.check import codec, messages
    from fedcomp.config.instantiate import build_compressor

    own = codec.CodecCase.of_unknown(name, build_compressor(config.compressor).codec)
    yield name, own, (*codec.CHECKS, *messages.CHECKS, messages.check_other_process)
    yield from _within(name, config)


def _algorithm(name: str, config: Any) -> Iterator[Job]:
    from fedcomp.check import algorithm, world

    for case in _cases(config, {name: None, f"{name}, BatchNorm": world.with_batch_norm}):
        yield case.name, case, algorithm.CHECKS


def _within(name: str, config: Any, **modules: Any) -> Iterator[Job]:
    """Rounds of the algorithm with a part. They need not learn: sound noise may be too much, or steps too short."""
    from fedcomp.check import algorithm

    checks = [check for check in algorithm.CHECKS if check is not algorithm.check_learns]
    whole = f"{name} in {part_name(config.algorithm['_target_'])}"
    for case in _cases(config, {whole: None, **{f"{whole}, {more}": module for more, module in modules.items()}}):
        yield case.name, case, checks


def _client(name: str, config: Any) -> Iterator[Job]:
    from fedcomp.check import client, world
    from fedcomp.client import LocalSolver
    from fedcomp.config.instantiate import build_part

    within = list(_within(name, config, BatchNorm=world.with_batch_norm))  # what any run refuses is one line
    yield name, client.ClientCase(name, build_part(config.client, LocalSolver)), client.CHECKS
    yield from within


def _server(name: str, config: Any) -> Iterator[Job]:
    from fedcomp.check import server
    from fedcomp.config.instantiate import build_part
    from fedcomp.server import ServerOptimizer
    from fedcomp.server.trial import tried

    make = functools.partial(build_part, config.server, ServerOptimizer)
    tried(make())
    yield name, server.ServerCase(name, make), server.CHECKS


def _cases(config: Any, modules: dict[str, Any]) -> Iterator[Any]:
    """The configured algorithm with each of these modules; None: a perceptron, or the task's own model."""
    from fedcomp.check import world
    from fedcomp.check.algorithm import AlgorithmCase
    from fedcomp.config.factory import build_algorithm
    from fedcomp.config.instantiate import build_model_factory
    from fedcomp.model.contract import NETWORK, kind_made_by
    from fedcomp.wire import Ledger

    factory = build_model_factory(config.model)
    for name, module in modules.items():
        is_task = kind_made_by(factory) != NETWORK
        if is_task and module is not None:
            continue
        own = factory if is_task else module or world.mlp
        data = world.dataset()
        method = build_algorithm(config, world.model_of(own, data, train=data.inputs(data.train)))
        case = AlgorithmCase(name, method, module=own)
        simulation = case.simulation()
        try:
            state = simulation.init()
        except ValueError as error:
            if module is None:
                raise
            print(f"{name} is left out: {error}")
            continue
        metrics = simulation.test_metrics(0, state)
        simulation.round(0, state, Ledger())  # what any run refuses is one line
        _check_memory(case)
        yield case if case.metric in metrics else replace(case, metric=next(iter(metrics)))


def _check_memory(case: Any) -> None:
    """Raise ForgottenMemory if the method drops the memory of its compressor up, tried by signs with error feedback."""
    from fedcomp.compressor.compressor import Compressor, ErrorFeedback
    from fedcomp.compressor.quantisers.sign import Sign
    from fedcomp.simulation.round_check import ForgottenMemory
    from fedcomp.wire import Ledger

    if "uplink" not in case.algorithm.compressors:
        return
    try:
        simulation = replace(
            case, algorithm=replace(case.algorithm, uplink=Compressor(Sign(), ErrorFeedback()))
        ).simulation()
        simulation.round(0, simulation.init(), Ledger())
    except ForgottenMemory:
        raise
    except ValueError:  # a method that takes no such compressor
        return


def _model(name: str, config: Any) -> Iterator[Job]:
    from fedcomp.check import model, world
    from fedcomp.config.instantiate import build, build_model_factory

    data, factory = world.part_of(build(config.dataset)), build_model_factory(config.model)
    world.model_of(factory, data)  # one that is refused is so in one line
    yield f"{name} on {data.name}", model.case_of(name, factory, data, config.client.lr), model.CHECKS


def _dataset(name: str, config: Any) -> Iterator[Job]:
    from fedcomp.check import dataset
    from fedcomp.config.instantiate import build

    yield name, dataset.DatasetCase(name, functools.partial(build, config.dataset)), dataset.CHECKS


def _partition(name: str, config: Any) -> Iterator[Job]:
    from fedcomp.check import partition
    from fedcomp.check.again import key
    from fedcomp.config.instantiate import build, build_part
    from fedcomp.partition.contract import Partition, check_parts

    make, data = functools.partial(build_part, config.partition, Partition), build(config.dataset)
    case = partition.PartitionCase(f"{name} of {data.name}", make, data, config.num_clients)
    check_parts(case.split(key("first")), len(data.train), config.num_clients)  # what any run refuses is one line
    yield case.name, case, partition.CHECKS


def _participation(name: str, config: Any) -> Iterator[Job]:
    from fedcomp.check import participation
    from fedcomp.config.instantiate import build_part
    from fedcomp.participation.absent import WithoutAbsent
    from fedcomp.participation.cohorts import first_cohort
    from fedcomp.participation.contract import Participation

    def make() -> Participation:
        rule = build_part(config.participation, Participation)
        return rule.drawn if isinstance(rule, WithoutAbsent) else rule  # who is absent, no rule knows before

    case = participation.ParticipationCase(name, make, config.num_clients or 20, config.rounds)
    make().check(case.num_clients)
    first_cohort(make(), case.num_clients, 0)  # what any run refuses is one line
    yield name, case, participation.CHECKS
