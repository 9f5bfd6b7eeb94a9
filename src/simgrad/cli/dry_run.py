"""What a study would do, without training: both rounds of every row, its test, whose settings."""

from pathlib import Path
from typing import NamedTuple

from simgrad.choosing.study_cost import cost_of, look_at, paces_of
from simgrad.core.console import print_table, say, say_wrapped
from simgrad.core.errors import InputError
from simgrad.core.spec import Range, print_value
from simgrad.core.text import told_once
from simgrad.evaluation.protocols import find_protocol
from simgrad.retriever.run_preview import Look
from simgrad.runs.recipe import Recipe
from simgrad.studies.papers import beside
from simgrad.studies.plan import Plan
from simgrad.studies.settings import published_settings
from simgrad.studies.space import left_out, space_of, told_apart
from simgrad.studies.study_file import Row
from simgrad.studies.tune import CrossedRanges


def dry_run(plan: Plan, opened: bool = True, timed: bool = False) -> None:
    """What each row reads, trains and tests, and costs; fails where the study would.

    Not `opened`: no data were given, so that it says what the file says. `timed`: each model is
    trained for some seconds, so that it can say how many minutes the runs take.
    """
    seen = look_at(plan) if opened else [(row, None) for row in plan.rows if not row.ensemble]
    trained, data, tests, words, broken = [], [], [], [], []
    for row, found in seen:
        if isinstance(found, InputError):
            broken.append((row, str(found)))
            continue
        recipe = plan.recipe(row, plan.seeds[0])
        trained.append((row, "", (*_read(plan, row, found), *_schedule(recipe))))
        if recipe.second_round is not None:
            again = _schedule(recipe.round_two())
            begins = "round one" if recipe.from_round_one else "scratch"
            read = (*[""] * len(_COLUMNS[opened]), *again)
            trained.append((row, f", round two from {begins}", read))
        tests.append((row, _test(recipe, _defined(recipe) if found is None else found.tested)))
        words.append((row, _words(plan, row, recipe)))
        if found is not None:
            data.append((row, found.data))
            if found.problem is not None:
                broken.append((row, found.problem))
    say_wrapped(_title(plan))
    if plan.tune is not None:
        _show_space(plan)
    _objectives(plan)
    if trained:
        say("")
        head = ("", *_COLUMNS[opened], "epochs", "batch", "lr", "lr/10 every")
        print_table(head, _by_groups(trained))
    _averages(plan)
    say("")
    for name, told in (("data", data), ("test", tests), ("words", words)):
        for line in _by_rows(told):
            say_wrapped(f"{name}: {line}")
    for line in _published(plan):
        say_wrapped(line)
    _sources(plan)
    ready = [
        (row, found) for row, found in seen if isinstance(found, Look) and found.problem is None
    ]
    _ready(plan, ready, timed)
    for line in _by_rows(broken, always=True):
        say_wrapped(f"blocked: {line}", stderr=True)
    if broken:
        others = f"; the other {len(ready)} are ready, and a study trains them" if ready else ""
        raise InputError(f"{len(broken)} of {len(seen)} rows cannot be run{others}.")


def _ready(plan: Plan, ready: list[tuple[Row, Look]], timed: bool) -> None:
    """Which rows can be run, and what they cost."""
    if not ready or plan.tune is not None:  # trials are of many lengths
        return
    say("")
    cost = cost_of(plan, ready, paces_of(plan, ready) if timed else None)
    for line in _by_rows([(row, str(cost)) for row, _ in ready], always=True):
        say_wrapped(f"ready: {line}")


_COLUMNS = {True: ("reads", "weights", "words"), False: ("reads",)}


def _objectives(plan: Plan) -> None:
    """What each row is trained with."""
    rows = []
    for row in plan.rows:
        if not row.ensemble:
            recipes = _rounds(plan, row)
            rows.append((row.label, ", then ".join(recipe.objective for recipe in recipes)))
    say("")
    print_table(("row", "objective"), rows)


def _by_groups(trained: list[tuple[Row, str, tuple[str, ...]]]) -> list[tuple[str, ...]]:
    """One line for a group whose rows are all trained alike in a round, else one for each row."""
    kinds: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for row, round, cells in trained:
        kinds.setdefault((row.group, round), set()).add(cells)
    lines = []
    for row, round, cells in trained:
        alike = row.group and len(kinds[row.group, round]) == 1
        lines.append((f"{row.group if alike else row.label}{round}", *cells))
    return list(dict.fromkeys(lines))


def _read(plan: Plan, row: Row, found: Look | None) -> tuple[str, ...]:
    """What a row's model sees of an image, its size, and the words that it knows."""
    kind = _READS[plan.model(row).reads]
    if plan.recipe(row, plan.seeds[0]).augment is not None:
        kind = "pictures"  # features cannot be cropped
    if found is None:
        return (kind,)
    if found.problem is not None:
        return kind, "–", "–"
    return found.images, f"{found.parameters:,}", f"{found.words:,}"


def _by_rows(told: list[tuple[Row, str]], always: bool = False) -> list[str]:
    """Each text once, with the groups or rows that it is about, unless it is about all."""
    if not always and len({text for _, text in told}) == 1:
        return [told[0][1]]
    texts: dict[str, set[str]] = {}
    for row, text in told:
        texts.setdefault(row.group, set()).add(text)
    named = [(r.group if r.group and len(texts[r.group]) == 1 else r.label, t) for r, t in told]
    return told_once(list(dict.fromkeys(named)))


