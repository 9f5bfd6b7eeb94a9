"""What `choose` answers: at most five lines, a report, a recipe and a model, in one folder."""

import math
import shlex
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

from simgrad.choosing.choice import Choice, best_run
from simgrad.choosing.omitting import FEATURES, LIST
from simgrad.choosing.telling import reads_vectors, rounded, texts_of
from simgrad.core.console import say
from simgrad.core.errors import InputError
from simgrad.core.files import atomic_write
from simgrad.core.text import counted, listed
from simgrad.evaluation import wording
from simgrad.evaluation.standing import Standing
from simgrad.report.build import write_report
from simgrad.report.material import ANSWER
from simgrad.runs.naming import label_of
from simgrad.runs.outcome import MODEL, outcome_of
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.studies.study import PLAN, Study
from simgrad.studies.verdict import outlook, verdict
from simgrad.training.rounds import train
from simgrad.training.sitting import stop_asked

FULL, REPORT = "full-run.yaml", "report.html"
_EARLY = 2 / 3  # of a training: there its rate falls, which should make it better
_PATIENCE = 10  # evaluations, of about sixty


@dataclass(frozen=True)
class Answer:
    """What `simgrad.choose` found, and where it lies.

    Examples:
        >>> answer = simgrad.Answer.open("choose/photos")  # doctest: +SKIP
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

    def __fspath__(self) -> str:
        """An answer stands for its folder wherever a path is taken."""
        return str(self.folder)

    @cached_property
    def standing(self) -> Standing | None:
        """Who leads, and how sure that is; None: nothing was compared."""
        if not (self.folder / PLAN).is_file():
            return None
        choice = Choice.read(self.folder)
        return verdict(Study.open(self.folder), short=choice is not None and choice.short)

    @property
    def leader(self) -> str | None:
        """Who has the highest mean; how sure that is, `standing` and `text` say.

        None: nothing was compared, or trainings were too short to call anybody ahead.
        """
        found = self.standing
        return None if found is None or found.short else found.leader

    @property
    def report(self) -> Path:
        """One HTML page with everything behind it."""
        return self.folder / REPORT

    @property
    def recipe(self) -> Path:
        """For a training of full length: `simgrad.train` takes it."""
        return self.folder / FULL

    @property
    def on_vectors(self) -> bool:
        """Whether the model reads vectors on both sides, and no sentences."""
        choice = Choice.read(self.folder)
        return choice is not None and reads_vectors(choice.model)

    @property
    def model(self) -> Path:
        """A run's folder, ready to be searched with."""
        return self.folder / MODEL

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__  # what a prompt shows


def answer_of(choice: Choice, study: Study, quiet: bool = False) -> Answer:
    """Write what a finished study says."""
    found = _verdict(choice, study)
    told = _write(study.path, _lines(choice, study, found))
    if not quiet:
        say("writing the report ...", stderr=True)
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


def _verdict(choice: Choice, study: Study) -> Standing:
    ended = [run for runs in study.ended.values() for run in runs]
    lost = _without_runs(study)
    why = ""
    if all(outcome_of(run) != "trained" for run in ended):
        why = f"training failed in all {counted(len(ended), 'run')}"
    elif len(study.ended) - len(lost) < 2:
        why = f"every trial of {listed(lost, 'and')} diverged"
    if why:
        raise InputError(
            f"{study.path}: nothing can be compared, because {why}; {_longer(choice)}, and "
            "another folder."
        )
    return verdict(study, short=choice.short)


def answer_alone(choice: Choice, folder: Path, quiet: bool = False) -> Answer:
    """Train the one objective that there is time for, and say that nothing was compared."""
    recipe = choice.default_run()
    run = train(recipe, folder / MODEL, quiet=quiet)
    if stop_asked():
        raise KeyboardInterrupt
    size, name, two = choice.size, choice.objectives[0], rounded(choice.for_two)
    begun = "Begun" if choice.short and not _peaked(run) else "Trained"
    lines = [
        f"No comparison: two objectives need about {two} minutes here; {choice.minutes:g} given.",
        f"{begun} instead: {name}, a default and no finding. It {_ended(choice, run)}.",
        _about(choice),
        f"To compare two: give {two} minutes and {_elsewhere(choice, folder)}.",
    ]
    told = _write(folder, lines)
    if not quiet:
        say("writing the report ...", stderr=True)
    write_report((run.path,), folder / REPORT, device=choice.device)
    patience = _PATIENCE if _peaked(run) else None
    full = choice.recipe(size.full_epochs).replace(
        objective=name, reduction=choice.reduction, early_stop=patience
    )
    _write_recipe(
        folder,
        full.replace(threads=None),
        f"{name} at full length, with usual settings: nothing was compared or tuned.",
    )
    return told


