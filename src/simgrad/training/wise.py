"""Between the pretrained and the trained weights.

Wortsman et al.: Robust fine-tuning of zero-shot models, CVPR 2022 (WiSE-FT). Fine-tuning forgets;
weights on the line between both ends often know what either knows. How far to go along it, alpha,
is chosen on the validation split: 0 is the pretrained model, 1 the trained one.
"""

from pathlib import Path
from typing import Any

import torch

from simgrad.core.files import write_json
from simgrad.evaluation import metric_of
from simgrad.models import save
from simgrad.retriever.encoding import validate
from simgrad.retriever.prepare import begin_model
from simgrad.retriever.retriever import Retriever
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import BEST, WISE, Run


@torch.no_grad()
def mix(recipe: Recipe, folder: Path, retriever: Retriever) -> None:
    """Put the best mixture into the place of the best checkpoint; the curve beside it."""
    if (folder / WISE).is_file():  # the run was killed after this was done
        return
    best = Run(folder).load(str(retriever.device))
    if "alpha" not in best.extra:
        before = begin_model(recipe, retriever.dataset).to(retriever.device).state_dict()
        after = {name: value.clone() for name, value in best.model.state_dict().items()}
        curve = []
        for k in range(recipe.wise + 1):
            alpha = k / recipe.wise
            best.model.load_state_dict(best.model.between(before, after, alpha))
            curve.append({"alpha": alpha, **_validate(best.model, retriever)})
        chosen = best_point(curve, recipe.select)
        best.model.load_state_dict(best.model.between(before, after, chosen["alpha"]))
        extra = {**best.extra, "alpha": chosen["alpha"], "wise": curve}
        extra[recipe.select] = chosen[recipe.select]
        save(folder / BEST, best.model, best.tokenizer, extra)
        best.extra = extra
    write_json(folder / WISE, {"alpha": best.extra["alpha"], "curve": best.extra["wise"]})


def best_point(curve: list[dict[str, Any]], select: str) -> dict[str, Any]:
    """The best point of a curve; the one nearest to the trained weights if several are equal."""
    best = metric_of(select).best(point[select] for point in curve)
    return next(point for point in reversed(curve) if point[select] == best)


def _validate(model: Any, retriever: Retriever) -> dict[str, float]:
    found, _, _ = validate(model, retriever.sources["val"])
    return {name: round(value, 4) for name, value in found.to_dict().items()}
