"""A recipe: everything that decides what a training run does, as typed and documented fields.

Recipes are YAML files with these fields, in any order; `simgrad train recipe.yaml --objective
nt-xent --seed 3` overrides any of them. The defaults are VSE++'s published schedule. `simgrad train
--schema` prints a JSON schema, with which editors complete and check recipes.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, model_validator

from simgrad.core.errors import InputError
from simgrad.core.files import atomic_write
from simgrad.core.typed import Number, Text, Typed, checked, read_yaml
from simgrad.data.base import Dataset
from simgrad.data.opening import open_dataset
from simgrad.data.resplit import read_resplit
from simgrad.evaluation.protocols import find_protocol
from simgrad.models import models
from simgrad.runs.recipe_fields import absolute, earlier_names, grouped, up_to_date

Count = Annotated[int, Field(ge=1, lt=2**31)]
CountOrZero = Annotated[int, Field(ge=0, lt=2**31)]
NotNegative = Annotated[Number, Field(ge=0)]
Share = Annotated[Number, Field(ge=0, lt=1)]


def of_fields(schema: dict[str, Any]) -> None:
    """Say in a JSON schema that the names of a mapping are fields of a recipe."""
    schema["propertyNames"] = {"enum": [*Recipe.model_fields, "from_round_one"]}


class Recipe(Typed):
    """What to train, on what, and how.

    Examples:
        >>> recipe = simgrad.Recipe(objective="nt-xent(tau=0.05)", epochs=10, lr=1e-3)
        >>> recipe.model, recipe.batch
        ('vse++', 128)
    """

    # Data
    data: Text = Field(
        default="scenes(features=global)",
        description="Data set: `scenes(...)`, or a file or folder in a known layout (`simgrad "
        "datasets --layouts`)",
    )
    features: Text | None = Field(
        default=None,
        description="Folder written by `simgrad features`, used instead of the pictures",
    )
    skip: Text | None = Field(
        default=None, description="List of items to omit, from `simgrad datasets --fix`"
    )
    train_images: Count | None = Field(
        default=None,
        description="Train on N images of the train split and their captions, the same ones for "
        "every seed; by default on all",
    )
    resplit: Text | None = Field(
        default=None,
        description="Draw other train, val and test splits of the same images: `new(draw=2, "
        "test=1000, val=1000, pool=train)`; images of other splits than the pool's are always "
        "trained on",
    )
    augment: Text | None = Field(
        default=None, description="Augmentation of training pictures, e.g. vse++"
    )
    vocabulary: Text | None = Field(
        default=None,
        description="Vocabulary file (JSON or published pickle); for BERT, a folder or file with "
        "word pieces. By default it is built from the train split",
    )
    vocabulary_splits: tuple[Text, ...] = Field(
        default=("train",),
        strict=False,
        description="Splits to build the vocabulary from; adding val and test repeats the "
        "published leak",
    )
    min_count: Count = Field(
        default=4, description="Words that occur fewer than N times are treated as unknown"
    )

    # Model
    model: Text = Field(
        default="vse++",
        description="Model spec, e.g. `vsrn(dimension=2048)`: "
        + ", ".join(sorted(known.name for known in models)),
    )
    start_from: Text | None = Field(
        default=None, description="Checkpoint folder with the weights to start from"
    )

    # Objective
    objective: Text = Field(
        default="triplet-sh",
        description="Objective spec, e.g. `goal(triplet=cir, pair=sig-ms)`; `simgrad objectives` "
        "lists them",
    )
    first_objective: Text | None = Field(
        default=None,
        description="Objective of the first epochs, e.g. `triplet` before `triplet-sh`",
    )
    first_epochs: CountOrZero = Field(
        default=0, description="Number of epochs trained with `first_objective`"
    )
    reduction: Literal["published", "mean", "sum"] = Field(
        default="published",
        description="published: sum or mean over queries, as each objective was published; mean or "
        "sum: the same for all of them, so that their losses are on one scale",
    )
    positives: Literal["images", "pairs"] = Field(
        default="images",
        description="images: all captions of an image are its positives; pairs: an image's other "
        "captions are negatives, as published",
    )
    found_pairs: Text | None = Field(
        default=None,
        description="File or folder of pairs that belong together though nobody had marked them "
        "(from `simgrad false-negatives` or the lab page)",
    )
    found: Literal["ignore", "positive"] = Field(
        default="ignore",
        description="What found pairs are used as. ignore: neither positives nor negatives; "
        "positive: positives. Pairs answered `unsure` are always ignored",
    )
    sure: Annotated[Number, Field(ge=0, le=1)] = Field(
        default=0.5,
        description="Use a found pair that nobody has answered if its probability is at least this",
    )
    candidates: Text | None = Field(
        default=None,
        description="Folder of mined candidates for off-tri, off-quin and adap-off-quin: from "
        "`simgrad mine`, or AOQ's i2t_NAME.npy and t2i_NAME.npy",
    )
    depth: Count = Field(
        default=300,
        description="Draw from the N hardest candidates of an image (N/5 for a caption)",
    )
    draw: Literal["uniform", "normal"] = Field(
        default="uniform", description="Distribution to draw these candidates from"
    )

    # Optimisation
    batch: Count = Field(
        default=128, description="Captions in a batch (images, if `sampler` is images)"
    )
    lr: NotNegative = Field(default=2e-4, description="Learning rate")
    seed: int = Field(
        default=0,
        gt=-(2**31),
        lt=2**31,
        description="Sets the initial weights, the order of batches and the augmentation",
    )
    optimizer: Literal["adam", "adamw"] = Field(default="adam", description="Optimiser")
    weight_decay: NotNegative = Field(default=0.0, description="Weight decay")
    betas: tuple[Share, Share] = Field(
        default=(0.9, 0.999),
        strict=False,
        description="Adam's two decay rates: of the mean gradient, of the mean squared gradient",
    )
    epsilon: NotNegative = Field(
        default=1e-8,
        description="Adam's constant in the denominator; it counts where gradients are short",
    )
    clip: NotNegative = Field(
        default=2.0, description="Largest norm of the model's gradient; 0 turns clipping off"
    )
    sampler: Literal["pairs", "images", "distinct"] = Field(
        default="pairs",
        description="pairs: random captions, as published; images: images with several captions "
        "each (SmoothAP); distinct: no two captions of one image",
    )
    captions_per_image: Count = Field(
        default=5, description="Captions drawn for each image, if `sampler` is images"
    )
    drop_last: bool = Field(
        default=False, description="Drop the last batch of an epoch if it is not full"
    )
    micro_batch: Count | None = Field(
        default=None,
        description="Encode N pairs at a time to save memory; the gradient of the whole batch "
        "stays exact (GradCache)",
    )

    # Schedule
    epochs: CountOrZero = Field(
        default=30,
        description="Passes over the training captions (over the images, if `sampler` is images); "
        "0 only evaluates a pretrained model",
    )
    decay: Literal["step", "linear", "cosine"] = Field(
        default="step",
        description="step: divide the learning rate by 10 every `decay_every` epochs; linear, "
        "cosine: reduce it to zero at the end",
    )
    decay_every: Count = Field(default=15, description="Epochs between two steps of `decay: step`")
    warmup: Share = Field(
        default=0.0,
        description="Share of a stage's steps in which the learning rate rises linearly; a second "
        "stage (finetune_epochs) has a rise of its own",
    )
    early_stop: Count | None = Field(
        default=None, description="Stop after N evaluations without improvement"
    )
    freeze_epochs: CountOrZero = Field(
        default=0,
        description="Keep a fine-tuned backbone frozen for the first N epochs; during epoch N+1 "
        "the loss rises linearly from 0, as in VSE-infinity",
    )
    finetune_epochs: CountOrZero = Field(
        default=0,
        description="Add a second stage of N epochs that trains the backbone too",
    )
    finetune_lr: NotNegative = Field(default=2e-5, description="Learning rate of that second stage")
    wise: CountOrZero = Field(
        default=0,
        description="After training, try N steps between the pretrained and the trained weights "
        "on the validation split and keep the best (WiSE-FT); 10 is usual",
    )
    second_round: dict[str, Any] | None = Field(
        default=None,
        json_schema_extra=of_fields,
        description="Fields that differ in a second round, whose negatives are mined with the "
        "first round's best model; `from_round_one: true` starts from that model's weights",
    )

    # Evaluation
    select: Text = Field(
        default="rsum", description="Validation metric that decides which checkpoint is best"
    )
    evaluate_every: Count | None = Field(
        default=None,
        description="Evaluate on the validation split every N steps; by default once per epoch",
    )
    protocol: Text = Field(
        default="all",
        description="What the test ranks: all, flickr8k-1k, flickr30k-1k, coco-5k or coco-1k "
        "(mean of five folds). All but the first keep five captions per image",
    )
    test_split: Text | None = Field(
        default=None,
        description="Split to test; by default the protocol's (COCO's precomputed files call it "
        "testall)",
    )
    rerank: CountOrZero | None = Field(
        default=None,
        description="When testing, re-score the top N candidates with the model's re-ranker "
        "(X-VLM only); 0 uses the model's own setting",
    )
    also: Text | None = Field(
        default=None,
        description="Another data set to test before and after training, to see what the model "
        "forgets; classes(path=FOLDER): zero-shot classification of FOLDER/CLASS/*.jpg",
    )
    validation_only: bool = Field(
        default=False,
        description="Judge the run on the validation split alone: no test score is computed and no "
        "weights are kept, as in the trials of a search",
    )
    attention_every: CountOrZero = Field(
        default=0,
        description="Record which samples the objective weighs every N steps; 0 records at "
        "evaluations only",
    )
    log: Text | None = Field(
        default=None,
        description="Log to tensorboard, wandb, or both (tensorboard,wandb)",
    )

    # Machine
    device: Text = Field(default="auto", description="auto, cpu, cuda, cuda:1 or mps")
    precision: Literal["float32", "tf32", "bf16", "fp16"] = Field(
        default="float32",
        description="Arithmetic of the encoders; tf32 is float32 with faster, less exact products "
        "on a GPU",
    )
    threads: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description="Computing threads on a CPU; by default as many as cores are free when the run "
        "begins. A run keeps its number when it is resumed, because sums depend on it",
    )
    workers: int = Field(
        default=2,
        description="Threads that read ahead if features or pictures do not fit in memory",
    )
    graphs: bool = Field(
        default=True,
        description="On a GPU, with features in its memory, replay steps as CUDA graphs",
    )
    checkpoint_seconds: Number = Field(
        default=60.0, description="Seconds between two checkpoints to resume from"
    )

    @model_validator(mode="before")
    @classmethod
    def _by_todays_names(cls, values: Any) -> Any:
        return up_to_date(values) if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """A mistake in the second round, or in the test, is told before the first is trained."""
        if self.second_round is not None:
            self.round_two()
        find_protocol(self.protocol)
        if self.found_pairs is not None and self.positives == "pairs":
            raise InputError(
                "recipe: found_pairs come beside all captions of an image: leave `positives: pairs`"
                " out, or `found_pairs`."
            )
        if self.resplit is not None:
            read_resplit(self.resplit)
            if self.protocol != "all":
                raise InputError(
                    f"protocol: {self.protocol} is of the data's own test split; with `resplit` it "
                    "is `all`."
                )
        return self

    @property
    def other_captions_are_negatives(self) -> bool:
        """Whether a caption's only positive is its pair: other captions of the image are pushed."""
        return self.positives == "pairs"

    def round_two(self, **changes: Any) -> "Recipe":
        """The recipe of the second round."""
        own = up_to_date({**(self.second_round or {}), **changes})
        if own.get("second_round") is not None:
            raise InputError("second_round: there is no third round.")
        goes_on = own.pop("from_round_one", False)
        if not isinstance(goes_on, bool):
            raise InputError(f"second_round: from_round_one is true or false, not {goes_on!r:.80}.")
        if goes_on:  # the weights bring the words they were trained with
            for field in ("model", "vocabulary", "start_from"):
                if own.get(field) not in (None, getattr(self, field)):
                    raise InputError(
                        f"second_round: {field}: with from_round_one it is the first round's: "
                        "leave it out."
                    )
            own |= {"vocabulary": None, "start_from": None}
        return checked(Recipe, {**self.to_dict(), **own, "second_round": None}, "second_round")

    @property
    def from_round_one(self) -> bool:
        """Whether a second round starts from the first one's weights."""
        return bool((self.second_round or {}).get("from_round_one", False))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in YAML."""
        values = ((name, getattr(self, name)) for name in Recipe.model_fields)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values}

    def __repr_args__(self) -> Any:
        """What differs from the defaults."""
        default = Recipe.model_fields
        return [(k, v) for k, v in super().__repr_args__() if v != default[str(k)].default]

    def dataset(self) -> Dataset:
        """The data it names."""
        return open_dataset(
            self.data,
            features=self.features,
            skip=self.skip,
            train_images=self.train_images,
            resplit=self.resplit,
        )

    def tested_split(self, dataset: Dataset) -> str:
        """The split of some data that the test is about."""
        return self.test_split or find_protocol(self.protocol).split_in(dataset.splits)

    def settled(self) -> "Recipe":
        """The same recipe from anywhere: paths that are there become absolute."""
        return self.replace(**absolute(self.to_dict()))

    def replace(self, **changes: Any) -> "Recipe":
        """Another recipe with some fields changed, checked like one that was read."""
        return from_dict({**self.to_dict(), **up_to_date(changes)}, "recipe")

    def save(self, path: Path) -> None:
        """Write YAML that reads back."""
        values = self.to_dict()
        with atomic_write(path) as file:
            for title, names in grouped(values).items():
                file.write(f"# {title}\n")
                some = {name: values[name] for name in names}
                yaml.safe_dump(some, file, sort_keys=False, allow_unicode=True)


# May change between sittings of a run: how the same gradient is computed, and where.
MACHINE = (
    "device", "threads", "workers", "graphs", "checkpoint_seconds", "micro_batch", "log",
)  # fmt: skip


def differing(one: Recipe, other: Recipe) -> list[str]:
    """The fields in which two recipes differ, as far as they decide what a run does."""
    a, b = one.to_dict(), other.to_dict()
    return [name for name in a if a[name] != b[name] and name not in MACHINE]


def read_recipe(path: str | Path) -> Recipe:
    """A recipe from its YAML file.

    Examples:
        >>> from pathlib import Path
        >>> _ = Path("mine.yaml").write_text("objective: nt-xent\\nepochs: 3\\n")
        >>> simgrad.training.read_recipe("mine.yaml").epochs
        3
    """
    values = read_yaml(path)
    for text in earlier_names(values):
        warnings.warn(f"{path}: {text}.", stacklevel=2)
    return from_dict(values, str(path))


def from_dict(values: Mapping[str, Any], where: str) -> Recipe:
    """A recipe from plain values; unknown or ill-typed fields are named."""
    return checked(Recipe, values, where)