def _elsewhere(choice: Choice, folder: Path) -> str:
    """What another attempt is given; features that lie in this one's folder serve it, too."""
    if choice.features is None or Path(choice.features).parent != folder.resolve():
        return "another folder"
    return f"another folder, and the features in {shlex.quote(str(folder / FEATURES))}"


def _ended(choice: Choice, run: Run) -> str:
    """reached a test rsum of 120.1; of less than half a training it is not said, unless validation
    was best long before its end: then the length that was assumed is too long."""
    outcome = outcome_of(run) or "stopped"
    score = f"a test rsum of {run.test['rsum']:.1f}"
    told = {"plateau": "was still on the plateau"}.get(outcome, outcome)
    if choice.short:
        early = f"had {choice.size.epochs} of {choice.size.full_epochs} epochs"
        if outcome == "trained" and _peaked(run):
            best = max(1, math.ceil(run.info["best"]["step"] / choice.steps))
            assumed = " that were assumed" if choice.length_from == "usual" else ""
            return (
                f"{early}{assumed}, but validation was best after {best}: more may not help "
                f"(to compare sooner, give {2 * best} epochs). It reached {score}"
            )
        told = f"{early}, too few to call it trained"
        told += "" if outcome == "trained" else f", and {told}"
    elif outcome == "trained":
        return f"reached {score}"
    return f"{told}, with {score}"


def _write(folder: Path, lines: list[str]) -> Answer:
    text = "\n".join(line for line in lines if line)
    with atomic_write(folder / ANSWER) as file:
        file.write(f"{text}\n")
    return Answer(folder, text)


# -- the lines, the most important first


def _lines(choice: Choice, study: Study, found: Standing) -> list[str]:
    failed = [one for one in found.scores.values() if one.failures]
    never = [wording.how_it_ended(one.label, one.outcomes) for one in failed if one.failed]
    never += [f"{label} diverged in every trial" for label in _without_runs(study)]
    partly = [wording.how_it_ended(one.label, one.outcomes) for one in failed if not one.failed]
    told = f"Failed, which counts: {'; '.join(partly)}." if partly else ""
    if found.short:
        length = f"{choice.size.epochs} of {choice.size.full_epochs} epochs"
        whole = f"To compare all of them takes about {rounded(choice.for_all)} minutes."
        whole = whole if choice.for_all else ""
        if not choice.short:
            length = f"validation still rose after {counted(choice.size.epochs, 'epoch')}, so this "
            length += "says who starts quickly"
            more = _longer(choice)
            if choice.length_from == "epochs":
                more = "name no epochs, so that a pilot finds how long to train"
            whole = f"To compare: {more}, and {_elsewhere(choice, study.path)}."
        return [
            f"Too short to compare: {length}. Nobody is called ahead or behind.",
            f"Failed: {'; '.join([*never, *partly])}." if never or partly else "",
            f"Test rsum: {_means(found)}.",
            _about(choice, found),
            whole,
        ]
    if never:
        others = f"Of the others: {wording.lead(found)}" if found.rivals else ""
        return [
            f"No fair comparison: {'; '.join(never)}; {_longer(choice)}.",
            others or f"Test rsum: {_means(found)}.",
            told,
            _about(choice, found),
            wording.basis(found),
        ]
    more = _more(choice, study, found)
    sure = f"{wording.basis(found)}{_alike(study)}"
    return [wording.lead(found), told, more, _about(choice, found), sure]


def _without_runs(study: Study) -> list[str]:
    """Objectives for which no setting was found, because all trials diverged."""
    return [label for label, runs in study.ended.items() if not runs]


