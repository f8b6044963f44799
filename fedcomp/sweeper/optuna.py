"""A search over settings with Optuna, which learns from each batch of runs where the next should look.

Hydra's own Optuna plugin pins optuna<3, whose storage breaks with today's SQLAlchemy. This one uses Optuna's
ask-and-tell interface, which is kept stable, and adds what a search over long runs needs: it resumes from its file.
"""

import math
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, ClassVar, Literal, get_args

from fedcomp.core.first_line import first_line
from fedcomp.core.ranges import CheckedOptions, Whole
from fedcomp.objective.objectives import Direction, Objective
from fedcomp.objective.pareto import Ends, Pareto
from fedcomp.sweeper.contract import Choices, Evaluate, Interval, Report, Result, Space, unread
from fedcomp.sweeper.slots import Slot, slot

Count = Annotated[int, Whole()]
SLOT = "slot"
"""The attribute of a trial that says which command runs it."""
SEED_STEP = 1_000_003
"""Between the samplers' seeds of commands that share a study."""
NO_NUMBER = "the record holds no such number"
ADDRESS = re.compile(r"(?<= object) at 0x[0-9a-f]+")
"""Where an object of a plain class lies in memory, which is another place in each process."""
MAX_WITHOUT_VALUE = 2
"""After so many finished trials without a number for the objective no more are run."""


@dataclass(frozen=True)
class Optuna(CheckedOptions):
    """Proposes `n_jobs` points at a time until the study holds `n_trials`, failed ones included.

    Trials of an earlier session count: the same command resumes the study, and trials that were under
    way when it was stopped are run again (their runs resume from their checkpoints).
    """

    prefix: ClassVar[str] = "sweeper."
    folder: str
    study: str
    storage: str | None = None
    n_trials: Count = 20
    n_jobs: Count = 1
    sampler: Literal["tpe", "random", "nsga2"] = "tpe"
    startup: Count = 10
    seed: Annotated[int, Whole(0)] = 0
    shared: bool = False

    @property
    def _place(self) -> Path:
        return Path(self.folder).expanduser()

    def sweep(self, space: Space, evaluate: Evaluate, objective: Objective | Pareto, fixed: str = "") -> Report:
        """Search to the end, or until the objective is seen to find nothing; failed only if no trial has a value.

        An objective that cannot read the record of a finished run ends it, failed; the points come first next time.

        Raises:
            ValueError: no optuna; nothing to search; an objective that a search cannot take; the study's file holds
                another search, or another command works on it.
        """
        optuna = _optuna()
        _check_objective(objective)
        domains = {key: _distribution(optuna, domain) for key, domain in space.items()}
        if not domains:
            raise ValueError("sweeper=optuna has nothing to search: give interval(low,high) or a list of values")
        if "seed" in domains:
            raise ValueError("sweeper=optuna would choose the luckiest seed: give one seed")
        alone = self.storage is not None and not self.shared
        with nullcontext() if alone else slot(self._place, self.study, self.shared) as own:
            search = {"settings": fixed, "space": str(dict(space)), "objective": described(objective)}
            study = self._open(optuna, objective, search)
            study.sampler = self._sampler(optuna, len(study.trials), own.number if own else 0)
            while trials := self._next(optuna, study, domains, own):
                points = [tuple((key, str(trial.params[key])) for key in domains) for trial in trials]
                different = list(dict.fromkeys(points))  # nsga2 repeats points, and two runs cannot share a folder
                results = dict(zip(different, evaluate([dict(point) for point in different])))
                _tell(optuna, study, trials, [results[point] for point in points])
                if (broken := unread(list(results.values()))) is not None:
                    return Report(True, broken)
        return self._report(study, objective)

    def _next(self, optuna: Any, study: Any, domains: dict[str, Any], own: Slot | None) -> list[Any]:
        """The trials of the next batch; [] if no more are wanted."""
        with own.asking() if own else nullcontext():
            running = self._enqueue_unfinished(optuna, study, own) if own else 0
            left = self.n_trials - _ended(study) - running
            if _without_values(study):
                return []
            trials = [self._ask(study, domains) for _ in range(min(max(left, 0), self.n_jobs))]
            for trial in trials:
                if own:
                    trial.set_user_attr(SLOT, own.number)
            return trials

    def _open(self, optuna: Any, objective: Objective | Pareto, search: dict[str, str]) -> Any:
        """The study's file; its attributes say what it searches. Raises ValueError: it cannot be opened, or differs."""
        from sqlalchemy.exc import SQLAlchemyError  # which Optuna needs

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage: Any = self.storage
        if storage is None:
            journal = optuna.storages.journal
            storage = optuna.storages.JournalStorage(journal.JournalFileBackend(str(self._place / "study.log")))
        ends = objective.directions if isinstance(objective, Pareto) else (objective.direction,)
        try:
            study = optuna.create_study(storage=storage, study_name=self.study, directions=ends, load_if_exists=True)
        except (SQLAlchemyError, ImportError, ValueError) as error:
            where = f"sweeper.storage={self.storage}" if self.storage else f"study {self.study}"
            raise ValueError(f"{where} cannot be opened: {first_line(error)}") from error
        known = study.user_attrs
        for name, value in search.items():
            if ADDRESS.sub("", known.get(name, value)) != value:
                raise ValueError(
                    f"study {self.study} was begun with {name} {known[name] or 'left as they are'}, and this command "
                    f"has {value or 'them left as they are'}: give sweeper.study=<another name>"
                )
            if name not in known:
                study.set_user_attr(name, value)
        began = tuple(one.name.lower() for one in study.directions)
        if began != ends:
            raise ValueError(
                f"study {self.study} was begun to {began[0]}, and its objective now has direction={ends[0]!r}: "
                "give sweeper.study=<another name>"
            )
        return study

    def _sampler(self, optuna: Any, trials: int, place: int) -> Any:
        """The sampler. Its seed depends on the number of trials, else a resumed study would repeat its first points;
        and on the command's place among those that share the study, else these would all try the same.
        """
        seed, samplers = self.seed + trials + SEED_STEP * place, optuna.samplers
        if self.sampler == "random":
            return samplers.RandomSampler(seed=seed)
        if self.sampler == "nsga2":
            return samplers.NSGAIISampler(seed=seed, population_size=max(2, self.startup))
        return samplers.TPESampler(
            seed=seed, n_startup_trials=self.startup, constant_liar=self.n_jobs > 1 or self.shared
        )

    def _enqueue_unfinished(self, optuna: Any, study: Any, own: Slot) -> int:
        """Put the points of trials whose command is gone first in the queue; returns how many others still run."""
        running = 0
        for trial in study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.RUNNING]):
            if own.taken(trial.user_attrs.get(SLOT, own.number)):
                running += 1
            else:
                study.enqueue_trial(trial.params)
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        return running

    def _ask(self, study: Any, domains: dict[str, Any]) -> Any:
        try:
            return study.ask(fixed_distributions=domains)
        except ValueError as error:
            raise ValueError(f"study {self.study}: {error}; give sweeper.study=<another name>") from error

    def _report(self, study: Any, objective: Objective | Pareto) -> Report:
        trials = study.get_trials(deepcopy=False)
        scored = [trial for trial in trials if trial.values is not None]
        if not scored:
            message = f"none of {len(trials)} trials has a value"
            if any(trial.user_attrs.get("error") == NO_NUMBER for trial in trials):
                message += (
                    f": {type(objective).__name__} finds no number in their records (a regression has no "
                    "test/accuracy); take a dataset with classes, or objective=<your own> from --config-dir DIR"
                )
            return Report(True, message)
        if isinstance(objective, Pareto):
            found = objective.describe([Ends(*trial.values) for trial in scored])
            return Report(False, f"{found}; `fedcomp-report {quote(str(self._place.parent))}` draws and lists it")
        best = study.best_trial
        settings = " ".join(f"{key}={value}" for key, value in best.params.items())
        return Report(False, f"best of {len(scored)} trials: {objective.show(best.value)} with {settings}")


