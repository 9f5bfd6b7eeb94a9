"""`simgrad study`: many runs, one table."""

import dataclasses
from json import dumps
from math import nan
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from simgrad.cli.dry_run import dry_run as look
from simgrad.core.console import print_table, say, say_wrapped
from simgrad.core.errors import InputError
from simgrad.core.tables import Bold
from simgrad.core.text import told_once
from simgrad.core.typed import checked
from simgrad.data.benchmarks import BENCHMARKS
from simgrad.data.opening import EMBEDDED
from simgrad.evaluation import Estimate
from simgrad.runs.outcome import has_diverged
from simgrad.studies.check import check_study
from simgrad.studies.cluster import run_ray
from simgrad.studies.engine import failures, run_local
from simgrad.studies.ensembles import complete_ensembles
from simgrad.studies.placing import placed, places
from simgrad.studies.plan import Plan, offers_of, read_plan
from simgrad.studies.space import check_tuning, left_out
from simgrad.studies.study import Study
from simgrad.studies.study_file import StudyFile
from simgrad.studies.table import (
    StudyTable,
    build_table,
    header,
    number,
    printed_tuning,
    significance,
    write_tables,
)
from simgrad.studies.tune import Tune
from simgrad.studies.verdict import sentences


def study(
    plan: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY", help_behavior_hint="")
    ] = None,
    *,
    data: str | None = None,
    features: str | None = None,
    regions: str | None = None,
    only: str | None = None,
    output: str | None = None,
    seeds: int | None = None,
    trials: int | None = None,
    replicates: int | None = None,
    fast: bool = False,
    dry_run: bool = False,
    time: bool = False,
    engine: Literal["local", "ray"] = "local",
    processes: int | None = None,
    device: str | None = None,
    threads: int | None = None,
    schema: bool = False,
    check: bool = False,
) -> list[dict[str, Any]]:
    """Train a grid of runs and print one table. To resume, run it again.

    Args:
        plan: a study file, e.g. recipes/bleeker-table1.yaml, or the folder of a study to resume
        data: use this data set instead of the file's: `scenes`, a file or folder, or a folder of
            several data sets (docs/reproduce.md). Flickr30k and COCO have their own settings and
            published numbers in a study file
        features: folder written by `simgrad features` for that data
        regions: the same for models that read regions: a folder written with --grid, or a data set
            of region features
        only: f30k or coco: use only this data set, if the folder or the study file has both
        output: folder of the study (default: studies/NAME)
        seeds: number of seeds; a higher number extends a study
        trials: tune first: try N settings of each row, choose on the validation split, then train
            all seeds with the chosen setting (needs the extra `tune`)
        replicates: search and test every row N times, with other settings, finalists and seeds each
            time, so that the luck of the search shows (with --trials or a tuned study)
        fast: a small version: narrow models, half the batch, a tenth of the epochs, learning rate
            0.001, one epoch of `triplet` first, two seeds; fields in which rows differ stay
        dry_run: open the data and model of every row and print what each reads, without training:
            which rows are ready, what blocks the others, how many steps and how much disk
        time: with --dry-run: train each model for some seconds, and say how many minutes all take
        engine: local processes, or a Ray cluster (needs the extra `ray`)
        processes: number of worker processes; by default as many as help
        device: auto, cpu, cuda, cuda:N or mps
        threads: computing threads of each run on a CPU; by default the cores are shared out when
            the study begins, and it keeps the number
        schema: print the JSON schema of study files, for editors, and exit
        check: for a study folder: compute every number again from the stored ranks, and fail if one
            differs
    """
    if time and not dry_run:
        raise InputError("--time belongs to --dry-run: a study that is run shows its pace.")
    if schema:
        print(dumps(described := StudyFile.model_json_schema(), indent=1))
        return [described]
    if plan is None:
        raise InputError("name a study file or a study folder.")
    path = Path(plan)
    if check:
        return [_check(path)]
    if path.is_dir():
        several = [(Study.open(path).plan, path)]
    else:
        several = _on_data(path, data, features, regions, only, output, fast, bool(trials))
    if not path.is_dir() and data is None and several[0][0].offers:
        if not dry_run:
            about = ", ".join(BENCHMARKS[name].title for name in several[0][0].offers)
            raise InputError(
                f"{path} is about {about}: give the data with --data (docs/reproduce.md), or "
                "`--data scenes` to try it on drawn scenes."
            )
        for number, name in enumerate([only] if only else several[0][0].offers):
            if number:
                say("")
            chosen = adapt(
                read_plan(path, name), fast=fast, seeds=seeds, trials=trials, replicates=replicates
            )
            look(chosen, opened=False)
        return []
    tables = []
    for number, (chosen, folder) in enumerate(several):
        chosen = adapt(
            chosen,
            fast=fast,
            seeds=seeds,
            device=device,
            trials=trials,
            replicates=replicates,
            threads=threads,
        )
        if dry_run:
            if number:
                say("")
            look(chosen, timed=time)
            continue
        made = Study.create(chosen, folder)
        first = f"{chosen.trainings} trials, then " if chosen.tune else ""
        say(f"{chosen.title}: {first}{len(chosen.runs())} runs in {folder}", stderr=True)
        for line in left_out(chosen):
            say(line, stderr=True)
        if engine == "ray":
            run_ray(made, processes)
        else:
            run_local(made, processes)
        tables.append({"study": str(made.path), **conclude(made, device or "auto").to_dict()})
    return tables


