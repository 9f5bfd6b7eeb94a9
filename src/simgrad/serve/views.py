"""The pages, rendered by the server; everything a template prints is escaped."""

import base64
import json
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, File, Form, Query, Request, UploadFile
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

import simgrad
from simgrad.evaluation import headlines, metric_of
from simgrad.serve import bench, charts, facts, schemas
from simgrad.serve.api import MOST_RUNS, Id, Runs, Service, SplitName, Top, picture_address
from simgrad.serve.lab import Lab
from simgrad.studies.table import header, number, significance

_SUGGESTIONS = 6


@lru_cache(maxsize=1)
def _environment() -> Environment:
    folder = str(files("simgrad.serve").joinpath("pages"))
    made = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"duration": duration, "metric": header, "cell": number, "versus": significance}
    made.globals["version"] = simgrad.__version__
    return made


def render(template: str, request: Request, **values: Any) -> str:
    """A page; half surrogates in captions become question marks, as UTF-8 has none."""
    text = _environment().get_template(template).render(path=request.url.path, **values)
    return text.encode("utf-8", "replace").decode()


def page(template: str, request: Request, **values: Any) -> HTMLResponse:
    return HTMLResponse(render(template, request, **values))


def duration(seconds: float | None) -> str:
    """8 s, 3 min, 2.5 h"""
    if seconds is None:
        return "–"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def routes(service: Service, app: FastAPI) -> APIRouter:
    """All pages."""
    router = APIRouter(default_response_class=HTMLResponse)
    lab, disk = service.lab, service.files

    @router.get("/")
    async def home(request: Request) -> HTMLResponse:
        return page("home.html", request, found=await disk.run(facts.overview, lab))

    @router.get("/runs/{run}")
    async def run_page(request: Request, run: Id) -> HTMLResponse:
        detail = await disk.run(facts.run_detail, lab, run)
        tested = await disk.run(facts.tested, lab.run(run))
        drawn = run_charts(detail.history)
        return page("run.html", request, run=detail, charts=drawn, tested=tested)

    @router.get("/studies/{study}")
    async def study_page(request: Request, study: Id) -> HTMLResponse:
        values = await disk.run(study_values, lab, study)
        return page("study.html", request, **values)

    @router.get("/search")
    async def search(
        request: Request,
        q: Annotated[schemas.Text, Query()] = "",
        run: Runs = [],  # noqa: B006 (FastAPI copies defaults)
        split: SplitName = "test",
        top: Top = 12,
        origin: Annotated[schemas.Name | None, Query()] = None,
        row: Annotated[int, Query(ge=0)] = 0,
    ) -> HTMLResponse:
        results = []
        if origin is not None:
            results = await service.row(origin, row, run, split, top)
        elif q.strip():
            results = await service.sentence(q, run, split, top)
        values = await disk.run(search_values, service, run, split)
        asked = None if origin is None else picture_address(origin, split, row)
        shown = {"query": q if origin is None else "", "upload": None, "asked": asked}
        return page("search.html", request, **values, **shown, results=results, top=top)

    @router.post("/search/picture")
    async def search_picture(
        request: Request,
        picture: Annotated[UploadFile, File()],
        run: Annotated[list[schemas.Name], Form(max_length=8)] = [],  # noqa: B006 (as above)
        split: Annotated[schemas.Name, Form()] = "test",
        top: Annotated[int, Form(ge=1, le=100)] = 12,
    ) -> HTMLResponse:
        data = await picture.read()
        label = (picture.filename or "picture")[:200]
        results = await service.picture(data, label, run, split, top)
        small = await disk.run(lab.decoders.jpeg, data, 320)
        upload = {
            "name": label,
            "address": "data:image/jpeg;base64," + base64.b64encode(small).decode(),
        }
        values = await disk.run(search_values, service, run, split)
        shown = {"query": "", "upload": upload, "asked": None}
        return page("search.html", request, **values, **shown, results=results, top=top)

    @router.get("/bench")
    async def bench_page(request: Request) -> HTMLResponse:
        runs = await disk.run(lambda: {k: r.recipe.objective for k, r in lab.searchable().items()})
        declared = [entry.model_dump() for entry in bench.declared()]
        return page("bench.html", request, runs=runs, declared=json.dumps(declared))

    @router.get("/api")
    async def api_page(request: Request) -> HTMLResponse:
        return page("api.html", request, operations=operations(app))

    return router


