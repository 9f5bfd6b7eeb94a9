"""What `choose` answers: at most five lines, a report, a recipe and a model, in one folder."""

import math
import shutil
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean

import yaml

from simgrad.choosing.choice import Choice
from simgrad.choosing.telling import texts_of
from simgrad.core.errors import InputError
from simgrad.core.files import atomic_write
from simgrad.core.text import listed
from simgrad.report.build import write_report
from simgrad.report.material import ANSWER
from simgrad.runs.outcome import outcome_of
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.studies.study import PLAN, Study
from simgrad.studies.tuned import score_of
from simgrad.studies.verdict import Verdict, outlook, verdict
from simgrad.training.rounds import train
from simgrad.training.stopping import stop_asked

FULL, MODEL, REPORT = "full-run.yaml", "model", "report.html"
_EARLY = 2 / 3  # of a training: there its rate falls, which should make it better
_PATIENCE = 10  # evaluations, of about sixty


@dataclass(frozen=True)
class Answer:
    """What `simgrad.choose` found, and where it lies.

    Examples:
        >>> answer = simgrad.choosing.Answer.open("choose/photos")  # doctest: +SKIP
        >>> answer.standing.leader  # doctest: +SKIP
        'nt-xent'
    """

    folder: Path
    text: str  # at most five lines, the most important first

    @staticmethod
    def open(folder: str | Path) -> "Answer":
        """The answer that was written to a folder."""
        path = Path(folder) / ANSWER
        if not path.is_file():
            raise InputError(
                f"{folder}: no answer there; `simgrad choose` writes one when it has finished."
            )
        return Answer(Path(folder), path.read_text("utf-8").strip())

    @cached_property
    def standing(self) -> Verdict | None:
        """Who leads, and how sure that is; None: nothing was compared."""
        return verdict(Study.open(self.folder)) if (self.folder / PLAN).is_file() else None

    @property
    def report(self) -> Path:
        """One HTML page with everything behind it."""
        return self.folder / REPORT

    @property
    def recipe(self) -> Path:
        """For a training of full length: `simgrad.train` takes it."""
        return self.folder / FULL

    @property
    def model(self) -> Path:
        """A run's folder, ready to be searched with."""
        return self.folder / MODEL

    def __str__(self) -> str:
        return self.text


def answer_of(choice: Choice, study: Study) -> Answer:
    """Write what a finished study says."""
    found = verdict(study)
    told = _write(study.path, _lines(choice, study, found))
    write_report((study.path,), study.path / REPORT, device=choice.device)
    patience = _PATIENCE if _early(study, found) else None
    recipe = choice.full_run(study, found.leader).replace(early_stop=patience)
    _write_recipe(
        study.path,
        recipe,
        f"{found.leader}, as `simgrad choose` tuned it at {choice.size.epochs} epochs, at full "
        "length.\n# A rate that is best for a short training may be high for a long one.",
    )
    _copy_model(study, found.leader)
    return told


def answer_alone(choice: Choice, folder: Path, quiet: bool = False) -> Answer:
    """Train the one objective that there is time for, and say that nothing was compared."""
    recipe = choice.default_run()
    run = train(recipe, folder / MODEL, quiet=quiet)
    if stop_asked():
        raise KeyboardInterrupt
    size, name, two = choice.size, choice.objectives[0], _whole(choice.for_two)
    lines = [
        f"No comparison: two objectives need about {two} minutes here; {choice.minutes:g} given.",
        f"Trained instead: {name}, a default and no finding. It {_ended(run)}.",
        _about(choice),
        f"To compare two: the same command with --minutes {two} and another --output.",
    ]
    told = _write(folder, lines)
    write_report((run.path,), folder / REPORT, device=choice.device)
    full = choice.recipe(size.full_epochs).replace(objective=name, reduction=choice.reduction)
    _write_recipe(
        folder,
        full.replace(threads=None),
        f"{name} at full length, with usual settings: nothing was compared or tuned.",
    )
    return told


def _ended(run: Run) -> str:
    """trained to rsum 120.1 on test"""
    outcome = outcome_of(run) or "stopped"
    words = {"plateau": "was still on the plateau"}
    return f"{words.get(outcome, outcome)} (test rsum {run.test['rsum']:.1f})"


def _write(folder: Path, lines: list[str]) -> Answer:
    text = "\n".join(line for line in lines if line)
    with atomic_write(folder / ANSWER) as file:
        file.write(f"{text}\n")
    return Answer(folder, text)


# -- the lines, the most important first


