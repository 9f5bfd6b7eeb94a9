"""The pages, rendered by the server; everything a template prints is escaped."""

import base64
import json
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, FastAPI, File, Form, Query, Request, Response, UploadFile
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BeforeValidator, Field

import simgrad
from simgrad.analysis.count_labels import COUNT_LABELS
from simgrad.core.text import duration
from simgrad.evaluation import metric_of
from simgrad.lab import bench, facts, panels, schemas
from simgrad.lab.api import Id, Runs, SplitName, Top
from simgrad.lab.service import MOST_RUNS, Service, picture_address
from simgrad.pages import rendering
from simgrad.pages.glossary import explain
from simgrad.search.results import percent

_SUGGESTIONS = 6
# A field that was left empty arrives as "".
Wanted = Annotated[
    Annotated[float, Field(ge=0, le=1)] | None,
    BeforeValidator(lambda given: None if given == "" else given),
    Query(),
]
_COUNTED = ("contributing", "effective", "hardest_share", "zero_share")


def render(template: str, path: str, **values: Any) -> str:
    """A page; `path` is where it stands."""
    known: dict[str, Any] = {"path": path, "version": simgrad.__version__}
    known |= {"duration": duration, "percent": percent, "explain": explain}
    known["rsum"] = metric_of("rsum").description
    return rendering.render("simgrad.lab", template, **known, **values)


def page(template: str, request: Request, **values: Any) -> HTMLResponse:
    return HTMLResponse(render(template, request.url.path, **values))


def routes(service: Service, app: FastAPI) -> APIRouter:
    """All pages."""
    router = APIRouter(default_response_class=HTMLResponse)
    lab, disk = service.lab, service.files

    @router.get("/static/theme.css")
    async def theme() -> Response:
        return Response(rendering.theme(), media_type="text/css")

    @router.get("/")
    async def home(request: Request) -> HTMLResponse:
        return page("home.html", request, found=await disk.run(facts.overview, lab))

    @router.get("/runs/{run}")
    async def run_page(request: Request, run: Id) -> HTMLResponse:
        return page("run.html", request, **await disk.run(panels.of_run, lab, run))

    @router.get("/runs/{run}/false-negatives")
    async def asking_page(
        request: Request, run: Id, place: Annotated[int | None, Query(ge=0)] = None
    ) -> HTMLResponse:
        return page("asking.html", request, **await disk.run(panels.question, lab, run, place))

    @router.post("/runs/{run}/false-negatives")
    async def answer(
        run: Id,
        image: Annotated[schemas.Text, Form()],
        caption: Annotated[schemas.Text, Form()],
        said: Annotated[Literal["yes", "no", "unsure"], Form()],
        following: Annotated[int | None, Form(ge=0)] = None,
    ) -> Response:
        await disk.run(panels.answer, lab, run, image, caption, said)
        place = "" if following is None else f"?place={following}"
        return RedirectResponse(f"/runs/{quote(run)}/false-negatives{place}", 303)

    @router.get("/studies/{study}")
    async def study_page(request: Request, study: Id) -> HTMLResponse:
        return page("study.html", request, **await disk.run(panels.of_study, lab, study))

    @router.get("/search")
    async def search(
        request: Request,
        q: Annotated[schemas.Text, Query()] = "",
        run: Runs = [],  # noqa: B006 (FastAPI copies defaults)
        split: SplitName = "test",
        top: Top = 12,
        sure: Wanted = None,
        origin: Annotated[schemas.Name | None, Query()] = None,
        row: Annotated[int, Query(ge=0)] = 0,
    ) -> HTMLResponse:
        results = []
        if origin is not None:
            results = await service.row(origin, row, run, split, top, sure)
        elif q.strip():
            results = await service.sentence(q, run, split, top, sure)
        values = await disk.run(search_values, service, run, split)
        asked = None if origin is None else picture_address(origin, split, row)
        shown = {"query": q if origin is None else "", "upload": None, "asked": asked}
        return page("search.html", request, **values, **shown, results=results, sure=sure)

    @router.post("/search/picture")
    async def search_picture(
        request: Request,
        picture: Annotated[UploadFile, File()],
        run: Annotated[list[schemas.Name], Form(max_length=8)] = [],  # noqa: B006 (as above)
        split: Annotated[schemas.Name, Form()] = "test",
        top: Annotated[int, Form(ge=1, le=100)] = 12,
        sure: Annotated[float | None, Form(ge=0, le=1)] = None,
    ) -> HTMLResponse:
        data = await picture.read()
        label = (picture.filename or "picture")[:200]
        results = await service.picture(data, label, run, split, top, sure)
        small = await disk.run(lab.decoders.jpeg, data, 320)
        upload = {
            "name": label,
            "address": "data:image/jpeg;base64," + base64.b64encode(small).decode(),
        }
        values = await disk.run(search_values, service, run, split)
        shown = {"query": "", "upload": upload, "asked": None}
        return page("search.html", request, **values, **shown, results=results, sure=sure)

    @router.get("/bench")
    async def bench_page(request: Request) -> HTMLResponse:
        runs = await disk.run(lambda: {key: lab.label(key) for key in lab.searchable()})
        declared = [entry.model_dump() for entry in bench.declared()]
        counts = {name: vars(COUNT_LABELS[name]) for name in _COUNTED}
        words = {"declared": json.dumps(declared), "counts": json.dumps(counts)}
        return page("bench.html", request, runs=runs, **words)

    @router.get("/api")
    async def api_page(request: Request) -> HTMLResponse:
        return page("api.html", request, operations=operations(app))

    return router


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
        "searchable": {key: lab.label(key) for key in searchable},
        "chosen": chosen,
        "splits": list(names) or [split],
        "split": split,
        "examples": examples,
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