def _on_data(
    path: Path,
    data: str | None,
    features: str | None,
    regions: str | None,
    only: str | None,
    output: str | None,
    fast: bool,
    tuned: bool,
) -> list[tuple[Plan, Path]]:
    """A study file on the data it is given, and its folder; on a tree of data sets, on each."""
    offers = offers_of(path)
    if only is not None and only not in offers:
        about = ", ".join(offers) or "no data set in particular"
        raise InputError(f"--only {only}: {path} is about {about}.")
    on = places(offers, data, features, regions, only) if data not in (None, EMBEDDED) else []
    endings = [place.known.name if place.known and offers else _last(data) for place in on]
    name = path.stem + ("-fast" if fast else "") + ("-tuned" if tuned else "")
    names = [name] if data is None else [f"{name}-{ending}" for ending in endings or [data]]
    folders = [Path("studies") / name for name in names]
    if output is not None:
        folders = [Path(output)] if len(names) == 1 else [Path(output) / name for name in names]
    # The file may name what is in a user's own file that a folder was begun with.
    for folder in folders:
        Study(folder).bring_back_files()
    plan = read_plan(path, only)
    if data == EMBEDDED:
        sizes = {"train": 1000, "val": 200, "test": 200} if fast else {}
        plans = [plan.on_embedded(**sizes)]
    elif data is None:
        moved = features is not None or regions is not None
        plans = [plan.on_data(plan.base.data, features, regions) if moved else plan]
    else:
        plans = [placed(path, place) for place in on]
    return list(zip(plans, folders, strict=True))


def _last(data: str | None) -> str:
    """DATA/coco(...) -> coco"""
    return Path((data or "").split("(")[0]).name


def adapt(
    plan: Plan,
    *,
    fast: bool = False,
    seeds: int | None = None,
    device: str | None = None,
    trials: int | None = None,
    replicates: int | None = None,
    threads: int | None = None,
) -> Plan:
    """The same study as the options say."""
    if fast:
        plan = plan.fast()
    if device is not None:
        plan = plan.changed(device=device)
    if threads is not None:
        plan = plan.changed(threads=threads)
    if seeds is not None:
        if seeds < 1:
            raise InputError("--seeds must be at least 1.")
        plan = dataclasses.replace(plan, seeds=tuple(range(seeds)))
    if trials is not None:
        told = {} if plan.tune is None else plan.tune.to_dict()
        plan = dataclasses.replace(plan, tune=checked(Tune, {**told, "trials": trials}, "--trials"))
    if replicates is not None:
        if plan.tune is None:
            raise InputError("--replicates are of a search: give --trials, too.")
        told = {**plan.tune.to_dict(), "replicates": replicates}
        plan = dataclasses.replace(plan, tune=checked(Tune, told, "--replicates"))
    check_tuning(plan, plan.title)  # after all that may have changed it
    return plan


def _check(path: Path) -> dict[str, Any]:
    """Every number of a study again; an error names those that differ."""
    study = Study.open(path)
    done = check_study(study)
    for line in done.problems:
        say(line, stderr=True)
    if done.problems:
        raise InputError(
            f"{path}: {len(done.problems)} of {done.compared:,} numbers differ when computed again."
        )
    say(f"{path}: {done.compared:,} numbers of {done.runs} runs computed again: all the same.")
    return {"study": str(path), "runs": done.runs, "same": done.compared}


def conclude(made: Study, device: str = "auto") -> StudyTable:
    """Ensembles tested, tables on the terminal and on disk; failures named."""
    waiting = complete_ensembles(made, device)
    table = build_table(made)
    write_tables(table, made.path)
    show(table)
    for line in ["", *sentences(made)]:
        say_wrapped(line)
    say(f"\ntables: {made.path}/table.{{csv,md,tex,json}}   runs: {made.path}/runs")
    lost = [run for run in made.runs if has_diverged(run)]
    for line in told_once([(run.name, str(run.info.get("error", "NaN"))) for run in lost]):
        say_wrapped(f"diverged, which counts: {line}", stderr=True)
    broken = [*failures(made), *waiting]
    for line in told_once(broken):
        say(f"not finished: {line}", stderr=True)
    if broken:
        raise InputError(
            f"{len(broken)} runs did not finish; run the same command again to retry them. You may "
            "correct the study file first."
        )
    return table


def show(table: StudyTable) -> None:
    """The table on a terminal of 80 columns: recalls, then what differs from the baseline."""
    metrics = table.shown
    head = ["", *(header(m).replace(" R", "\nR") for m in metrics)]
    rows = []
    for row in table.rows:
        cells = []
        for metric in metrics:
            cell = row.cells.get(metric, Estimate(nan))
            # There is room for one deviation: that of the sum.
            text = number(cell if metric == "rsum" else (cell.mean, None), metric)
            cells.append(Bold(text) if metric in row.best else text)
        rows.append([row.label, *cells])
        if row.published:
            there = [number((row.published.get(m, (nan, None))[0], None), m) for m in metrics]
            rows.append([f"  {row.beside}", *there])
    print_table(head, rows, title=table.head)
    for note in table.notes:
        say_wrapped(f"\n{note}")
    tuned = printed_tuning(table)
    if tuned is not None:
        print()
        columns = (*tuned.columns[:-1], f"{tuned.columns[-1]} [95%] p")
        print_table(columns, tuned.rows, title=tuned.title)
        for line in tuned.notes:
            say_wrapped(line)
        return
    versus = [
        (r.label, "baseline" if r.baseline else significance(r.difference) or "–", r.seeds)
        for r in table.rows
    ]
    if any(r.difference for r in table.rows):
        print()
        print_table(("rsum against the baseline", "difference [95%] p", "seeds"), versus)
