"""The JSON API: /api/…, described by /api/openapi.json; and the pictures."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, File, Form, Path, Query, Response, UploadFile
from pydantic import BaseModel

import simgrad
from simgrad.lab import bench, diagrams, facts, schemas
from simgrad.lab.service import Service

Id = Annotated[str, Path(max_length=300)]
Runs = Annotated[list[schemas.Name], Query(max_length=8, description="run ids; by default all")]
SplitName = Annotated[schemas.Name, Query(description="split of the run's data")]
Top = Annotated[int, Query(ge=1, le=100, description="how many results")]
Sure = Annotated[
    float | None, Query(ge=0, le=1, description="from which probability on a hit counts; learned")
]
PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": schemas.Problem, "description": what}
    for code, what in {
        404: "No such run, study, split or picture",
        413: "Too large",
        422: "Something does not fit; the detail says what",
        503: "Too much at once; Retry-After says when to come back",
    }.items()
}


def _written(result: BaseModel) -> Response:
    """Large answers are written by the thread that made them, not by the one that serves all."""
    return Response(result.model_dump_json(), media_type="application/json")


def routes(service: Service) -> APIRouter:
    """All of the API."""
    router = APIRouter(responses=PROBLEMS)
    lab, models, files = service.lab, service.models, service.files

    @router.get("/api/health", tags=["server"])
    async def health() -> schemas.Health:
        """Whether the server is up."""
        return schemas.Health(status="ok", version=simgrad.__version__)

    @router.get("/api/overview", tags=["runs"])
    async def overview() -> schemas.Overview:
        """Every study and run, with progress."""
        return await files.run(facts.overview, lab)

    @router.get("/api/runs/{run}", tags=["runs"])
    async def run_detail(run: Id) -> schemas.RunDetail:
        """One run: recipe, history, test metrics."""
        return await files.run(facts.run_detail, lab, run)

    @router.get("/api/runs/{run}/diagram", tags=["runs"], response_model=schemas.DiagramResult)
    async def diagram(run: Id) -> Response:
        """What a run's objective does to a triplet, and triplets it met while training."""
        return await models.run(lambda: _written(diagrams.values(lab.run(run))))

    @router.get("/api/studies/{study}", tags=["runs"])
    async def study_detail(study: Id) -> schemas.StudyDetail:
        """One study: its table."""
        return await files.run(facts.study_detail, lab, study)

    @router.get("/api/search", tags=["search"])
    async def search(
        q: Annotated[schemas.Text, Query(min_length=1, description="a sentence")],
        run: Runs = [],  # noqa: B006 (FastAPI copies defaults)
        split: SplitName = "test",
        top: Top = 10,
        sure: Sure = None,
    ) -> list[schemas.SearchResult]:
        """Pictures that a sentence describes, for one or several runs."""
        return await service.sentence(q, run, split, top, sure)

    @router.post("/api/search/picture", tags=["search"])
    async def search_picture(
        picture: Annotated[UploadFile, File(description="JPEG, PNG, WebP, GIF, BMP or TIFF")],
        run: Annotated[list[schemas.Name], Form(max_length=8)] = [],  # noqa: B006 (as above)
        split: Annotated[schemas.Name, Form()] = "test",
        top: Annotated[int, Form(ge=1, le=100)] = 10,
        sure: Annotated[float | None, Form(ge=0, le=1)] = None,
    ) -> list[schemas.SearchResult]:
        """Captions that fit a picture, and pictures like it."""
        data = await picture.read()
        label = (picture.filename or "picture")[:200]
        return await service.picture(data, label, run, split, top, sure)

    @router.get("/api/objectives", tags=["objectives"])
    async def objectives() -> list[schemas.ObjectiveInfo]:
        """Every declared objective with its parameters."""
        return bench.declared()

    @router.post("/api/bench", tags=["objectives"], response_model=schemas.BenchResult)
    async def try_objective(asked: Annotated[schemas.BenchRequest, Body()]) -> Response:
        """An objective's weights on a batch, and its triplet diagram."""
        return await models.run(lambda: _written(service.bench(asked)))

    @router.get(
        "/pictures/{run}/{split}/{row}",
        tags=["search"],
        response_class=Response,
        responses={200: {"content": {"image/jpeg": {}}}},
    )
    async def picture(
        run: Id,
        split: Id,
        row: Annotated[int, Path(ge=0, le=2**40)],
        side: Annotated[int, Query(ge=1, le=800)] = 320,
    ) -> Response:
        """A picture of a run's data, as a JPEG of at most about `side` pixels."""
        data = await files.run(lab.picture, run, split, row, side)
        headers = {"cache-control": "private, max-age=3600"}
        return Response(data, media_type="image/jpeg", headers=headers)

    return router
