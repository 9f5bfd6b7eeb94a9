"""What `simgrad choose` answers: a sentence and how sure it is, a report, a recipe, a model."""

import math
import shutil
from pathlib import Path

import yaml

from simgrad.cli.report import report as write_report
from simgrad.core.console import say, say_wrapped
from simgrad.core.files import atomic_write
from simgrad.runs.run import Run
from simgrad.studies.choice import ANSWER, Choice
from simgrad.studies.study import Study
from simgrad.studies.tuned import compared, score_of, validation_of
from simgrad.studies.verdict import Verdict, outlook, verdict

FULL, MODEL, REPORT = "full-run.yaml", "model", "report.html"
_STEADY = 0.9  # of the best seed's score: below that a seed has failed
_EARLY = 2 / 3  # of a training: there its rate falls, which should make it better
_PATIENCE = 10  # evaluations, of about sixty


def answer(choice: Choice, study: Study) -> None:
    """The sentence, and what to do with it."""
    found = verdict(study)
    early = _early(study, found)
    lines = [found.sentence, found.sureness, _luck(study), *_caveats(choice, study), early]
    lines.append(_more(choice, study, found, longer=not early))
    with atomic_write(study.path / ANSWER) as file:
        file.write("\n".join(line for line in lines if line) + "\n")
    write_report((str(study.path),), output=study.path / REPORT)
    _write_recipe(choice, study, found.leader, _PATIENCE if early else None)
    best = _copy_model(study, found.leader)
    say_wrapped("\n".join(["", *(line for line in lines if line), ""]))
    say(
        f"report:       {study.path / REPORT}",
        f"full length:  simgrad train {study.path / FULL}",
        f'search:       simgrad search {best} "a sentence"',
    )


def _luck(study: Study) -> str:
    """What no interval shows: how much one trial more or less may change."""
    labels = {row.name: row.label for row in study.plan.rows}
    gaps: dict[str, float] = {}
    for tuning in study.tunings:
        scores = sorted(map(validation_of, compared((tuning.record or {}).get("tried", ()))))
        if len(scores) > 1:
            gaps[labels[tuning.name]] = scores[-1] - scores[-2]
    if not gaps:
        return ""
    widest, tune = max(gaps, key=lambda label: gaps[label]), study.tunings[0].tune
    again = f", the best {tune.finalists} of them with {tune.repeats} more seeds"
    return (
        f"The intervals leave out the luck of the search: {tune.trials} settings were tried for "
        f"each objective{again if tune.further else ''}, and the best is up to "
        f"{gaps[widest]:.1f} above the second best on validation ({widest})."
    )


def _caveats(choice: Choice, study: Study) -> list[str]:
    size, told = choice.size, []
    diverged = [path.name for path, _ in study.jobs() if not Run(path).finished]
    if diverged:
        told.append(f"Training diverged, which counts as an rsum of 0: {', '.join(diverged)}.")
    for label, found in study.groups.items():
        runs = [run for run in found if run.test]
        validated, tested = [score_of(run) for run in runs], [run.test["rsum"] for run in runs]
        # Few validation images alone make scores differ: a seed that failed is poor in both.
        if runs and all(min(scores) < _STEADY * max(scores) for scores in (validated, tested)):
            told.append(
                f"Unsteady: seeds of {label} have {min(validated):.1f} to {max(validated):.1f} on "
                f"validation, {min(tested):.1f} to {max(tested):.1f} on test. Its setting works "
                "with some seeds and not with others; another may be steadier."
            )
    if size.epochs != size.full_epochs:
        told.append(
            f"This is about {size.epochs} of {size.full_epochs} epochs. A longer training may "
            "order them differently: rules that use only the hardest negative start slowly."
        )
    return told


def _early(study: Study, found: Verdict) -> str:
    """Whether those in front were best long before their end, so that more of it may not help."""
    labels = [found.leader, *(rival.label for rival in found.tied)]
    runs = [run for label in labels for run in study.groups[label]]
    shares = [run.info["best"]["step"] / run.info["steps"] for run in runs]
    early = [share for share in shares if share < _EARLY]
    if 2 * len(early) <= len(shares):
        return ""
    low, high = (f"{100 * share:.0f}%" for share in (min(early), max(early)))
    after = low if low == high else f"{low} to {high}"
    which = "" if len(early) == len(shares) else f" in {len(early)} of {len(shares)} runs"
    return (
        f"Validation was best after {after} of the training{which}: a longer one may not help. "
        f"{FULL} ends after {_PATIENCE} evaluations without improvement."
    )


def _more(choice: Choice, study: Study, found: Verdict, longer: bool) -> str:
    """What would decide; `longer`: whether a longer training might."""
    ahead = outlook(study, found)
    if ahead is None:
        return ""
    pair = f"{found.leader} and {ahead.rival}"
    if ahead.seeds is None:
        return (
            f"More seeds would hardly tell {pair} apart: they are too close for this test split. "
            f"A larger one{', or a longer training,' if longer else ''} might."
        )
    minutes = max(1, math.ceil(ahead.seconds / 60 / choice.processes))
    return (
        f"An estimate: {ahead.seeds} seeds would tell {pair} apart, if their gap stays as it is; "
        f"about {minutes} min more: `simgrad study {study.path} --seeds {ahead.seeds}`, then "
        f"`simgrad choose {study.path}`."
    )


def _write_recipe(choice: Choice, study: Study, leader: str, patience: int | None) -> None:
    """A training of full length with what was chosen."""
    recipe = choice.full_run(study, leader).replace(early_stop=patience)
    with atomic_write(study.path / FULL) as file:
        file.write(
            f"# {leader}, as `simgrad choose` tuned it at {choice.size.epochs} epochs, at full "
            f"length.\n# A rate that is best for a short training may be high for a long one.\n"
            f"#\n#   simgrad train {study.path / FULL}\n"
        )
        yaml.safe_dump(recipe.to_dict(), file, sort_keys=False, allow_unicode=True)


def _copy_model(study: Study, leader: str) -> Path:
    """The leader's best run on validation, in a folder with a name that one can guess."""
    best = max(study.groups[leader], key=lambda run: (score_of(run), -run.recipe.seed))
    target = study.path / MODEL
    if target.is_dir() and _same_run(Run(target), best):
        return target
    growing = study.path / f".{MODEL}.growing"
    for old in (growing, target):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(best.path, growing, ignore=shutil.ignore_patterns(".lock", "*.tmp"))
    growing.rename(target)
    return target


def _same_run(one: Run, other: Run) -> bool:
    return one.finished and one.info == other.info