def described(objective: Objective | Pareto) -> str:
    """An objective in a text that is the same in every process: of a plain class its name and its attributes."""
    text = ADDRESS.sub("", str(objective))
    options = vars(objective) if text != str(objective) else {}
    return text + (f" with {options}" if options else "")


def _check_objective(objective: Objective | Pareto) -> None:
    """Raise ValueError for an objective of one's own that does not say which way is better, or cannot show a value."""
    if isinstance(objective, Pareto):
        return
    try:
        way, _ = objective.direction, objective.show
    except AttributeError as error:
        raise ValueError(
            f"{first_line(error)}: an objective of your own has direction = 'maximize' or 'minimize', and a method "
            "show(self, value), the number as text for people"
        ) from error
    if way not in get_args(Direction):
        raise ValueError(f"objective {type(objective).__name__} has direction={way!r}, but must maximize or minimize")


def _distribution(optuna: Any, domain: Choices | Interval) -> Any:
    if isinstance(domain, Choices):
        return optuna.distributions.CategoricalDistribution(domain.values)
    if domain.integer:
        return optuna.distributions.IntDistribution(int(domain.low), int(domain.high), log=domain.log)
    return optuna.distributions.FloatDistribution(domain.low, domain.high, log=domain.log)


def _ended(study: Any) -> int:
    """The number of trials that ended; one that was stopped has neither a value nor an error."""
    return sum(trial.values is not None or "error" in trial.user_attrs for trial in study.get_trials(deepcopy=False))


def _without_values(study: Any) -> bool:
    """Whether at least MAX_WITHOUT_VALUE trials have ended, all of them without a value of the objective."""
    errors = [trial.user_attrs.get("error") for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]
    return len(errors) >= MAX_WITHOUT_VALUE and set(errors) == {NO_NUMBER}


def _tell(optuna: Any, study: Any, trials: Sequence[Any], results: Sequence[Result]) -> None:
    for trial, result in zip(trials, results):
        values = result.value if isinstance(result.value, tuple) else (result.value,)
        if result.error is None and not any(map(math.isnan, values)):
            study.tell(trial, values)
        elif result.unread:  # the point is free again
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            study.enqueue_trial(trial.params)
        else:
            trial.set_user_attr("error", result.error or NO_NUMBER)
            study.tell(trial, state=optuna.trial.TrialState.FAIL)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ValueError("sweeper=optuna needs Optuna: pip install 'fedcomp[grids]'") from error
    return optuna
