"""`simgrad study`: many runs, one table."""

import dataclasses
import sys
from json import dumps
from math import nan
from pathlib import Path
from typing import Annotated, Literal

import tyro

from simgrad.core.console import print_table, say
from simgrad.core.errors import InputError
from simgrad.core.spec import Range, print_value
from simgrad.core.tables import Strong
from simgrad.core.typed import checked
from simgrad.data.opening import EMBEDDED
from simgrad.evaluation import Estimate, metric_of
from simgrad.studies.check import check_study
from simgrad.studies.engine import failures, run_local, run_ray
from simgrad.studies.looking import look_at, told_once
from simgrad.studies.plan import Plan, StudyFile, check_tuning, read_plan
from simgrad.studies.space import Tune, space_of, told_apart
from simgrad.studies.study import Study
from simgrad.studies.table import (
    StudyTable,
    build_table,
    header,
    number,
    printed_tuning,
    significance,
    write_tables,
)


def study(
    plan: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY", help_behavior_hint="")
    ] = None,
    *,
    data: str | None = None,
    features: str | None = None,
    regions: str | None = None,
    output: str | None = None,
    seeds: int | None = None,
    trials: int | None = None,
    fast: bool = False,
    dry_run: bool = False,
    engine: Literal["local", "ray"] = "local",
    processes: int | None = None,
    side_by_side: int | None = None,
    device: str | None = None,
    schema: bool = False,
    check: bool = False,
) -> None:
    """Train a grid of runs and print one table; stopped, the same command goes on.

    Args:
        plan: a study file, e.g. recipes/bleeker-table1.yaml, or a study folder to go on with.
        data: another data set than the file names: `scenes`, or a file or folder.
        features: folder written by `simgrad features` for that data.
        regions: the same for models that look at regions: a folder written with --grid, or a data
            set of region features.
        output: folder of the study; studies/NAME if left out.
        seeds: how many seeds; more than before extends a study.
        trials: tune first: try so many settings of each row, choose by validation, and train the
            seeds with what was chosen (extra `tune`).
        fast: a small version: narrow models, half the batch, a tenth of the epochs, two seeds.
        dry_run: open every row's data and model, and print what each reads, without training.
        engine: local processes, or a Ray cluster (extra `ray`).
        processes: worker processes; as many as help if left out.
        side_by_side: runs that each process packs onto its GPU.
        device: auto, cpu, cuda, cuda:N or mps.
        schema: print the JSON schema of study files, for editors, and train nothing.
        check: of a study's folder: compute every number again from the ranks that were kept, and
            fail where one differs.
    """
    if schema:
        print(dumps(StudyFile.model_json_schema(), indent=1))
        return
    if plan is None:
        raise InputError("name a study file or a study folder.")
    path = Path(plan)
    if check:
        _check(path)
        return
    if path.is_dir():
        chosen, folder = Study.open(path).plan, path
    else:
        chosen = read_plan(path)
        name = path.stem + ("-fast" if fast else "") + ("-tuned" if trials else "")
        if data is not None:
            name += "-" + Path(data.split("(")[0]).name
        folder = Path(output) if output else Path("studies") / name
    chosen = adapt(chosen, data, features, regions, fast, seeds, device, trials)
    if dry_run:
        _look_at(chosen)
        return
    made = Study.create(chosen, folder)
    first = f"{len(chosen.rows) * chosen.tune.trials} trials, then " if chosen.tune else ""
    say(f"{chosen.title}: {first}{len(chosen.runs())} runs in {folder}", stderr=True)
    if engine == "ray":
        run_ray(made, processes, side_by_side)
    else:
        run_local(made, processes, side_by_side)
    conclude(made)


