"""The objective bench: any declared objective on a real batch, and its triplet diagram."""

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from simgrad.analysis import attention
from simgrad.core.errors import InputError
from simgrad.core.spec import Declaration, Parameter, print_value
from simgrad.lab import schemas
from simgrad.lab.diagrams import drawn, field_of, rows_of
from simgrad.objectives import Objective, Offline, objectives
from simgrad.pages.fields import Phase
from simgrad.retriever.search import Searcher
from simgrad.training.observe import triplets

_DEEP = 512  # items of the split that mined negatives are taken from
_DOTS = 1  # the colour of the batch's triplets


@dataclass(frozen=True)
class BenchBatch:
    """Images with one caption each: caption k belongs to image k."""

    rows: list[int]
    names: list[str]
    captions: list[str]
    similarities: Tensor  # (size, size)
    offline: Offline  # similarities of mined items, for objectives that weigh those

    @property
    def range(self) -> tuple[float, float]:
        """Round bounds of a diagram that all its triplets fit in."""
        low = float(self.similarities.min())
        return max(-1.0, math.floor(min(0.0, low) / 0.2) * 0.2), 1.0


@torch.no_grad()
def real_batch(searcher: "Searcher", size: int, seed: int) -> BenchBatch:
    """A batch drawn from a split, as the run's model sees it."""
    split, images, captions = searcher.split, searcher.images, searcher.captions
    assert split is not None
    assert images is not None
    assert captions is not None
    random = np.random.default_rng(seed)
    some = np.flatnonzero(split.captions_per_image)
    if len(some) < 2:
        raise InputError(f"split '{split.name}' has fewer than two images with captions.")
    rows = np.sort(random.permutation(some)[:size])
    texts = np.array([random.choice(split.captions_of(int(row))) for row in rows])
    model, device = searcher.retriever.model, searcher.retriever.device

    def scores(of: np.ndarray, to: np.ndarray) -> Tensor:
        first = images.items.select(torch.from_numpy(of)).to(device)
        second = captions.items.select(torch.from_numpy(to)).to(device)
        return model.similarities(first, second).float().cpu()

    owner = split.image_of_caption
    deep_texts = np.sort(random.permutation(split.num_captions)[:_DEEP])
    deep_images = np.sort(random.permutation(some)[:_DEEP])
    to_texts, to_images = scores(rows, deep_texts), scores(deep_images, texts)
    to_texts[torch.from_numpy(owner[deep_texts][None] == rows[:, None])] = -2
    to_images[torch.from_numpy(deep_images[:, None] == owner[texts][None])] = -2
    mined_text, mined_image = deep_texts[to_texts.argmax(1)], deep_images[to_images.argmax(0)]
    partner = np.array([split.captions_of(int(row))[0] for row in mined_image])
    offline = Offline(
        to_texts.max(1).values,
        to_images.max(0).values,
        scores(mined_image, mined_text).diagonal().clone(),
        scores(owner[mined_text], partner).diagonal().clone(),
    )
    return BenchBatch(
        rows.tolist(),
        [split.image_names[int(row)] for row in rows],
        [split.captions[int(text)] for text in texts],
        scores(rows, texts),
        offline,
    )


def made_up_batch(size: int, seed: int) -> BenchBatch:
    """Similarities like those of a half-trained model, for when there is no run."""
    random = torch.Generator().manual_seed(seed)
    similarities = 0.25 + 0.12 * torch.randn(size, size, generator=random)
    similarities += 0.25 * torch.eye(size)
    hard = similarities.clone().fill_diagonal_(-1)
    mined = [hard.max(1).values, hard.max(0).values] * 2
    names = [f"image {k + 1}" for k in range(size)]
    captions = [f"caption {k + 1}" for k in range(size)]
    return BenchBatch([], names, captions, similarities.clamp(-1, 1), Offline(*mined))


def build(name: str, parameters: dict[str, Any]) -> Objective:
    """The objective that the sliders say; the first that is declared, if none is named."""
    name = name or next(iter(objectives)).name
    settings = ", ".join(f"{key}={print_value(value)}" for key, value in parameters.items())
    return objectives.parse(f"{objectives[name].name}({settings})")


@torch.no_grad()
def weigh(objective: Objective, batch: BenchBatch) -> schemas.BenchResult:
    """Weights, diagram and counts."""

    S = batch.similarities
    owner = torch.arange(len(S))
    weights = objective.weigh(S, owner, batch.offline if objective.needs_offline else None)
    field = field_of(objective, *batch.range)
    met = triplets(S, owner)
    dots = Phase("", _DOTS, met.double().numpy(), drawn=True)
    counts = attention(weights, owner)
    return schemas.BenchResult(
        objective=str(objective),
        value=finite(weights.value),
        images=[schemas.BenchImage(name=name, picture=None) for name in batch.names],
        captions=batch.captions,
        similarities=rows_of(S),
        i2t=rows_of(weights.i2t),
        t2i=rows_of(weights.t2i),
        triplets=[(a, b) for a, b in rows_of(met)],
        field=field,
        drawn=drawn(field, [dots]),
        attention={
            way: {key: finite(value) for key, value in found.items()}
            for way, found in counts.items()
        },
    )


def finite(value: Any) -> float | None:
    """JSON has no word for infinity."""
    number = float(value)
    return number if math.isfinite(number) else None


@functools.lru_cache(maxsize=1)
def declared() -> list[schemas.ObjectiveInfo]:
    """Every objective with its sliders, from the declarations."""
    return [
        schemas.ObjectiveInfo(
            name=entry.name,
            paper=entry.paper,
            description=entry.description,
            parameters=[_parameter(entry, p) for p in entry.parameters],
        )
        for entry in objectives
    ]


def _parameter(entry: Declaration[Objective], parameter: Parameter) -> schemas.ParameterInfo:
    default = parameter.default
    kind: Literal["number", "choice", "yes-no", "text"] = "text"
    low = high = step = None
    if parameter.choices:
        kind = "choice"
    elif isinstance(default, bool):
        kind = "yes-no"
    elif isinstance(default, int | float):
        kind = "number"
        low, high, step = _slider(entry, parameter)
    known = default if isinstance(default, bool | int | float | str) else None
    return schemas.ParameterInfo(
        name=parameter.name,
        kind=kind,
        default=known,
        choices=list(parameter.choices) if parameter.choices else None,
        low=low,
        high=high,
        step=step,
        description=parameter.description,
    )


def _slider(entry: Declaration[Objective], parameter: Parameter) -> tuple[float, float, float]:
    """From zero, or just above where zero is refused, to four times the default."""
    default = float(parameter.default)
    if default == 0:
        return (-1.0 if parameter.limits.hold(-1.0) else 0.0), 1.0, 0.02
    reach = 4 * default
    step = 10 ** math.floor(math.log10(abs(default) / 10))
    if default < 0:
        return reach, 0.0, step
    try:
        objectives.parse(f"{entry.name}({parameter.name}={print_value(0 * parameter.default)})")
        return 0.0, reach, step
    except InputError:
        return step, reach, step
