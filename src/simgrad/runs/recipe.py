"""A recipe: everything that decides what a training run does, in one documented dataclass.

Recipes are YAML files with these fields; `simgrad train recipe.yaml --objective "..." --seed 3`
overrides any of them. The defaults are VSE++'s published schedule.
"""

import dataclasses
import difflib
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from simgrad.core.errors import InputError
from simgrad.core.files import atomic_write
from simgrad.core.spec import setting
from simgrad.data.base import Dataset
from simgrad.data.opening import open_dataset

# A recipe is a page of text; longer is a mistake, or an attack on the parser.
_LARGEST, _DEEPEST = 1 << 20, 40
_OPENING = (
    yaml.BlockMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.FlowSequenceStartToken,
)
_CLOSING = (yaml.BlockEndToken, yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)


@dataclass(frozen=True)
class Recipe:
    """What to train, on what, and how."""

    # What
    data: str = setting(
        "scenes(features=global)",
        "Data set: `scenes(...)`, or a file or folder in any layout of the field",
    )
    features: str | None = setting(None, "Folder from `simgrad features`, used instead of pictures")
    skip: str | None = setting(None, "List of what to leave out, from `simgrad datasets --fix`")
    model: str = setting(
        "vse++",
        "Model spec, e.g. `vsrn(dimension=2048)`: "
        "vse++, vsrn, vse-infinity, scan, bfan, x-vlm or clip",
    )
    objective: str = setting(
        "triplet-sh",
        "Objective spec, e.g. `goal(triplet=cir, pair=sig-ms)`; `simgrad objectives` lists them",
    )
    seed: int = setting(0, "Decides the initial weights, the order of batches and augmentation")

    # Batches
    batch: int = setting(128, "Captions in a batch (images, where `sampler` is images)")
    sampler: Literal["pairs", "images", "distinct"] = setting(
        "pairs",
        "pairs: random captions, as published; images: images with several captions each "
        "(SmoothAP); distinct: no two captions of one image",
    )
    captions_per_image: int = setting(5, "With `sampler: images`: how many captions of each")
    positives: Literal["images", "pairs"] = setting(
        "images",
        "images: captions of the same image are its positives; pairs: they are negatives, as "
        "published",
    )
    micro_batch: int | None = setting(
        None,
        "Encode this many at a time, and still take the exact gradient of the whole batch "
        "(GradCache)",
    )
    drop_last: bool = setting(False, "Leave out the last batch of an epoch if it is not full")
    augment: str | None = setting(
        None, "For pictures: vse++, vse-infinity, x-vlm, clip; none if left out"
    )

    # Schedule
    epochs: int = setting(
        30, "Passes over the training captions (over the images, where `sampler` is images)"
    )
    optimizer: Literal["adam", "adamw"] = setting("adam", "Optimiser")
    lr: float = setting(2e-4, "Learning rate")
    weight_decay: float = setting(0.0, "Weight decay")
    betas: tuple[float, float] = setting(
        (0.9, 0.999), "Adam's averaging of gradients and of their squares"
    )
    decay: Literal["step", "linear"] = setting(
        "step", "step: a tenth after every `decay_every` epochs; linear: to zero at the end"
    )
    decay_every: int = setting(15, "Epochs between the steps")
    warmup: float = setting(
        0.0, "Share of all steps in which the learning rate rises linearly from 0"
    )
    clip: float = setting(2.0, "Largest norm of the gradient; 0: no clipping")
    first_objective: str | None = setting(
        None, "Another objective for the first epochs, e.g. `triplet` before `triplet-sh`"
    )
    first_epochs: int = setting(0, "How many epochs it lasts")
    freeze_epochs: int = setting(
        0,
        "Keep a fine-tuned backbone frozen for so many epochs; in the one after them the loss "
        "rises linearly from 0, as VSE-infinity does",
    )
    finetune_epochs: int = setting(
        0, "A second stage of so many epochs in which the backbone is trained too"
    )
    finetune_lr: float = setting(2e-5, "Its learning rate")

    # Text
    vocabulary: str | None = setting(
        None,
        "Vocabulary file (JSON or published pickle); built from the train split if left out. For "
        "BERT: a folder or file with word pieces",
    )
    vocabulary_splits: tuple[str, ...] = setting(
        ("train",), "Splits to build it from; adding val and test repeats the published leak"
    )
    min_count: int = setting(4, "Words that occur less often are unknown")

    # Offline negatives (AOQ)
    candidates: str | None = setting(
        None, "Folder with mined candidates, for off-tri, off-quin and adap-off-quin"
    )
    depth: int = setting(
        300, "Draw from the first so many candidates of an image (a fifth of that for a caption)"
    )
    draw: Literal["uniform", "normal"] = setting("uniform", "Distribution over them")
    start_from: str | None = setting(None, "Checkpoint folder whose weights to start from")
    second_round: dict[str, Any] | None = setting(
        None,
        "Fields that differ in a second round, which is mined with the first round's best model",
    )

    # Evaluation and bookkeeping
    evaluate_every: int | None = setting(
        None, "Evaluate on the validation split every so many steps; every epoch if left out"
    )
    select: str = setting("rsum", "Validation metric that decides which checkpoint is best")
    early_stop: int | None = setting(None, "Stop after so many evaluations without improvement")
    attention_every: int = setting(
        0, "Record what the objective attends to every so many steps; 0: at evaluations only"
    )
    checkpoint_seconds: float = setting(
        60.0, "Write a checkpoint to resume from at least this often"
    )
    tensorboard: bool = setting(False, "Also write TensorBoard files")

    # Machine
    precision: Literal["float32", "tf32", "bf16", "fp16"] = setting(
        "float32",
        "Arithmetic of the encoders; tf32 is float32 with faster, coarser products on a GPU",
    )
    device: str = setting("auto", "auto, cpu, cuda, cuda:1, ..")
    workers: int = setting(
        2, "Threads that read ahead where features or pictures do not fit in memory"
    )
    graphs: bool = setting(True, "On a GPU with resident features, replay steps as CUDA graphs")

    def __post_init__(self) -> None:
        for field, least in (
            ("batch", 1),
            ("captions_per_image", 1),
            ("epochs", 1),
            ("decay_every", 1),
            ("depth", 1),
            ("min_count", 1),
            ("first_epochs", 0),
            ("freeze_epochs", 0),
            ("finetune_epochs", 0),
            ("attention_every", 0),
            ("lr", 0),
            ("weight_decay", 0),
            ("clip", 0),
            ("warmup", 0),
        ):
            if not getattr(self, field) >= least:
                raise InputError(f"recipe: {field} must be at least {least}.")
        for field in ("micro_batch", "evaluate_every", "early_stop"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise InputError(f"recipe: {field} must be at least 1, or left out.")

        if not abs(self.seed) < 2**31:
            raise InputError("recipe: seed must be below 2^31.")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise InputError("recipe: betas are two numbers from 0 to below 1.")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in YAML."""
        return {
            f.name: list(v) if isinstance(v := getattr(self, f.name), tuple) else v
            for f in dataclasses.fields(self)
        }

    def dataset(self) -> "Dataset":
        """The data it names."""

        return open_dataset(self.data, features=self.features, skip=self.skip)

    def replace(self, **changes: Any) -> "Recipe":
        """Another recipe with some fields changed, checked like one that was read."""
        return from_dict({**self.to_dict(), **changes}, "recipe")

    def save(self, path: Path) -> None:
        """Write YAML that reads back."""
        with atomic_write(path) as file:
            yaml.safe_dump(self.to_dict(), file, sort_keys=False, allow_unicode=True)


def read_recipe(path: str | Path) -> Recipe:
    """A recipe from its YAML file."""
    return from_dict(read_yaml(path), str(path))


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML mapping; nothing in the file can run, repeat itself or exhaust memory."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file.")
    if path.stat().st_size > _LARGEST:
        raise InputError(f"{path}: too large for a recipe ({path.stat().st_size:,} bytes).")
    try:
        text = path.read_text(encoding="utf-8")
        _refuse_tricks(text, path)
        value = yaml.safe_load(text)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}).") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise InputError(f"{path}{line}: not YAML: {problem}.") from None
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{path}: a recipe is a list of 'field: value' lines.")
    return value


def _refuse_tricks(text: str, path: Path) -> None:
    """What costs a parser gigabytes or hours, and recipes have no use for."""
    depth = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        if isinstance(token, yaml.AliasToken):
            raise InputError(f"{path}: YAML references (*name) are not allowed in a recipe.")
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > _DEEPEST:
            raise InputError(f"{path}: nested too deeply for a recipe.")


def from_dict(values: Mapping[str, Any], where: str) -> Recipe:
    """A recipe from plain values; unknown or ill-typed fields are named."""
    hints = typing.get_type_hints(Recipe)
    checked = {}
    for key, value in values.items():
        if key not in hints:
            near = difflib.get_close_matches(key, hints, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise InputError(f"{where}: there is no field '{key}'.{hint}")
        checked[key] = _fit(value, hints[key], f"{where}: {key}")
    return Recipe(**checked)


def _fit(value: Any, kind: Any, where: str) -> Any:
    """A YAML value as the field's type."""
    options = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin is Literal:
        if value not in options:
            raise InputError(f"{where} is one of {', '.join(options)}, not {value!r:.60}.")
        return value
    if type(None) in options:
        return None if value is None else _fit(value, options[0], where)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise InputError(f"{where} takes a list, not {value!r:.60}.")
        return tuple(_fit(item, options[0], where) for item in value)
    if origin is dict:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise InputError(f"{where} takes fields and values, not {value!r:.60}.")
        return dict(value)
    if kind is float and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            number = float(value)  # YAML reads 2e-4 as text
        except (ValueError, OverflowError):  # no number, or a whole one that no float holds
            number = float("nan")
        if number == number and abs(number) != float("inf"):
            return number
    elif kind in (bool, int) and type(value) is kind:
        return value
    elif kind is str and isinstance(value, (str, Path)):
        return str(value)
    raise InputError(f"{where} takes {_WORDS.get(kind, 'another value')}, not {value!r:.60}.")


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
