"""A model card: what a model is, what it was trained on, how good it is and how it is used."""

import math
from typing import Any

import yaml

import simgrad
from simgrad.core.spec import split_spec
from simgrad.evaluation import Estimate, Metric, estimates, headlines, metric_of
from simgrad.models.inputs import Scale
from simgrad.retriever.exporting import Exported
from simgrad.runs.naming import slug
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import RANKS, Run

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


def model_card(exported: Exported, run: Run | None, name: str, licence: str | None = None) -> str:
    """Markdown with the hub's header; `name` is what the model is loaded by."""
    config = exported.checkpoint.model.config
    head = _header(exported, run, name, licence)
    parts = [head, f"# {name.rsplit('/', 1)[-1]}", _about(str(config), run)]
    if run is not None:
        parts += [_training(run), _metrics(run)]
    use = _USE["adapter" if exported.adapter else exported.format]
    longest = exported.checkpoint.model.longest
    padding = "max_length" if exported.checkpoint.model.fills_captions else "longest"
    shown = use.format(name=name, source=getattr(config, "source", None), padding=padding)
    if exported.adapter and exported.scale is not None:
        shown += _scale_lines(exported.scale)
    parts += [f"## Use\n\n```python\n{shown}```"]
    if licence is None:
        parts.append("Licence: not stated. It follows from the base model and from the data.")
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


def _header(exported: Exported, run: Run | None, name: str, licence: str | None) -> str:
    """What the hub reads: YAML between dashes."""
    source = getattr(exported.checkpoint.model.config, "source", None)
    told: dict[str, Any] = {
        "library_name": "peft" if exported.adapter else exported.format,
        "pipeline_tag": "feature-extraction",
        "tags": ["image-text-retrieval", "simgrad"],
    }
    if licence is not None:
        told["license"] = licence
    if source is not None and not source.startswith(("/", ".", "~")):
        told["base_model"] = source
    if run is not None:
        if run.recipe.data.startswith("hub("):
            told["datasets"] = [split_spec(run.recipe.data, "data")[1]["repo"]]
        told |= _index(run, name)
    return f"---\n{yaml.safe_dump(told, sort_keys=False, allow_unicode=True)}---"


def _index(run: Run, name: str) -> dict[str, Any]:
    """model-index: every number of the test, and its interval where there is one."""
    data = str(run.info.get("dataset", {}).get("name", run.recipe.data))
    metrics = []
    for one, bounds in _tested(run):
        entry: dict[str, Any] = {"type": one.name, "name": one.heading}
        entry["value"] = round(float(run.test[one.name]), 3)
        if bounds.low is not None and bounds.high is not None:
            ends = [round(float(end), 3) for end in (bounds.low, bounds.high)]
            entry["args"] = {"confidence_interval": ends, "level": 0.95}
        metrics.append(entry)
    if not metrics:
        return {}
    result = {
        "task": {"type": "image-text-retrieval", "name": "Image-caption retrieval"},
        "dataset": {"type": slug(data), "name": data, "split": "test"},
        "metrics": metrics,
    }
    return {"model-index": [{"name": name.rsplit("/", 1)[-1], "results": [result]}]}


def _tested(run: Run) -> list[tuple[Metric, Estimate]]:
    """The numbers of the test split that stand in every table, and what is known of each."""
    ranks = [run.ranks()] if (run.path / RANKS).is_file() else []
    found = estimates([run.test], ranks) if run.test else {}
    return [(metric_of(name), found[name]) for name in headlines() if name in run.test]


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
    if not run.test:
        return "## How good it is\n\nIt was not tested."
    lines = ["| test split | value | 95% interval |", "|---|---|---|"]
    for one, bounds in _tested(run):
        sure = "" if bounds.low is None or bounds.high is None else _between(one, bounds)
        lines.append(f"| {one.heading} | {one.format(run.test[one.name])} | {sure} |")
    text = "## How good it is\n\n" + "\n".join(lines)
    before = [entry for entry in run.history if entry["step"] == 0]
    select = run.recipe.select
    if before and run.info.get("best", {}).get(select) is not None:
        text += (
            f"\n\nValidation {select}: {before[0]['val'][select]:.1f} before training, "
            f"{run.info['best'][select]:.1f} after."
        )
    if run.remembered:
        name, old, new = run.remembered
        text += (
            f"\n\nOn other data, {run.also['dataset']}, {name}: {old:.1f} before "
            f"training, {new:.1f} after."
        )
    return text


def _between(metric: Any, bounds: Any) -> str:
    return f"{metric.format(bounds.low)} to {metric.format(bounds.high)}"
