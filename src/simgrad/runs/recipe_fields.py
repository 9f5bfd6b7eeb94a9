"""The fields of a recipe, in groups, each with its type, its default and what it does."""

from typing import Annotated, Any, Literal

from pydantic import Field

from simgrad.core.typed import Number, Text, Typed
from simgrad.models import models

_MODEL = "vse++"
_USUAL = models.parse(_MODEL).usual

Count = Annotated[int, Field(ge=1, lt=2**31)]
CountOrZero = Annotated[int, Field(ge=0, lt=2**31)]
NotNegative = Annotated[Number, Field(ge=0)]
Share = Annotated[Number, Field(ge=0, lt=1)]


def of_fields(schema: dict[str, Any]) -> None:
    """Say in a JSON schema that the names of a mapping are fields of a recipe."""
    schema["propertyNames"] = {"enum": [*RecipeFields.model_fields, "from_round_one"]}


class RecipeFields(Typed):
    """What `Recipe` holds; what it does stands in `recipe.py`."""

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
        default=_MODEL,
        description="Model spec, e.g. `vsrn(dimension=2048)`: "
        + ", ".join(sorted(known.name for known in models)),
    )
    start_from: Text | None = Field(
        default=None, description="Checkpoint folder with the weights to start from"
    )

    # Objective
    objective: Text = Field(
        default=_USUAL.objective,
        description="Objective spec, e.g. `goal(triplet=cir, pair=sig-ms)`; `simgrad objectives` "
        "lists them. Other models than vse++ have defaults of their own",
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
    lr: NotNegative = Field(
        default=_USUAL.lr,
        description="Learning rate; other models have other defaults",
    )
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
