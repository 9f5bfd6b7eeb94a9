"""The search of one row: Optuna proposes settings, a journal in the study's folder keeps them.

Quasi-random settings come first, then TPE learns from the scores of this row alone. Whoever works
on the study asks here under one lock, which dies with its holder: a budget is never overdrawn, and
a trial whose worker was killed is taken up by the next one who asks.

Halving, where it is asked for, happens among complete short schedules of this row: the better half
goes on to full length. The first few go on in any case; where short and full scores do not order
them alike, halving is off.
"""

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from simgrad.core.files import lock, sha256
from simgrad.core.spec import Range
from simgrad.studies.journal import JOURNAL, mend, open_journal, optuna_or_say
from simgrad.studies.space import Setting, Space, Tune, rounded

_LOCK = ".search.lock"
Rung = Literal["short", "full"]
State = Literal["running", "complete", "stopped", "failed"]
# Settings that were tried at both lengths before the short one decides anything, and how well the
# two must agree (Spearman's rank correlation).
CALIBRATED, AGREEMENT = 5, 0.8


@dataclass(frozen=True)
class Trial:
    """One setting of a row."""

    number: int
    setting: Setting
    how: str  # quasi-random, tpe, random, grid or start
    state: State
    score: float | None = None  # on validation, of the full schedule
    short: float | None = None  # of the short one
    halved: bool = False  # whether it begins with a short schedule
    promoted: bool | None = None  # whether it continues after that, once it is known


