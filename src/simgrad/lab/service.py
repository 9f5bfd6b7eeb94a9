"""What pages and API have in common: work on the lab, done in threads."""

from collections.abc import Callable
from typing import Literal
from urllib.parse import quote

from simgrad.core.errors import InputError
from simgrad.lab import bench, schemas
from simgrad.lab.lab import Cache, Lab
from simgrad.lab.workers import Threads
from simgrad.retriever.search import Searcher
from simgrad.search.results import Hit, Results

MOST_RUNS = 4  # side by side, where none are named
Found = list[schemas.SearchResult]
Kind = Literal["sentence", "picture"]


class Service:
    """Answers questions about runs; a run that cannot answer says why."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.models = Threads(2, 256)  # a model call takes a core
        self.files = Threads(4, 512)  # reading, decoding: mostly waiting
        self._batches: Cache[bench.BenchBatch] = Cache(32)

    def close(self) -> None:
        self.models.close()
        self.files.close()
        self.lab.close()

    def chosen(self, runs: list[str]) -> list[str]:
        """The runs to search: those named, or the first few that can be."""
        for name in runs:
            self.lab.run(name)
        return list(dict.fromkeys(runs)) or list(self.lab.searchable())[:MOST_RUNS]

    async def sentence(
        self, q: str, runs: list[str], split: str, top: int, sure: float | None = None
    ) -> Found:
        """Every run's answer to a sentence."""

        def ask(name: str) -> schemas.SearchResult:
            return self._ask(name, split, q, "sentence", sure, lambda s: s.sentence(q, top))

        return [await self.models.run(ask, name) for name in self.chosen(runs)]

    async def picture(
        self,
        data: bytes,
        label: str,
        runs: list[str],
        split: str,
        top: int,
        sure: float | None = None,
    ) -> Found:
        """Every run's answer to a picture."""
        names = self.chosen(runs)
        picture = await self.files.run(self.lab.decoders.rgb, data)

        def ask(name: str) -> schemas.SearchResult:
            return self._ask(
                name, split, label, "picture", sure, lambda s: s.picture(picture, label, top)
            )

        return [await self.models.run(ask, name) for name in names]

    async def row(
        self,
        origin: str,
        row: int,
        runs: list[str],
        split: str,
        top: int,
        sure: float | None = None,
    ) -> Found:
        """Every run's answer to a picture of the data, where they share it."""
        shared = self.lab.run(origin).recipe.data
        names = [n for n in self.chosen(runs) if self.lab.run(n).recipe.data == shared]

        def ask(name: str) -> schemas.SearchResult:
            images = self.lab.split(name, split).image_names
            if not 0 <= row < len(images):
                raise InputError(f"split '{split}' has no picture {row}.")
            return self._ask(name, split, images[row], "picture", sure, lambda s: s.row(row, top))

        return [await self.models.run(ask, name) for name in names]

    def _ask(
        self,
        name: str,
        split: str,
        query: str,
        kind: Kind,
        sure: float | None,
        how: Callable[[Searcher], Results],
    ) -> schemas.SearchResult:
        blank = schemas.SearchResult(
            run=name, label=self.lab.label(name), split=split, query=query, kind=kind, images=[],
            captions=[], searched_images=0, searched_captions=0, milliseconds=0,
            sure=sure, verdict="", notes=[],
        )  # fmt: skip
        try:
            found = how(self.lab.searcher(name, split))
        except InputError as error:
            return blank.model_copy(update={"error": str(error)})
        owner = self.lab.split(name, split).image_of_caption
        return blank.model_copy(
            update={
                "query": found.query,
                "images": [_item(name, split, hit, hit.row) for hit in found.images],
                "captions": [
                    _item(name, split, hit, int(owner[hit.row])) for hit in found.captions
                ],
                "searched_images": found.searched_images,
                "searched_captions": found.searched_captions,
                "milliseconds": round(1000 * found.seconds, 3),
                "sure": found.cut_off if sure is None else sure,
                "verdict": found.verdict(sure),
                "notes": list(found.notes),
            }
        )

    def bench(self, asked: schemas.BenchRequest) -> schemas.BenchResult:
        """An objective on a batch."""
        objective = bench.build(asked.objective, asked.parameters)
        if asked.run is None:
            return bench.weigh(objective, bench.made_up_batch(asked.size, asked.seed))
        searcher = self.lab.searcher(asked.run, asked.split)
        key = (asked.run, asked.split, asked.size, asked.seed, searcher.retriever.key)
        batch = self._batches.get(key, lambda: bench.real_batch(searcher, asked.size, asked.seed))
        result = bench.weigh(objective, batch)
        for image, row in zip(result.images, batch.rows, strict=True):
            image.picture = picture_address(asked.run, asked.split, row)
        return result


def picture_address(run: str, split: str, row: int) -> str:
    """Where a picture is served."""
    return f"/pictures/{quote(run)}/{quote(split)}/{row}"


def _item(run: str, split: str, hit: Hit, image: int) -> schemas.FoundItem:
    return schemas.FoundItem(
        rank=hit.rank,
        row=hit.row,
        score=round(hit.score, 5),
        probability=None if hit.probability is None else round(hit.probability, 5),
        name=hit.name,
        captions=list(hit.captions),
        right=hit.right,
        picture=picture_address(run, split, image),
    )