def _longer(choice: Choice) -> str:
    """What may help an objective that failed with every seed."""
    size = choice.size
    if size.epochs < size.full_epochs:
        return f"give {rounded(choice.expected * size.full_epochs / size.epochs)} minutes or more"
    return f"give {2 * size.full_epochs} epochs and {rounded(2 * choice.expected)} minutes or more"


def _means(found: Standing) -> str:
    """Of every objective, the best first; a run that diverged has 0."""
    ranked = sorted(found.scores.values(), key=lambda one: -one.mean)
    return ", ".join(f"{one.label} {one.mean:.1f}" for one in ranked)


def _alike(study: Study) -> str:
    """Which objectives' searches tried one rate alone, or all ended at one: then the luck of a
    search hardly shows."""
    found, untried = [], []
    for row in study.plan.rows:
        tunings = study.tunings_of(row)
        tried = {trial.setting.get("lr") for one in tunings for trial in one.search.trials()}
        records = [one.record for one in tunings]
        rates = [one["chosen"]["setting"].get("lr") for one in records if one and one["chosen"]]
        if len(tried) == 1:
            untried.append(row.label)
        elif len(rates) > 1 and len(set(rates)) == 1:
            found.append(row.label)
    if untried:
        return (
            f" For {listed(untried, 'and')} no rate but the usual one was tried: a search of more "
            "settings may differ more than the intervals say."
        )
    if not found:
        return ""
    return (
        f" All searches of {listed(found, 'and')} chose the same rate: of so few settings, other "
        "searches may differ more than the intervals say."
    )


def _about(choice: Choice, found: Standing | None = None) -> str:
    """Which model the answer speaks of, and how it was tried."""
    size = choice.size
    seen = f"images: {choice.seen_by}; " if choice.seen_by else ""
    tried = ""
    if found is not None and not found.replicates:
        luck = "" if choice.short else "; that luck is not in the intervals"
        tried = f" {size.trials} settings of each were tried{luck}."
    return (
        f"This is about {choice.model} ({seen}captions: {texts_of(choice.model)}), trained for "
        f"{size.epochs} of {size.full_epochs} epochs.{tried}{_left_out(choice)}{_omitted(choice)}"
    )


def _omitted(choice: Choice) -> str:
    """What of the data was left out."""
    return f" Left out: {choice.omitted}; all in {LIST}." if choice.omitted else ""


def _left_out(choice: Choice) -> str:
    """Which objectives there was no time for."""
    if not choice.left_out or choice.alone:
        return ""
    all_of_them = f" (all: {rounded(choice.for_all)} minutes)" if choice.for_all else ""
    return f" No time for {listed([*map(label_of, choice.left_out)], 'and')}{all_of_them}."


def _more(choice: Choice, study: Study, found: Standing) -> str:
    """What would decide."""
    ahead = outlook(study, found)
    if ahead is None:
        return ""
    minutes = max(1, math.ceil(ahead.seconds / 60 / choice.processes))
    option = "replicates" if found.replicates else "seeds"
    command = f"`simgrad study {study.path} --{option} {ahead.decision.draws}`, then this again"
    return wording.outlook(found, ahead.decision, f"about {minutes} min more: {command}")


def _early(study: Study, found: Standing) -> bool:
    """Whether most runs in front were best long before their end, so that more may not help."""
    labels = [found.leader, *(one.label for one in found.rivals if one.word != "behind")]
    runs = [run for label in labels for run in study.groups[label]]
    return 2 * sum(map(_peaked, runs)) > len(runs)


def _peaked(run: Run) -> bool:
    """Whether validation was best long before the end."""
    return bool(run.info["best"]["step"] < _EARLY * run.info["steps"])


# -- what lies beside it


def _write_recipe(folder: Path, recipe: Recipe, head: str) -> None:
    with atomic_write(folder / FULL) as file:
        file.write(f"# {head}\n#\n#   simgrad train {folder / FULL}\n")
        yaml.safe_dump(recipe.to_dict(), file, sort_keys=False, allow_unicode=True)


def _copy_model(study: Study, leader: str) -> None:
    """The leader's best run on validation, in a folder with a name that one can guess."""
    best = best_run(study, leader)
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
