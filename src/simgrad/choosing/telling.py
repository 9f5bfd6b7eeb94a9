"""A plan in words: what is compared, what is trained, how long, and which gap it can show."""

from simgrad.choosing import stated
from simgrad.choosing.choice import Choice
from simgrad.choosing.sizing import REPEATS
from simgrad.core.text import counted
from simgrad.models import models
from simgrad.runs.naming import label_of

_WIDTH = 11  # of the words before a line


def plan_text(choice: Choice, where: str) -> str:
    """The plan, one thing a line; `where` says what kind of plan it is."""
    lines, names = {"trains": choice.model}, [*map(label_of, choice.objectives)]
    if choice.seen_by:
        lines["images"] = choice.seen_by
    lines["captions"] = texts_of(choice.model)
    if choice.alone:
        begun = "begun" if choice.short else "trained"
        lines = {
            "compares": "nothing: no two objectives fit. Two need about "
            f"{_minutes(choice.for_two)}",
            "default": f"{names[0]} is {begun} instead. That is a default, no finding",
            **lines,
        }
    else:
        lines = {"compares": ", ".join(names), **lines}
        lines["search"] = _search(choice)
        if choice.short:
            lines["shows"] = "who starts quickly. Too short to say who is ahead or behind"
        elif choice.images:
            lines["shows"] = _gap(choice)
    lines["length"] = _length(choice)
    if choice.left_out and not choice.alone:
        left = ", ".join(map(label_of, choice.left_out))
        lines["left out"] = f"{left}; all need about {_minutes(choice.for_all)}"
    lines["takes"] = f"about {_minutes(choice.expected)} of {choice.minutes:g}"
    if choice.before >= 0.1:
        lines["takes"] += f", {choice.before:.1f} of it before training"
    if choice.expected > 1.2 * choice.minutes:
        lines["takes"] += "; fewer objectives, or a smaller model, take less"
    return "\n".join([f"plan ({where})", *(f"  {k + ':':<{_WIDTH}}{v}" for k, v in lines.items())])


def texts_of(model: str) -> str:
    """What reads the captions, and in which language."""
    needs = models.parse(model).tokenizer_needs
    if reads_vectors(model):
        return "the vectors of the data"
    if needs.network is not None:
        return f"the network {needs.network[1]}, in the languages that it knows"
    what = "pieces of words" if needs.pieces else "words"
    return f"{what} of your captions, any language"


def reads_vectors(model: str) -> bool:
    """Whether captions are vectors that the data bring."""
    return getattr(models.parse(model), "text", None) == "vectors"


def _search(choice: Choice) -> str:
    size = choice.size
    again = f", the best {size.finalists} again with {REPEATS} seeds" if size.finalists > 1 else ""
    seeds = f"{counted(size.seeds, 'seed')} of the best one"
    times = f", all of it {size.replicates} times" if size.replicates > 1 else ""
    return f"{size.trials} settings of each objective{again}; {seeds}{times}"


def _gap(choice: Choice) -> str:
    size = choice.size
    draws = size.replicates if size.replicates > 1 else size.seeds
    gap = stated.smallest_gap(len(choice.objectives), draws, choice.images, size.replicates)
    return (
        f"gaps of about {gap:.0f} rsum and more, four times in five, with {choice.images:,} test "
        f"images, if seeds and searches differ as in {stated.SOURCE}"
    )


def _length(choice: Choice) -> str:
    size = choice.size
    why = {
        "epochs": "as asked for",
        "pilot": "by a pilot: then validation stops improving",
        "usual": "an assumption: no pilot has found it",
    }[choice.length_from]
    part = "full" if size.epochs == size.full_epochs else f"of {size.full_epochs}"
    return f"{counted(size.epochs, 'epoch')} ({size.epochs * choice.steps:,} steps), {part} ({why})"


def _minutes(value: float) -> str:
    return f"{rounded(value)} min"


def rounded(value: float) -> int:
    """Minutes as they are told: rounded up, and one at least."""
    return max(1, -int(-value // 1))