def adapt(
    plan: Plan,
    data: str | None,
    features: str | None,
    regions: str | None,
    fast: bool,
    seeds: int | None,
    device: str | None,
    trials: int | None = None,
) -> Plan:
    if fast:
        plan = plan.fast()
    if data == EMBEDDED:
        plan = plan.on_embedded(**({"train": 1000, "val": 200, "test": 200} if fast else {}))
    elif data is not None or features is not None or regions is not None:
        plan = plan.on_data(data or plan.base.data, features, regions)
    if device is not None:
        plan = plan.changed(device=device)
    if seeds is not None:
        if seeds < 1:
            raise InputError("--seeds must be at least 1.")
        plan = dataclasses.replace(plan, seeds=tuple(range(seeds)))
    if trials is not None:
        told = {} if plan.tune is None else plan.tune.to_dict()
        plan = dataclasses.replace(plan, tune=checked(Tune, {**told, "trials": trials}, "--trials"))
    check_tuning(plan, plan.title)  # after all that may have changed it
    return plan


def _check(path: Path) -> None:
    """Every number of a study again; an error names those that differ."""
    study = Study.open(path)
    done = check_study(study)
    for line in done.problems:
        say(line, stderr=True)
    if done.problems:
        raise InputError(f"{path}: {len(done.problems)} of {done.compared:,} numbers do not hold.")
    say(f"{path}: {done.compared:,} numbers of {done.runs} runs computed again: all the same.")


def _look_at(plan: Plan) -> None:
    """What each row reads; fails where the study would."""
    seen = look_at(plan)
    rows, data, broken = [], [], []
    for row, found in seen:
        if isinstance(found, InputError):
            broken.append((row.label, str(found)))
            continue
        recipe, seed = plan.recipe(row, plan.seeds[0]), plan.seeds[0]
        sizes = (found.images, f"{found.parameters:,}", f"{found.words:,}")
        rows.append((row.label, row.folder(seed), *sizes, recipe.epochs, recipe.batch))
        data.append((row.label, found.data))
    if plan.tune is not None:
        _show_space(plan)
    if rows:
        head = ("row", "first run", "reads", "weights", "words", "epochs", "batch")
        print_table(head, rows, title=f"{plan.title}: {len(plan.runs())} runs")
    same = len({text for _, text in data}) == 1
    for line in [data[0][1]] if same else told_once(data):
        print(f"data of {line}" if not same else f"data: {line}")
    for line in told_once(broken):
        print(line, file=sys.stderr)
    if broken:
        raise InputError(f"{len(broken)} of {len(seen)} rows cannot be run.")


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


def conclude(made: Study) -> None:
    """Tables on the terminal and on disk; failures named."""
    table = build_table(made)
    write_tables(table, made.path)
    show(table)
    say(f"\ntables: {made.path}/table.{{csv,md,tex,json}}   runs: {made.path}/runs")
    broken = failures(made)
    for line in told_once(broken):
        say(f"not finished: {line}", stderr=True)
    if broken:
        raise InputError(
            f"{len(broken)} runs are not finished; the same command goes on. A corrected study "
            "file may go on in the same folder."
        )


def show(table: StudyTable) -> None:
    """The table on a terminal of 80 columns: recalls, then what differs from the baseline."""
    recalls = [m for m in table.metrics if metric_of(m).label.startswith("R@")]
    rest = [m for m in table.metrics if m not in recalls]
    metrics = [*recalls, *rest]
    head = ["", *(header(m).replace(" R", "\nR") for m in recalls), *map(header, rest)]
    rows = []
    for row in table.rows:
        cells = []
        for metric in metrics:
            cell = row.cells.get(metric, Estimate(nan))
            # There is room for one deviation: that of the sum.
            text = number(cell if metric == "rsum" else (cell.mean, None), metric)
            cells.append(Strong(text) if metric in row.best else text)
        rows.append([row.label, *cells])
        if row.published:
            there = [number((row.published.get(m, (nan, None))[0], None), m) for m in metrics]
            rows.append([f"  {table.published}", *there])
    print_table(head, rows, title=table.title)
    if table.claim:
        say(f"\nThe paper: {table.claim}")
    tuned = printed_tuning(table)
    if tuned is not None:
        print()
        print_table(tuned.columns, tuned.rows, title=tuned.title)
        for line in tuned.notes:
            say(line)
        return
    versus = [
        (r.label, "baseline" if r.baseline else significance(r.difference) or "–", r.seeds)
        for r in table.rows
    ]
    if any(r.difference for r in table.rows):
        print()
        print_table(("rsum against the baseline", "difference [95%] Holm's p", "seeds"), versus)
