"""The JSON API: /api/…, described by /api/openapi.json; and the pictures."""

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Body, File, Form, Path, Query, Response, UploadFile
from pydantic import BaseModel

import simgrad
from simgrad.analysis.diagrams import read_triplets
from simgrad.core.errors import InputError
from simgrad.objectives import objective
from simgrad.serve import bench, facts, schemas
from simgrad.serve.lab import Kept, Lab
from simgrad.serve.search import Hit, Results, Searcher
from simgrad.serve.workers import Threads

if TYPE_CHECKING:
    from PIL.Image import Image

Id = Annotated[str, Path(max_length=300)]
Runs = Annotated[list[schemas.Name], Query(max_length=8, description="run ids; all if left out")]
SplitName = Annotated[schemas.Name, Query(description="split of the run's data")]
Top = Annotated[int, Query(ge=1, le=100, description="how many results")]
MOST_RUNS = 4  # side by side, where none are named
PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": schemas.Problem, "description": what}
    for code, what in {
        404: "No such run, study, split or picture",
        413: "Too large",
        422: "Something does not fit; the detail says what",
        503: "Too much at once; Retry-After says when to come back",
    }.items()
}


class Service:
    """What pages and API have in common: work on the lab, done in threads."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.models = Threads(2, 256)  # a model call takes a core
        self.files = Threads(4, 512)  # reading, decoding: mostly waiting
        self._batches: Kept[bench.BenchBatch] = Kept(32)

    def close(self) -> None:
        self.models.close()
        self.files.close()
        self.lab.close()

    def chosen(self, runs: list[str]) -> list[str]:
        """The runs to search: those named, or the first few that can be."""
        for name in runs:
            self.lab.run(name)
        return list(dict.fromkeys(runs)) or list(self.lab.searchable())[:MOST_RUNS]

    async def sentence(self, q: str, runs: list[str], split: str, top: int) -> "Found":
        """Every run's answer to a sentence; a run that cannot answer says why."""

        def ask(name: str) -> schemas.SearchResult:
            return self._ask(name, split, q, "sentence", lambda s: s.sentence(q, top))

        return [await self.models.run(ask, name) for name in self.chosen(runs)]

    async def picture(
        self, data: bytes, label: str, runs: list[str], split: str, top: int
    ) -> "Found":
        """Every run's answer to a picture."""
        names = self.chosen(runs)
        picture = await self.files.run(self.lab.decoders.rgb, data)

        def ask(name: str) -> schemas.SearchResult:
            return self._ask(
                name, split, label, "picture", lambda s: s.picture(picture, label, top)
            )

        return [await self.models.run(ask, name) for name in names]

    async def row(self, origin: str, row: int, runs: list[str], split: str, top: int) -> "Found":
        """Every run's answer to a picture of the data, where they share it."""
        shared = self.lab.run(origin).recipe.data
        names = [n for n in self.chosen(runs) if self.lab.run(n).recipe.data == shared]

        def ask(name: str) -> schemas.SearchResult:
            names = self.lab.split(name, split).image_names
            if not 0 <= row < len(names):
                raise InputError(f"split '{split}' has no picture {row}.")
            return self._ask(name, split, names[row], "picture", lambda s: s.row(row, top))

        return [await self.models.run(ask, name) for name in names]

    def _ask(self, name: str, split: str, query: str, kind: Any, how: Any) -> schemas.SearchResult:
        try:
            return _result(name, split, self.lab, how(self.lab.searcher(name, split)))
        except InputError as error:
            return schemas.SearchResult(
                run=name, split=split, query=query, kind=kind, images=[], captions=[],
                searched_images=0, searched_captions=0, milliseconds=0, notes=[], error=str(error),
            )  # fmt: skip

    def bench(self, asked: schemas.BenchRequest) -> schemas.BenchResult:
        """An objective on a batch."""
        objective = bench.build(asked.objective, asked.parameters)
        if asked.run is None:
            return bench.weigh(objective, bench.made_up_batch(asked.size, asked.seed))
        searcher = self.lab.searcher(asked.run, asked.split)
        key = (asked.run, asked.split, asked.size, asked.seed, searcher.embedder.key)
        batch = self._batches.get(key, lambda: bench.real_batch(searcher, asked.size, asked.seed))
        result = bench.weigh(objective, batch)
        for image, row in zip(result.images, batch.rows, strict=True):
            image.picture = picture_address(asked.run, asked.split, row)
        return result

    def diagram(self, name: str) -> schemas.DiagramResult:
        """A run's objective, and the triplets it met."""

        run = self.lab.run(name)
        try:
            phases = read_triplets(run.path)
        except InputError:
            phases = {}  # not far enough to have any
        least = min((float(points.min()) for points in phases.values()), default=0.0)
        low = -1.0 if least < -0.5 else -0.5 if least < 0 else 0.0
        made = objective(run.recipe.objective)
        return schemas.DiagramResult(
            objective=str(made),
            field=bench.diagram(made, low, 1.0),
            phases={
                phase: [(round(a, 4), round(b, 4)) for a, b in points[:400].tolist()]
                for phase, points in phases.items()
            },
        )


Found = list[schemas.SearchResult]


def _by_picture(picture: "Image", label: str, top: int, searcher: Searcher) -> Results:
    return searcher.picture(picture, label, top)


def picture_address(run: str, split: str, row: int) -> str:
    """Where a picture is served."""
    from urllib.parse import quote

    return f"/pictures/{quote(run)}/{quote(split)}/{row}"


def _result(name: str, split: str, lab: Lab, found: Results) -> schemas.SearchResult:
    owner = lab.split(name, split).image_of_caption

    def item(hit: Hit, image: int) -> schemas.FoundItem:
        return schemas.FoundItem(
            rank=hit.rank,
            row=hit.row,
            score=round(hit.score, 5),
            name=hit.name,
            captions=list(hit.captions),
            right=hit.right,
            picture=picture_address(name, split, image),
        )

    return schemas.SearchResult(
        run=name,
        split=split,
        query=found.query,
        kind="sentence" if found.kind == "sentence" else "picture",
        images=[item(hit, hit.row) for hit in found.images],
        captions=[item(hit, int(owner[hit.row])) for hit in found.captions],
        searched_images=found.searched_images,
        searched_captions=found.searched_captions,
        milliseconds=round(1000 * found.seconds, 3),
        notes=list(found.notes),
    )


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
        """The triplet diagram of a run's objective."""
        return await models.run(lambda: _written(service.diagram(run)))

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
    ) -> list[schemas.SearchResult]:
        """Pictures that a sentence describes, for one or several runs."""
        return await service.sentence(q, run, split, top)

    @router.post("/api/search/picture", tags=["search"])
    async def search_picture(
        picture: Annotated[UploadFile, File(description="JPEG, PNG, WebP, GIF, BMP or TIFF")],
        run: Annotated[list[schemas.Name], Form(max_length=8)] = [],  # noqa: B006 (as above)
        split: Annotated[schemas.Name, Form()] = "test",
        top: Annotated[int, Form(ge=1, le=100)] = 10,
    ) -> list[schemas.SearchResult]:
        """Captions that fit a picture, and pictures like it."""
        data = await picture.read()
        return await service.picture(data, (picture.filename or "picture")[:200], run, split, top)

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
