"""A search over settings with Optuna, which learns from each batch of runs where the next should look.

Hydra's own Optuna plugin pins optuna<3, whose storage breaks with today's SQLAlchemy. This one uses Optuna's
ask-and-tell interface, which is kept stable, and adds what a search over long runs needs: it resumes from its file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcomp.objective.objectives import Objective
from fedcomp.records.run_folder import owned
from fedcomp.sweeper.contract import Choices, Evaluate, Interval, Report, Result, Space

SAMPLERS = ("tpe", "random")
NO_NUMBER = "the record holds no such number"
MAX_WITHOUT_VALUE = 2
"""After so many finished trials without a number for the objective no more are run."""


@dataclass(frozen=True)
class Optuna:
    """Proposes `n_jobs` points at a time until the study holds `n_trials`.

    Trials of an earlier session count: the same command resumes the study, and trials that were under
    way when it was stopped are run again (their runs resume from their checkpoints).

    Attributes:
        folder: where the study's file lies, unless `storage` (a URL: sqlite:///study.db) says otherwise.
        study: its name; another one starts anew.
        n_trials: how many there are in all, failed ones included. n_jobs: how many run at once.
        sampler: tpe, or random. startup: random trials before tpe learns from them.
        seed: of the sampler.
    """

    folder: str
    study: str
    storage: str | None = None
    n_trials: int = 20
    n_jobs: int = 1
    sampler: str = "tpe"
    startup: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("n_trials", "n_jobs"):
            if getattr(self, name) < 1:
                raise ValueError(f"sweeper.{name}={getattr(self, name)} must be 1 or more")
        if self.seed < 0:
            raise ValueError(f"sweeper.seed={self.seed} must be 0 or more")
        if self.sampler not in SAMPLERS:
            raise ValueError(f"sweeper.sampler={self.sampler} must be one of {', '.join(SAMPLERS)}")

    def sweep(self, space: Space, evaluate: Evaluate, objective: Objective, fixed: str = "") -> Report:
        """Search to the end, or until the objective is seen to find nothing; failed only if no trial has a value.

        Raises:
            ValueError: no optuna; nothing to search; the study's file holds another search.
        """
        optuna = _optuna()
        domains = {key: _distribution(optuna, domain) for key, domain in space.items()}
        if not domains:
            raise ValueError("sweeper=optuna has nothing to search: give interval(low,high) or a list of values")
        if "seed" in domains:
            raise ValueError("sweeper=optuna would choose the luckiest seed: give one seed")
        with owned(Path(self.folder)) if self.storage is None else nullcontext():
            search = {"settings": fixed, "space": str(dict(space)), "objective": str(objective)}
            study = self._open(optuna, objective, search)
            study.sampler = self._sampler(optuna, len(study.trials))
            self._enqueue_unfinished(optuna, study)
            while (left := self.n_trials - _ended(study)) > 0 and not _without_values(study):
                trials = [self._ask(study, domains) for _ in range(min(left, self.n_jobs))]
                points = [{key: str(trial.params[key]) for key in domains} for trial in trials]
                _tell(optuna, study, trials, evaluate(points))
        return self._report(study, objective)

    def _open(self, optuna: Any, objective: Objective, search: dict[str, str]) -> Any:
        """The study's file; its attributes say what it searches."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage: Any = self.storage
        if storage is None:
            journal = optuna.storages.journal
            storage = optuna.storages.JournalStorage(journal.JournalFileBackend(str(Path(self.folder) / "study.log")))
        study = optuna.create_study(
            storage=storage, study_name=self.study, direction=objective.direction, load_if_exists=True
        )
        known = study.user_attrs
        for name, value in search.items():
            if known.get(name, value) != value:
                raise ValueError(
                    f"study {self.study} was begun with {name} {known[name] or 'left as they are'}, and this command "
                    f"has {value or 'them left as they are'}: give sweeper.study=<another name>"
                )
            if name not in known:
                study.set_user_attr(name, value)
        return study

    def _sampler(self, optuna: Any, trials: int) -> Any:
        """The sampler; its seed depends on the number of trials, else a resumed study would repeat its first points."""
        if self.sampler == "random":
            return optuna.samplers.RandomSampler(seed=self.seed + trials)
        return optuna.samplers.TPESampler(
            seed=self.seed + trials, n_startup_trials=self.startup, constant_liar=self.n_jobs > 1
        )

    def _enqueue_unfinished(self, optuna: Any, study: Any) -> None:
        """Put the points of trials that an earlier session left unfinished first in the queue."""
        if self.storage is not None:  # a shared database: another process may be running them
            return
        for trial in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):
            study.enqueue_trial(trial.params)
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)

    def _ask(self, study: Any, domains: dict[str, Any]) -> Any:
        try:
            return study.ask(fixed_distributions=domains)
        except ValueError as error:
            raise ValueError(f"study {self.study}: {error}; give sweeper.study=<another name>") from error

    def _report(self, study: Any, objective: Objective) -> Report:
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
        best = study.best_trial
        settings = " ".join(f"{key}={value}" for key, value in best.params.items())
        return Report(False, f"best of {len(scored)} trials: {objective.show(best.value)} with {settings}")


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
        if result.error is None and not math.isnan(result.value):
            study.tell(trial, result.value)
        else:
            trial.set_user_attr("error", result.error or NO_NUMBER)
            study.tell(trial, state=optuna.trial.TrialState.FAIL)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ValueError("sweeper=optuna needs Optuna: pip install 'fedcomp[grids]'") from error
    return optuna
