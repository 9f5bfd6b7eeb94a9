"""A model card: what a model is, what it was trained on, how good it is and how it is used."""

import math
from typing import Any

import simgrad
from simgrad.evaluation import headlines, metric_of
from simgrad.evaluation.uncertainty import estimates
from simgrad.models.inputs import Scale
from simgrad.retriever.exporting import Exported
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run

_USE = {
    "transformers": """\
from transformers import AutoModel, AutoProcessor

model = AutoModel.from_pretrained("{name}")
processor = AutoProcessor.from_pretrained("{name}")
given = processor(images=picture, text=["a sentence"], padding="{padding}", return_tensors="pt")
out = model(**given)  # out.image_embeds, out.text_embeds
""",
    "adapter": """\
from peft import PeftModel
from transformers import AutoModel

model = PeftModel.from_pretrained(AutoModel.from_pretrained("{source}"), "{name}")
""",
    "sentence-transformers": """\
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
similarities = model.encode([picture]) @ model.encode(["a sentence"]).T
""",
    "open_clip": """\
import open_clip

model, _, preprocess = open_clip.create_model_and_transforms("local-dir:{name}")
tokenizer = open_clip.get_tokenizer("local-dir:{name}")
images = model.encode_image(preprocess(picture)[None], normalize=True)
captions = model.encode_text(tokenizer(["a sentence"]), normalize=True)
""",
    "onnx": """\
import onnxruntime

images = onnxruntime.InferenceSession("image.onnx").run(None, {{"images": pixels}})[0]
captions = onnxruntime.InferenceSession("captions.onnx").run(
    None, {{"tokens": tokens, "lengths": lengths}}
)[0]
similarities = images @ captions.T  # reading.json: how pictures are cut, and the tokenizer
""",
}


def model_card(exported: Exported, run: Run | None, name: str) -> str:
    """Markdown with the hub's header; `name` is what the model is loaded by."""
    config = exported.checkpoint.model.config
    parts = [_header(exported), f"# {name.rsplit('/', 1)[-1]}", _about(str(config), run)]
    if run is not None:
        parts += [_training(run), _metrics(run)]
    use = _USE["adapter" if exported.adapter else exported.format]
    longest = exported.checkpoint.model.longest
    padding = "max_length" if exported.checkpoint.model.fills_captions else "longest"
    shown = use.format(name=name, source=getattr(config, "source", None), padding=padding)
    if exported.adapter and exported.scale is not None:
        shown += _scale_lines(exported.scale)
    parts += [f"## Use\n\n```python\n{shown}```"]
    if longest is not None:
        parts.append(f"It reads captions of up to {longest} tokens.")
    return "\n\n".join(parts) + "\n"


def _scale_lines(scale: Scale) -> str:
    """An adapter has no place for the scale and bias that were learned beside it."""
    lines = "# Scale and bias that were learned, which an adapter does not hold:\n"
    lines += f"model.logit_scale.data.fill_({math.log(scale.scale)!r})\n"
    if scale.bias:
        lines += f"model.logit_bias.data.fill_({scale.bias!r})\n"
    return lines


def _header(exported: Exported) -> str:
    source = getattr(exported.checkpoint.model.config, "source", None)
    library = {"adapter": "peft"}.get("adapter" if exported.adapter else "", exported.format)
    lines = [
        "---",
        f"library_name: {library}",
        "pipeline_tag: feature-extraction",
        "tags: [image-text-retrieval, simgrad]",
    ]
    if source is not None and not source.startswith(("/", ".", "~")):
        lines.append(f"base_model: {source}")
    return "\n".join([*lines, "---"])


def _about(config: str, run: Run | None) -> str:
    words = f"A model for finding pictures by sentences and sentences by pictures: `{config}`."
    if run is not None:
        words += f" Trained with the objective `{run.recipe.objective}`."
    return f"{words} Written by simgrad {simgrad.__version__}."


def _training(run: Run) -> str:
    recipe, info = run.recipe, run.info
    default = Recipe().to_dict()
    places = ("model", "objective", "device", "threads", "workers", "data", "features", "skip")
    changed = {k: v for k, v in recipe.to_dict().items() if v != default[k] and k not in places}
    rows = "\n".join(f"| {k} | {v} |" for k, v in changed.items())
    data = info.get("dataset", {}).get("name", recipe.data)
    best, steps = info.get("best", {}).get("step"), info.get("steps")
    kept = f"These weights are of step {best} of {steps}, the best on the validation split."
    if best == 0:
        kept = f"These are the weights before training: none of {steps} steps was better on the "
        kept += "validation split."
    return f"## Training\n\nData: {data}. {kept}\n\n| setting | value |\n|---|---|\n{rows}"


def _metrics(run: Run) -> str:
    test = run.test
    if not test:
        return "## How good it is\n\nIt was not tested."
    ranks = [run.ranks()] if (run.path / "ranks.parquet").is_file() else []
    found = estimates([test], ranks)
    lines = ["| test split | value | 95% interval |", "|---|---|---|"]
    for one in (metric_of(name) for name in headlines() if name in test):
        bounds = found[one.name]
        sure = "" if bounds.low is None or bounds.high is None else _between(one, bounds)
        lines.append(f"| {one.heading} | {one.format(test[one.name])} | {sure} |")
    text = "## How good it is\n\n" + "\n".join(lines)
    before = [entry for entry in run.history if entry["step"] == 0]
    select = run.recipe.select
    if before and run.info.get("best", {}).get(select) is not None:
        text += (
            f"\n\nValidation {select}: {before[0]['val'][select]:.1f} before training, "
            f"{run.info['best'][select]:.1f} after."
        )
    if run.also:
        old, new = (run.also[when][select] for when in ("before", "after"))
        text += (
            f"\n\nOn other data, {run.also['dataset']}, test split, {select}: {old:.1f} before "
            f"training, {new:.1f} after."
        )
    return text


def _between(metric: Any, bounds: Any) -> str:
    return f"{metric.format(bounds.low)} to {metric.format(bounds.high)}"
