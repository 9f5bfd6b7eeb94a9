"""What a study would do, without training: both rounds of every row, its test, whose settings."""

import sys
from pathlib import Path

from simgrad.core.console import print_table, say
from simgrad.core.errors import InputError
from simgrad.core.spec import Range, print_value
from simgrad.evaluation.protocols import find_protocol
from simgrad.runs.recipe import Recipe
from simgrad.studies.looking import look_at, told_once
from simgrad.studies.papers import beside
from simgrad.studies.plan import Plan, Row
from simgrad.studies.settings import published_settings
from simgrad.studies.space import space_of, told_apart


def dry_run(plan: Plan, opened: bool = True) -> None:
    """What each row reads, trains and tests; fails where the study would.

    Not `opened`: no data were given, so that it says what the file says.
    """
    seen = look_at(plan) if opened else [(row, None) for row in plan.rows if not row.ensemble]
    rows, data, tests, words, broken = [], [], [], [], []
    for row, found in seen:
        if isinstance(found, InputError):
            broken.append((row.label, str(found)))
            continue
        recipe = plan.recipe(row, plan.seeds[0])
        sizes, test = (_READS[plan.model(row).reads], "", ""), _defined(recipe)
        if found is not None:
            sizes = (found.images, f"{found.parameters:,}", f"{found.words:,}")
            test = found.tested
            data.append((row.label, found.data))
        rows.append((row.label, *sizes, *_schedule(recipe)))
        if recipe.second_round is not None:
            rows.append(("  second round", "", "", "", *_schedule(recipe.round_two())))
        tests.append((row.label, _test(recipe, test)))
        words.append((row.label, _words(recipe)))
    for row in plan.rows:
        if row.ensemble:
            count = row.ensembles(len(plan.seeds))
            line = f"mean of {', '.join(row.ensemble)} ({count})"
            rows.append((row.label, line, *[""] * (len(rows[0]) - 2 if rows else 0)))
    if plan.tune is not None:
        _show_space(plan)
    if rows:
        head = ("row", "reads", "weights", "words", "objective", "epochs", "batch", "lr", "decay")
        print_table(head, rows, title=_title(plan))
    for name, told in (("data", data), ("test", tests), ("words", words)):
        same = len({text for _, text in told}) == 1
        for line in [told[0][1]] if same else told_once(told):
            print(f"{name}: {line}")
    for line in _published(plan):
        print(line)
    _sources(plan)
    for line in told_once(broken):
        print(line, file=sys.stderr)
    if broken:
        raise InputError(f"{len(broken)} of {len(seen)} rows cannot be run.")


_READS = {"global": "pictures or features", "regions": "regions", "pixels": "pictures"}


def _defined(recipe: Recipe) -> str:
    """What a protocol is about, before there are data."""
    return f"{find_protocol(recipe.protocol)} (protocol {recipe.protocol})"


def _title(plan: Plan) -> str:
    settings = f", settings for {plan.dataset}" if plan.dataset else ""
    seeds = "1 seed" if len(plan.seeds) == 1 else f"{len(plan.seeds)} seeds"
    return f"{plan.title}: {len(plan.runs())} runs, {seeds}{settings}"


def _schedule(recipe: Recipe) -> tuple[str, ...]:
    """Objective, epochs, batch, rate and when it falls."""
    epochs, rate = str(recipe.epochs), print_value(recipe.lr)
    if recipe.finetune_epochs:
        epochs += f" + {recipe.finetune_epochs}"
        rate += f", {print_value(recipe.finetune_lr)}"
    decay = f"/10 every {recipe.decay_every}" if recipe.decay == "step" else recipe.decay
    return recipe.objective, epochs, str(recipe.batch), rate, decay


def _test(recipe: Recipe, tested: str) -> str:
    if recipe.rerank is None:
        return tested
    return f"{tested}, first {recipe.rerank or 'candidates'} of a query ranked again"


def _words(recipe: Recipe) -> str:
    if recipe.start_from is not None:
        return f"those of {Path(recipe.start_from).name}, whose weights it starts from"
    if recipe.vocabulary is None:
        return "from the training captions, or the model's own word pieces"
    return f"published vocabulary {Path(recipe.vocabulary).name}"


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
            told = f"{found.dataset}, {test}{'' if fits else ': NOT like ours'}"
            kinds[told] = kinds.get(told, 0) + 1
    table = plan.published["table"]
    return [f"published: {table}, {told} (beside {count} rows)" for told, count in kinds.items()]


def _sources(plan: Plan) -> None:
    """Where every setting is from, once for rows that share them."""
    told: dict[tuple[str, str, str], list[str]] = {}
    for row in plan.rows:
        if row.ensemble or not row.source:
            continue
        for number, recipe in enumerate(_rounds(plan, row), 1):
            found = published_settings(row.source, plan.dataset, recipe, number)
            for setting in found.values():
                if setting.system:  # what holds for all of them is in the file
                    value = print_value(setting.value)
                    key = (setting.field, str(value), setting.source)
                    told.setdefault(key, []).append(row.group or row.label)
    if told:
        rows = [(", ".join(dict.fromkeys(groups)), *key) for key, groups in told.items()]
        say("")
        print_table(("rows", "setting", "value", "from"), sorted(rows), title="Sources")
        say("All else: the lines without a system of simgrad/studies/published/settings.csv.")


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
        for key, where in space_of(plan.tune, recipe, fixed).items():
            among = where if isinstance(where, Range) else ", ".join(map(print_value, where))
            rows.append((row.label, key, str(among)))
    title = f"{plan.tune.trials} trials for each row ({plan.tune.search}), searched:"
    print_table(("row", "what", "where"), rows, title=title)
    print()