def _lines(choice: Choice, study: Study, found: Verdict) -> list[str]:
    failed = failures_of(study)
    seeds = {label: len(runs) for label, runs in study.ended.items()}
    never = [label for label in failed if failed[label].total() == seeds[label]]
    some = {label: failed[label] for label in failed if label not in never}
    lost = [_failed(label, failed[label], seeds[label]) for label in never]
    partly = [_failed(label, one, seeds[label]) for label, one in some.items()]
    told = f"Failed, which counts: {'; '.join(partly)}." if partly else ""
    if choice.short:
        length = f"{choice.size.epochs} of {choice.size.full_epochs} epochs"
        whole = f"Without --short, all of them need about {_whole(choice.for_all)} minutes."
        return [
            f"Too short to compare: {length}. Nobody is called ahead or behind.",
            f"Failed: {'; '.join([*lost, *partly])}." if lost or partly else "",
            f"Test rsum: {_means(study)}.",
            _about(choice),
            whole if choice.for_all else "",
        ]
    if lost:
        return [
            f"No fair comparison: {'; '.join(lost)}; {_longer(choice)}.",
            f"Test rsum: {_means(study)}.",
            told,
            _about(choice),
        ]
    return [found.sentence, told, found.sureness, _about(choice), _more(choice, study, found)]


def failures_of(study: Study) -> dict[str, Counter[str]]:
    """By objective: how its failed runs ended; without those of which none failed."""
    found = {}
    for label, runs in study.ended.items():
        ends = Counter(
            str(end) for run in runs if (end := outcome_of(run)) not in (None, "trained")
        )
        if ends:
            found[label] = ends
    return found


def _failed(label: str, ends: Counter[str], seeds: int) -> str:
    """triplet-sh collapsed in all 3 seeds"""
    words = {"plateau": "stayed on the plateau"}
    told = []
    for end, count in ends.most_common():
        of = f"all {seeds}" if count == seeds else f"{count} of {seeds}"
        told.append(f"{words.get(end, end)} in {of} seeds")
    return f"{label} {listed(told, 'and')}"


def _longer(choice: Choice) -> str:
    """What may help an objective that failed with every seed."""
    size = choice.size
    if size.epochs < size.full_epochs:
        return f"give --minutes {_whole(choice.expected * size.full_epochs / size.epochs)} or more"
    return f"give --epochs {2 * size.full_epochs} --minutes {_whole(2 * choice.expected)} or more"


def _means(study: Study) -> str:
    """Of every objective, the best first; a run that diverged has 0."""
    means = {
        label: fmean(run.test.get("rsum", 0.0) for run in runs)
        for label, runs in study.ended.items()
        if runs
    }
    ranked = sorted(means, key=lambda label: -means[label])
    return ", ".join(f"{label} {means[label]:.1f}" for label in ranked)


def _about(choice: Choice) -> str:
    """Which model the answer speaks of, and how it was tried."""
    size = choice.size
    seen = f"images: {choice.seen_by}; " if choice.seen_by else ""
    tried = "" if choice.alone else (
        f" {size.trials} settings of each were tried; that luck is not in the intervals."
    )  # fmt: skip
    return (
        f"This is about {choice.model} ({seen}captions: {texts_of(choice.model)}), trained for "
        f"{size.epochs} of {size.full_epochs} epochs.{tried}"
    )


def _more(choice: Choice, study: Study, found: Verdict) -> str:
    """What would decide."""
    ahead = outlook(study, found)
    if ahead is None:
        return ""
    pair = f"{found.leader} and {ahead.rival}"
    if ahead.seeds is None:
        return (
            f"More seeds would hardly tell {pair} apart: they are too close for this test split. "
            "A larger one might."
        )
    minutes = max(1, math.ceil(ahead.seconds / 60 / choice.processes))
    return (
        f"An estimate: {ahead.seeds} seeds would tell {pair} apart, if their gap stays as it is; "
        f"about {minutes} min more: `simgrad study {study.path} --seeds {ahead.seeds}`, then "
        f"`simgrad choose {study.path}`."
    )


def _early(study: Study, found: Verdict) -> bool:
    """Whether most runs in front were best long before their end, so that more may not help."""
    labels = [found.leader, *(rival.label for rival in found.tied)]
    runs = [run for label in labels for run in study.groups[label]]
    early = [run for run in runs if run.info["best"]["step"] < _EARLY * run.info["steps"]]
    return 2 * len(early) > len(runs)


# -- what lies beside it


def _write_recipe(folder: Path, recipe: Recipe, head: str) -> None:
    with atomic_write(folder / FULL) as file:
        file.write(f"# {head}\n#\n#   simgrad train {folder / FULL}\n")
        yaml.safe_dump(recipe.to_dict(), file, sort_keys=False, allow_unicode=True)


def _copy_model(study: Study, leader: str) -> None:
    """The leader's best run on validation, in a folder with a name that one can guess."""
    best = max(study.groups[leader], key=lambda run: (score_of(run), -run.recipe.seed))
    target = study.path / MODEL
    if target.is_dir() and _same_run(Run(target), best):
        return
    growing = study.path / f".{MODEL}.growing"
    for old in (growing, target):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(best.path, growing, ignore=shutil.ignore_patterns(".lock", "*.tmp"))
    growing.rename(target)


def _same_run(one: Run, other: Run) -> bool:
    return one.finished and one.info == other.info


def _whole(value: float) -> int:
    return max(1, math.ceil(value))