def _averages(plan: Plan) -> None:
    """Rows that are means of other rows' similarities."""
    rows = []
    for row in plan.rows:
        if row.ensemble:
            same = len(set(row.ensemble)) == 1
            several = f"{row.ensemble[0]}, {len(row.ensemble)} seeds"
            of = several if same else ", ".join(row.ensemble)
            rows.append((row.label, of, str(row.ensembles(len(plan.seeds)))))
    if rows:
        say("")
        print_table(("mean similarities", "of", "how many"), rows)


_READS = {"global": "pictures or features", "regions": "regions", "pixels": "pictures"}


def _defined(recipe: Recipe) -> str:
    """What a protocol is about, before there are data."""
    return f"{find_protocol(recipe.protocol)} (protocol {recipe.protocol})"


def _title(plan: Plan) -> str:
    settings = f", settings for {plan.dataset}" if plan.dataset else ""
    seeds = "1 seed" if len(plan.seeds) == 1 else f"{len(plan.seeds)} seeds"
    if len(plan.replicates) > 1:
        seeds = f"{len(plan.replicates)} replicates, {seeds} each"
    return f"{plan.title}: {len(plan.runs())} runs, {seeds}{settings}"


def _schedule(recipe: Recipe) -> tuple[str, ...]:
    """Epochs, batch, rate and when it falls."""
    epochs, rate = str(recipe.epochs), print_value(recipe.lr)
    if recipe.finetune_epochs:
        epochs += f" + {recipe.finetune_epochs}"
        rate += f", {print_value(recipe.finetune_lr)}"
    decay = str(recipe.decay_every) if recipe.decay == "step" else recipe.decay
    return epochs, str(recipe.batch), rate, decay


def _test(recipe: Recipe, tested: str) -> str:
    if recipe.rerank is None:
        return tested
    return f"{tested}, first {recipe.rerank or 'candidates'} of a query ranked again"


def _words(plan: Plan, row: Row, recipe: Recipe) -> str:
    if recipe.start_from is not None:
        return f"those of {Path(recipe.start_from).name}, whose weights it starts from"
    if recipe.vocabulary is not None:
        return f"published vocabulary {Path(recipe.vocabulary).name}"
    own = plan.model(row).tokenizer_needs
    if own.network is not None:
        return f"word pieces of {own.network[1]}"
    return "made from the training captions"


def _published(plan: Plan) -> list[str]:
    """Which published numbers stand beside how many rows, and whether they are of such a test."""
    if not plan.published.get("table"):
        return []
    kinds: dict[str, int] = {}
    for row in plan.rows:
        found = beside(plan.published, row)
        if found:
            fits = found.comparable(plan.recipe(row, plan.seeds[0]))
            test = found.protocol or "no test"
            table = row.published.get("table", plan.published["table"])
            told = f"{table}, {found.dataset}, {test}{'' if fits else ': NOT like ours'}"
            kinds[told] = kinds.get(told, 0) + 1
    return [f"published: {told} (rows with them: {count})" for told, count in kinds.items()]


def _sources(plan: Plan) -> None:
    """Where every setting is from, once for rows that share them."""
    told: dict[_Told, list[Row]] = {}
    for row in plan.rows:
        if row.ensemble or not row.source:
            continue
        for number, recipe in enumerate(_rounds(plan, row), 1):
            for each in published_settings(row.source, plan.dataset, recipe, number).values():
                if each.system:  # what holds for all of them is in the file
                    value = str(print_value(each.value))
                    key = _Told(each.field, each.when, value, each.source)
                    told.setdefault(key, []).append(row)
    if not told:
        return
    by_names: dict[str, list[tuple[str, str]]] = {}
    for one, rows in told.items():
        when = f" ({one.when})" if one.when else ""
        line = (f"  {one.field}{when}: {one.value}", one.source)
        by_names.setdefault(", ".join(_names(one, rows, told)), []).append(line)
    say("", "Settings, and where each is from:")
    for names, lines in by_names.items():
        say("")
        print_table((names, "from"), sorted(lines))
    say("")
    say_wrapped("All else: the lines without a system of simgrad/studies/published/settings.csv.")


class _Told(NamedTuple):
    field: str
    when: str
    value: str
    source: str


def _names(one: _Told, rows: list[Row], told: dict[_Told, list[Row]]) -> list[str]:
    """Groups, where all their rows that a setting can be about have it, else single rows."""
    about: dict[str, set[str]] = {}  # group -> rows with some setting of that round or objective
    for other, having in told.items():
        for row in having if other.when == one.when else ():
            about.setdefault(row.group, set()).add(row.label)
    have = {row.label for row in rows}
    whole = {group for group, labels in about.items() if group and labels <= have}
    return list(dict.fromkeys(row.group if row.group in whole else row.label for row in rows))


def _rounds(plan: Plan, row: Row) -> list[Recipe]:
    recipe = plan.recipe(row, plan.seeds[0])
    return [recipe] if recipe.second_round is None else [recipe, recipe.round_two()]


def _show_space(plan: Plan) -> None:
    """What is searched for each row."""
    assert plan.tune is not None
    recipes = [plan.recipe(row, 0) for row in plan.rows]
    fixed = told_apart(recipes)
    rows = []
    for row, recipe in zip(plan.rows, recipes, strict=True):
        for key, where in space_of(plan.tune.of_row(row.space), recipe, fixed).items():
            among = where if isinstance(where, Range) else ", ".join(map(print_value, where))
            crossed = ", each with every point" if isinstance(where, CrossedRanges) else ""
            rows.append((row.label, key, f"{among}{crossed}"))
    further = f", {plan.tune.further} more of finalists" if plan.tune.further else ""
    title = f"{plan.tune.trials} trials for each row ({plan.tune.search}{further}), searched:"
    print_table(("row", "what", "where"), rows, title=title)
    for line in left_out(plan):
        say_wrapped(line)
    print()
