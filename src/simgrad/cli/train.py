"""`simgrad train`: one run."""

import dataclasses
import os
import shlex
import typing
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import tyro

from simgrad.cli.options import default_hint
from simgrad.core.console import print_table, say
from simgrad.core.errors import InputError
from simgrad.core.spec import print_value
from simgrad.evaluation import headlines, metric_of
from simgrad.runs.recipe import Recipe, grouped, read_recipe
from simgrad.runs.recipe_names import check_names
from simgrad.runs.run import RECIPE, Run
from simgrad.training.rounds import default_folder
from simgrad.training.rounds import train as run_training

# No option: it holds fields of its own.
_IN_FILES_ONLY = ("second_round",)


def _options() -> type[Any]:
    """Every field of a recipe as an option that overrides the recipe, in groups."""
    hints = typing.get_type_hints(Recipe)
    groups = []
    for title, names in grouped(Recipe.model_fields).items():
        options = []
        for name in names:
            if name in _IN_FILES_ONLY:
                continue
            field = Recipe.model_fields[name]
            text = tyro.conf.arg(help=field.description, help_behavior_hint=_default(field.default))
            option: Any = Annotated.__class_getitem__((hints[name] | None, text))  # type: ignore[attr-defined]
            options.append((name, option, None))
        groups.append(_group(title, options))
    return dataclasses.make_dataclass("Options", groups)


def _group(title: str, fields: list[Any]) -> tuple[str, Any]:
    kind = dataclasses.make_dataclass("Group", fields)
    named = tyro.conf.arg(name=title, help="")
    return fields[0][0], Annotated.__class_getitem__((kind, named))  # type: ignore[attr-defined]


def _default(value: Any) -> str:
    if isinstance(value, tuple):
        return default_hint(" ".join(map(print_value, value)))
    return default_hint(str(value) if isinstance(value, bool) else print_value(value))


Options = _options()


def train(
    recipe: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RECIPE]", help_behavior_hint="")
    ] = None,
    *,
    output: Annotated[str | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = None,
    resume: bool = True,
    quiet: bool = False,
    schema: bool = False,
    options: Annotated[Options, tyro.conf.arg(name="")],  # type: ignore[valid-type]
) -> dict[str, Any]:
    """Train one model with one objective. To resume, run the same command again.

    The options in groups, from `data` on, are the fields of a recipe; an option overrides the
    recipe file. One field can be set in a file only: `second_round`, the fields of a second
    round with mined negatives (docs/training.md).

    Args:
        recipe: a YAML file; without one, VSE++'s published schedule with an objective and a rate
            of our own, on `scenes`
        output: folder of the run (default: runs/MODEL-OBJECTIVE-DATA-sSEED)
        resume: continue a run that is already in the folder; --no-resume refuses instead
        quiet: print only the result
        schema: print the JSON schema of recipes, for editors, and exit
        options: fields of the recipe, which they override
    """
    if schema:
        print(dumps(described := Recipe.model_json_schema(), indent=1))
        return described
    groups = (vars(group) for group in vars(options).values())
    given = {k: v for group in groups for k, v in group.items() if v is not None}
    chosen = read_recipe(recipe, **given)
    if output is None or not (Path(output) / RECIPE).is_file():  # else it was when it began
        check_names(chosen, recipe or "recipe")
    folder = Path(output) if output else default_folder(chosen)
    if not resume and (folder / "recipe.yaml").exists():
        raise InputError(f"{folder} holds a run already: give another --output, or --resume.")

    run = run_training(chosen, folder, quiet=quiet)
    if os.environ.get("RANK", "0") == "0":  # of torchrun's processes one speaks
        summarise(run)
        if run.finished and not quiet:
            _say_next(run.path)
    if not run.finished:
        raise SystemExit(130)  # scripts see that it was stopped
    return {"run": str(run.path), "test": run.test, "also": run.also, **run.info}


def _say_next(path: Path) -> None:
    name = shlex.quote(str(path))
    say(
        f'next: simgrad search {name} "some words"',
        f"      simgrad report {name}",
        f"      simgrad evaluate {name} ANOTHER --output table.tex",
    )


def summarise(run: Run) -> None:
    """What a person wants to know when training ends."""
    info, test = run.info, run.test
    if info["status"] != "finished":
        say(f"{info['status']} at step {info['steps']}; run the same command again to resume.")
        return
    if test:
        shown = [metric_of(name) for name in headlines() if name in test]
        row = [one.format(test[one.name]) for one in shown]
        head = [one.heading for one in shown]
        print_table(("test split", *head), [(run.recipe.objective, *row)])
    _summarise_also(run)
    best = info["best"]
    say(f"best at step {best['step']} of {info['steps']}; {info['seconds']:.0f} s; in {run.path}")
    if best["step"] == 0 and info["steps"]:
        say("step 0 is before training: no later step was better on the validation split.")


def _summarise_also(run: Run) -> None:
    if run.remembered:
        name, before, after = run.remembered
        values = f"{before:.1f}", f"{after:.1f}"
        print_table((f"other data: {run.also['dataset']}", "before", "after"), [(name, *values)])