class Search:
    """The trials of one row; `whole` names what takes whole numbers."""

    def __init__(
        self,
        folder: Path,
        name: str,
        space: Space,
        tune: Tune,
        whole: frozenset[str] = frozenset(),
        start: Setting | None = None,
    ) -> None:
        self.folder, self.name, self.tune, self.whole = folder, name, tune, whole
        self.start = start  # the setting of the first trial, if it is not drawn
        self.space = dict(sorted(space.items()))
        self.grid = _grid(self.space, tune.trials) if tune.search == "grid" else {}
        self._journal: Any = None

    @property
    def count(self) -> int:
        """How many trials there will be: a grid may have fewer points than the budget."""
        points = 1
        for values in self.grid.values():
            points *= len(values)
        return min(self.tune.trials, points) if self.grid else self.tune.trials

    def trials(self) -> list[Trial]:
        """Every trial so far."""
        with self._open() as study:
            return self._read(study)

    def ask(self) -> Trial | None:
        """A new setting; None where the budget is spent."""
        with self._open() as study:
            trials = self._read(study)
            if len(trials) >= self.count:
                return None
            how: str = self.tune.search
            if how == "tpe" and len(trials) < self.tune.quasi_random:
                how = "quasi-random"
            if self.start is not None and not trials:
                how = "start"
            study.sampler = self._sampler(how, len(trials))
            asked = study.ask(self._distributions())
            if self.tune.halving is not None:
                agreed = correlation(trials)
                asked.set_user_attr("halved", agreed is None or agreed >= AGREEMENT)
            asked.set_user_attr("how", how)  # last: without it a trial was lost while it was asked
            return self._trial(_at(study, asked.number))

    def next_rung(self, number: int) -> Rung | None:
        """What a trial has to train next; None when it is over."""
        with self._open() as study:
            trial = self._trial(_at(study, number))
            if trial.state != "running":
                return None
            if not trial.halved:
                return "full"
            if trial.short is None:
                return "short"
            if trial.promoted is None:
                promoted = self._promoted(trial, self._read(study))
                self._note(study, number, "promoted", promoted)
                trial = self._trial(_at(study, number))
            if not trial.promoted:
                study.tell(number, state=_states()["stopped"])
                return None
            return "full"

    def tell(self, number: int, rung: Rung, score: float) -> None:
        """The best validation score of a run; said twice, it counts once."""
        with self._open() as study:
            trial = self._trial(_at(study, number))
            if trial.state != "running" or (rung == "short" and trial.short is not None):
                return
            if rung == "full":
                study.tell(number, score)
                return
            place = self._place(study, number)
            self._journal.set_trial_intermediate_value(place, 1, score)
            self._note(study, number, "short", score)

    def fail(self, number: int) -> None:
        """Training diverged: the trial counts, and has no score."""
        with self._open() as study:
            if self._trial(_at(study, number)).state == "running":
                study.tell(number, state=_states()["failed"])

    def importance(self) -> dict[str, float]:
        """How much of the difference between good and other trials each setting explains
        (PED-ANOVA, Watanabe et al., IJCAI 2023); nothing from fewer than four scores."""
        import optuna

        with self._open() as study:
            scores = {t.score for t in self._read(study) if t.score is not None}
            if len(scores) < 4:
                return {}
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
            found = optuna.importance.get_param_importances(study, evaluator=evaluator)
            return {name: round(float(share), 4) for name, share in found.items()}

    # -- how it is done

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        """Optuna's study of this row, nobody else's meanwhile."""
        optuna = optuna_or_say()
        with lock(self.folder / _LOCK, what=f"the search in {self.folder}"):
            mend(self.folder / JOURNAL)
            if self._journal is None:
                self._journal = open_journal(self.folder / JOURNAL)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                found = {"study_name": self.name, "storage": self._journal}
                try:  # not `load_if_exists`: that writes to the journal each time
                    study = optuna.load_study(**found)
                except KeyError:
                    study = optuna.create_study(**found, direction="maximize")
                yield study

    def _read(self, study: Any) -> list[Trial]:
        """Its trials; one whose worker was killed while it asked is none."""
        found = []
        for frozen in study.get_trials(deepcopy=False):
            if "how" in frozen.user_attrs:
                found.append(self._trial(frozen))
            elif not frozen.state.is_finished():
                study.tell(frozen.number, state=_states()["failed"])
        return found

    def _trial(self, frozen: Any) -> Trial:
        named = {state: name for name, state in _states().items()}
        told = frozen.user_attrs
        setting = {k: rounded(frozen.params[k], k in self.whole) for k in self.space}
        state: Any = named.get(frozen.state, "running")
        score = frozen.value if state == "complete" else None
        return Trial(
            frozen.number,
            setting,
            told.get("how", ""),
            state,
            score,
            told.get("short"),
            told.get("halved", False),
            told.get("promoted"),
        )

    def _place(self, study: Any, number: int) -> int:
        found: int = self._journal.get_trial_id_from_study_id_trial_number(
            self._journal.get_study_id_from_name(study.study_name), number
        )
        return found

    def _note(self, study: Any, number: int, name: str, value: Any) -> None:
        self._journal.set_trial_user_attr(self._place(study, number), name, value)

    def _promoted(self, trial: Trial, trials: list[Trial]) -> bool:
        """Whether it goes on to full length: it is in the better half of this row's."""
        agreed = correlation(trials)
        if agreed is None or agreed < AGREEMENT:
            return True
        assert trial.short is not None
        shorts = sorted(t.short for t in trials if t.short is not None)
        return trial.short >= shorts[len(shorts) // 2]

    def _distributions(self) -> dict[str, Any]:
        distributions = optuna_or_say().distributions
        found: dict[str, Any] = {}
        for key, where in self.space.items():
            if key in self.grid or not isinstance(where, Range):
                values = self.grid.get(key, where)
                found[key] = distributions.CategoricalDistribution(tuple(values))  # type: ignore[arg-type]
            else:
                found[key] = distributions.FloatDistribution(where.low, where.high, log=where.log)
        return found

    def _sampler(self, how: str, number: int) -> Any:
        """A sampler that knows its place: a search that was stopped resumes as if it had not."""
        samplers = optuna_or_say().samplers
        # The same quasi-random points for all rows, as far as they search the same.
        own = int(sha256(f"{self.tune.seed} {self.name} {number}")[:8], 16)
        if how == "start":
            return samplers.PartialFixedSampler(self.start, samplers.RandomSampler(seed=own))
        if how == "quasi-random":
            choices = int(sha256(f"{self.tune.seed} {number}")[:8], 16)
            return _quasi_random(self._distributions(), self.tune.seed, choices, number)
        if how == "tpe":
            return samplers.TPESampler(
                n_startup_trials=0, multivariate=True, constant_liar=True, seed=own
            )
        if how == "grid":
            return samplers.GridSampler(self.grid, seed=self.tune.seed)
        return samplers.RandomSampler(seed=own)


def _at(study: Any, number: int) -> Any:
    return study.get_trials(deepcopy=False)[number]


def correlation(trials: list[Trial]) -> float | None:
    """Spearman's, between short and full scores; None before enough trials have both."""
    from scipy.stats import spearmanr

    both = [(t.short, t.score) for t in trials if t.short is not None and t.score is not None]
    # Those that went on because they were good say less: they differ less. The first ones count.
    first = both[:CALIBRATED]
    if len(first) < CALIBRATED:
        return None
    found = float(spearmanr(*zip(*first, strict=True)).statistic)
    return found if found == found else 0.0  # all alike: nothing agrees


def _grid(space: Space, trials: int) -> dict[str, list[Any]]:
    """So many points of each range that the grid fits the budget, its ends included."""
    import numpy as np

    ranges = [key for key, where in space.items() if isinstance(where, Range)]
    fixed = 1
    for where in space.values():
        fixed *= 1 if isinstance(where, Range) else len(where)
    each = max(1, int((trials / fixed) ** (1 / max(1, len(ranges))) + 1e-9))
    found: dict[str, list[Any]] = {}
    for key, where in space.items():
        if not isinstance(where, Range):
            found[key] = list(where)
            continue
        ends = np.array([where.low, where.high])
        low, high = np.log(ends) if where.log else ends
        points = np.linspace(low, high, each) if each > 1 else np.array([(low + high) / 2])
        found[key] = (np.exp(points) if where.log else points).tolist()
    return found


def _quasi_random(distributions: dict[str, Any], seed: int, choices: int, number: int) -> Any:
    samplers = optuna_or_say().samplers

    class QuasiRandom(samplers.QMCSampler):  # type: ignore[name-defined, misc, unused-ignore]
        """From the first trial on: Optuna's own waits until a trial has shown the space."""

        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
            kind = optuna_or_say().distributions.FloatDistribution
            return {k: d for k, d in distributions.items() if isinstance(d, kind)}

        def _find_sample_id(self, study: Any, search_space: Any) -> int:
            """The trial's own number. Optuna counts in the journal, so that a worker killed while
            it asked would use a point up, and all later trials would get others."""
            return number

    return QuasiRandom(
        qmc_type="sobol",
        scramble=True,
        seed=seed,
        independent_sampler=samplers.RandomSampler(seed=choices),
        warn_independent_sampling=False,
    )


def _states() -> dict[State, Any]:
    kinds = optuna_or_say().trial.TrialState
    return {"complete": kinds.COMPLETE, "stopped": kinds.PRUNED, "failed": kinds.FAIL}