def run_charts(history: list[dict[str, Any]]) -> list[charts.Chart]:
    """Loss, recalls and attention over epochs."""
    recall = [
        charts.Line(metric_of(name).heading, charts.curve(history, "val", name))
        for name in headlines()
        if metric_of(name).direction and metric_of(name).bounds == (0, 100)
    ]
    effective = [
        charts.Line(way, charts.curve(history, "attention", way, "effective"))
        for way in ("i2t", "t2i")
    ]
    made = [
        charts.chart(
            "Validation rsum",
            "epoch",
            [charts.Line("rsum", charts.curve(history, "val", "rsum"))],
        ),
        charts.chart("Validation recall", "epoch", recall),
        charts.chart("Loss", "epoch", [charts.Line("loss", charts.curve(history, "loss"))]),
        charts.chart("Negatives that count (effective number)", "epoch", effective),
    ]
    return [chart for chart in made if chart is not None]


def study_values(lab: Lab, name: str) -> dict[str, Any]:
    """What the comparison page shows."""
    study = lab.study(name)
    rsum, effective, diagrams = [], [], []
    ids = {run.path: key for key, run in lab.runs_of(name).items()}
    for row in study.plan.rows:
        runs = [run for run in study.runs if lab_label(study, run.path.name) == row.label]
        histories = [facts.thinned(run.history) for run in runs]
        mean = [charts.curve(history, "val", "rsum") for history in histories]
        rsum.append(charts.Line(row.label, charts.mean_curve(mean)))
        spread = [charts.curve(history, "attention", "i2t", "effective") for history in histories]
        effective.append(charts.Line(row.label, charts.mean_curve(spread)))
        if runs:
            diagrams.append((row.label, ids[runs[0].path]))
    made = [
        charts.chart("Validation rsum", "epoch", rsum),
        charts.chart("Negatives that count, image queries", "epoch", effective),
    ]
    return {
        "study": facts.study_summary(lab, name),
        "table": facts.table(study),
        "charts": [chart for chart in made if chart is not None],
        "diagrams": diagrams[:12],
        "runs": [facts.run_summary(lab, key, run) for key, run in lab.runs_of(name).items()],
    }


def lab_label(study: Any, folder: str) -> str:
    """The row that a run's folder belongs to."""
    return next((row.label for name, row, _ in study.plan.runs() if name == folder), "")


def search_values(service: Service, runs: list[str], split: str) -> dict[str, Any]:
    """The form of the search page."""
    lab = service.lab
    searchable = lab.searchable()
    chosen = runs or list(searchable)[:MOST_RUNS]
    names: dict[str, None] = {}
    examples: list[str] = []
    for name in chosen:
        if name in searchable:
            found = facts.splits(lab, searchable[name])
            names |= dict.fromkeys(found)
            if not examples and split in found:
                captions = lab.split(name, split).captions
                step = max(1, len(captions) // _SUGGESTIONS)
                examples = [captions[i] for i in range(0, len(captions), step)][:_SUGGESTIONS]
    return {
        "searchable": {key: run.recipe.objective for key, run in searchable.items()},
        "chosen": chosen,
        "splits": list(names) or [split],
        "split": split,
        "examples": examples,
        "limits": lab.limits,
    }


def operations(app: FastAPI) -> list[dict[str, Any]]:
    """The API as its page lists it."""
    found = []
    for address, methods in app.openapi()["paths"].items():
        for method, told in methods.items():
            found.append(
                {
                    "method": method.upper(),
                    "address": address,
                    "description": told.get("description", ""),
                    "parameters": [p["name"] for p in told.get("parameters", [])],
                }
            )
    return found
