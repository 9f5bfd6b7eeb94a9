"""What every model is to the rest of simgrad: a batch goes in, similarities come out.

A model declares its settings as a dataclass (`vse++(dimension=1024)` is its spec), and encodes
images and captions separately. What it encodes them to is its own business: one vector each
(`embeds` is true, similarities are plain products), or sets of regions and words that it
compares by attention. Objectives, evaluation and mining only ever ask for `similarities`.

Whatever else a model can do or needs is a method here, with an answer that suits a plain model:
nobody outside asks which model it is.
"""

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from simgrad.core.errors import InputError
from simgrad.core.spec import Registry, check_settings, print_spec
from simgrad.core.text import listed
from simgrad.data.vocabulary import Tokenizer
from simgrad.models.inputs import (
    Encoded,
    ImageKind,
    Inputs,
    Scale,
    TokenizerNeeds,
    tokens_of,
    vectors_of,
)
from simgrad.models.networks.backbones import Backbone
from simgrad.models.networks.layers import Tower
from simgrad.models.networks.many import ManyVse
from simgrad.models.published.onnx import write_onnx

__all__ = [
    "CaptionBatch",
    "Encoded",
    "Inputs",
    "ModelConfig",
    "Reranker",
    "RetrievalModel",
    "Scale",
    "TokenizerNeeds",
    "build",
    "models",
    "tokens_of",
    "vectors_of",
]


class CaptionBatch(Protocol):
    """The part of a training batch that auxiliary losses need."""

    @property
    def tokens(self) -> Tensor: ...  # (m, L)

    @property
    def lengths(self) -> Tensor: ...  # (m,)

    @property
    def image_of_caption(self) -> Tensor: ...  # (m,)


@dataclass(frozen=True)
class Reranker:
    """A second, dearer look at the best pairs of a first ranking."""

    scores: Callable[[Tensor], Tensor]  # (p, 2) rows of images and captions -> (p,), high = match
    candidates: int  # how many of each query's best it is made for


class Usual(NamedTuple):
    """What a model is trained with where nobody names it."""

    objective: str
    lr: float


_told: set[str] = set()  # whose vectors have another length than 1
# What a model may be fed: one vector an image, a set of them, or pictures.
READS = ("global", "regions", "pixels")


def _missing(thing: object, method: str) -> InputError:
    return InputError(f"{type(thing).__name__} needs a method `{method}`: see docs/own.md.")


@dataclass(frozen=True)
class ModelConfig:
    """Settings of a declared model; `str()` is the spec that parses back.

    Examples:
        >>> config = simgrad.models.models.parse("vse++(dimension=64)")
        >>> str(config), config.reads
        ('vse++(dimension=64)', 'global')
    """

    name: ClassVar[str]
    # The published one, unless runs of ours say more.
    usual: ClassVar[Usual] = Usual("triplet-sh", 2e-4)
    # Settings of a version that a laptop can train, where the model has them.
    small: ClassVar[dict[str, Any]] = {"dimension": 128, "word_dimension": 64}

    def __post_init__(self) -> None:
        """Every value is one that its declaration allows."""
        check_settings(self)

    def __str__(self) -> str:
        return print_spec(self)

    def build(self, inputs: Inputs) -> "RetrievalModel":
        raise _missing(self, "build(self, inputs)")

    @property
    def reads(self) -> str:
        """What it wants to be fed: global (one vector an image), regions or pixels."""
        return "regions"

    @property
    def tokenizer_needs(self) -> TokenizerNeeds:
        """What its captions should be turned into: words, unless it says so."""
        return TokenizerNeeds()

    @property
    def ready(self) -> bool:
        """Whether it can be used before any training: all of it is pretrained."""
        return False

    @property
    def trains_backbone(self) -> bool:
        """Whether it trains an image network of its own, which may then be frozen for a while."""
        return False

    @property
    def groups(self) -> bool:
        """Whether several such models can be trained as one, see `RetrievalModel.together`."""
        return False

    @property
    def lock(self) -> str | None:
        """The setting that leaves its image network as it was pretrained, where that is trained."""
        return None

    def without_downloads(self) -> "ModelConfig":
        """The same model without those pretrained parts that would have to be fetched."""
        return self

    def simplest(self) -> "ModelConfig":
        """The same model by its simplest name, where settings make it another declared model."""
        return self

    def narrow(self) -> "ModelConfig":
        """The same model, small and untrained."""
        known = {field.name for field in dataclasses.fields(self)}
        return dataclasses.replace(self, **{k: v for k, v in self.small.items() if k in known})


class _Models(Registry[ModelConfig]):
    """Declared models; two specs of the same model give the same settings."""

    def parse(self, text: str, given: Mapping[str, Any] | None = None) -> ModelConfig:
        found = super().parse(text, given).simplest()
        if found.reads not in READS:
            told = listed(READS, "or")
            raise InputError(f"model '{found.name}': `reads` is {told}, not {found.reads!r:.80}.")
        return found


models: Registry[ModelConfig] = _Models("model", "simgrad models")
"""Every declared model, ours and yours; `models.declare` adds one.

Examples:
    >>> simgrad.models.models["vse++"].paper
    'Faghri et al., BMVC 2018'
    >>> print(simgrad.models.models.parse("vse++(dimension=64, text=gru)"))
    vse++(dimension=64)
"""


class RetrievalModel(nn.Module):
    """Images and captions -> similarities.

    Examples:
        >>> inputs = simgrad.models.Inputs("features", (1280,), vocabulary_size=100)
        >>> model = simgrad.models.build("vse++(dimension=16, word_dimension=8)", inputs)
        >>> tokens, lengths = torch.randint(1, 100, (3, 7)), torch.tensor([7, 5, 4])
        >>> model(torch.randn(2, 1280), tokens, lengths).shape  # 2 images x 3 captions
        torch.Size([2, 3])
    """

    embeds = True  # similarities are products of unit vectors
    transform = "vse++"  # how pictures are cut for it, of simgrad.data.transforms
    reranks = False  # has a second, slower scorer: see `reranker`
    fills_captions = False  # whether captions are filled up to the longest, for it to read them
    longest: int | None = None  # most tokens of a caption that it can read; None: any number
    reads_vectors = False  # captions are vectors that the data bring, not words
    # What its `auxiliary_loss` looks at: nothing where there is none; "pairs" where it is a mean
    # over captions, each with its own image; else the whole batch. Processes that share a batch
    # take a mean in parts; else each must gather all of it.
    auxiliary_sees: Literal["nothing", "pairs", "batch"] = "nothing"

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        order = cls.mro()  # a mixin may bring the loss
        loss, sees = (
            next(place for place, one in enumerate(order) if name in vars(one))
            for name in ("auxiliary_loss", "auxiliary_sees")
        )
        if loss < sees:  # a loss that nobody has said this of
            cls.auxiliary_sees = "batch"

    def __init__(self, config: ModelConfig, inputs: Inputs) -> None:
        super().__init__()
        self.config = config
        self.inputs = inputs

    # -- from a batch to similarities

    def encode_images(self, images: Tensor) -> Encoded:
        raise _missing(self, "encode_images(self, images)")

    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Encoded:
        raise _missing(self, "encode_captions(self, tokens, lengths)")

    def similarities(self, images: Encoded, captions: Encoded) -> Tensor:
        """(images, captions), in float32 whatever the encoders run in."""
        image, caption = vectors_of(images), vectors_of(captions)
        with torch.autocast(image.device.type, enabled=False):
            return image.float() @ caption.float().T

    def pairwise(self, images: Encoded, captions: Encoded) -> Tensor:
        """(n,): image k with caption k alone."""
        return (vectors_of(images) * vectors_of(captions)).sum(1)

    def forward(self, images: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
        """One batch to its similarities, (images, captions)."""
        return self.similarities(self.encode_images(images), self.encode_captions(tokens, lengths))

    def reranker(self, images: Encoded, captions: Encoded) -> Reranker | None:
        """A second look at pairs of what it has encoded, where the model has one."""
        return None

    # -- training

    def auxiliary_loss(
        self, images: Encoded, captions: Encoded, batch: CaptionBatch
    ) -> Tensor | None:
        """A loss of the model's own beside the objective, or None."""
        return None

    def slow_parts(self) -> list[tuple[nn.Module, float]]:
        """Parts that learn at a share of the learning rate, and the share."""
        return []

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """What the optimiser trains, and how fast."""
        slow = [(list(part.parameters()), share) for part, share in self.slow_parts()]
        apart = {id(p) for parameters, _ in slow for p in parameters}
        rest = [p for p in self.parameters() if id(p) not in apart]
        groups = []
        for parameters, share in [(rest, 1.0), *slow]:
            trained = [p for p in parameters if p.requires_grad]
            groups += [{"params": trained, "lr": lr * share}] if trained else []
        return groups

    def pretrained_scale(self) -> Scale | None:
        """The scale and bias of its pretraining, if any: an objective may start there."""
        return None

    def set_scale(self, scale: Scale) -> None:
        """Keep the scale and bias that an objective has learned, where it has a place for them."""

    def can_capture(self) -> bool:
        """Whether its steps ask the host nothing, so that a GPU can replay them."""
        return True

    def together(self, *, half: bool) -> ManyVse | None:
        """The encoders of several models like this one at once, where there are such."""
        return None

    def can_augment(self) -> bool:
        """Whether its pictures may be varied while training."""
        return True

    def has_batch_norms(self) -> bool:
        """Whether it may mix the images of a batch once it is trained."""
        return any(isinstance(part, _BatchNorm) for part in self.modules())

    def mixes_images(self) -> bool:
        """Whether what it makes of an image depends on the others of the batch just now: it does
        in batch norms that are training."""
        return any(isinstance(part, _BatchNorm) and part.training for part in self.modules())

    def between(
        self, before: dict[str, Tensor], after: dict[str, Tensor], share: float
    ) -> dict[str, Tensor]:
        """Its weights on the way from one state to another."""
        return {
            name: torch.lerp(before[name], value, share) if value.is_floating_point() else value
            for name, value in after.items()
        }

    # -- an image network of its own

    def image_network(self) -> Tower | None:
        """The network that it runs on pictures, if that can be frozen apart from the rest."""
        return None

    def can_freeze(self) -> bool:
        """Whether `set_backbone` has something to thaw and freeze."""
        return self.image_network() is not None and self.config.trains_backbone

    def set_backbone(self, trained: bool) -> None:
        """Thaw or freeze its image network, where its settings allow that to be trained."""
        tower = self.image_network()
        if tower is not None and self.can_freeze():
            tower.set_trained(trained)
        elif not trained:
            lock = self.config.lock
            instead = f", or lock it in all epochs ({lock} in the model)" if lock else ""
            raise InputError(
                f"model '{self.config}' has no image network that is frozen in some epochs and "
                f"trained in others: leave freeze_epochs and finetune_epochs out{instead}."
            )

    def fixed_network(self) -> "tuple[Backbone, int | None] | None":
        """A frozen image network and its grid cells a side (None: one vector an image), where
        `encode_images` takes what it makes of pictures as well as the pictures themselves."""
        return None

    def fixed_captions(self) -> "Callable[[Tensor, Tensor], Tensor] | None":
        """A frozen text network, tokens and lengths to (m, d), where `encode_captions` takes what
        it makes of captions as well as the captions themselves."""
        return None

    # -- for other programs

    def formats(self) -> tuple[str, ...]:
        """The formats of other programs that it can be written in, the most usual first."""
        return ("onnx",) if self.embeds else ()

    def export(
        self, format: str, folder: Path, tokenizer: Tokenizer, *, adapter: bool = False
    ) -> None:
        """Write it for another program; one of `formats`.

        `adapter`: the low-rank changes alone, where nothing else was trained.
        """
        if adapter:
            raise InputError(f"model '{self.config}' has no LoRA adapter to write.")
        write_onnx(self, tokenizer, folder)

    # -- for models themselves

    def needs(self, *kinds: ImageKind) -> None:
        """Refuse images of a kind this model cannot read."""
        given = self.inputs.images
        if given in kinds:
            return
        grid = " --grid 7" if "regions" in kinds else ""
        hint = f" `simgrad features DATA{grid}` makes what it reads." if given == "pixels" else ""
        shape = "" if given == "pixels" else f" of shape {self.inputs.image_shape}"
        raise InputError(
            f"model '{self.config.name}' reads {' or '.join(kinds)}, but the data gives "
            f"{given}{shape}.{hint}"
        )

    def sees(self, size: int, transform: str) -> None:
        """Note which pictures it was made for: pixels a side, and how they are cut."""
        self.inputs = dataclasses.replace(self.inputs, image_shape=(3, size, size))
        self.transform = transform


def build(spec: str | ModelConfig, inputs: Inputs) -> RetrievalModel:
    """The model that a spec names, untrained or as its pretrained parts are, for these inputs.

    Examples:
        >>> inputs = simgrad.models.Inputs("features", (1280,), vocabulary_size=100)
        >>> model = simgrad.models.build("vse++(dimension=16, word_dimension=8)", inputs)
        >>> model.encode_images(torch.randn(3, 1280)).vectors.shape
        torch.Size([3, 16])
    """
    config = models.parse(spec) if isinstance(spec, str) else spec.simplest()
    try:
        made = config.build(inputs)
    except InputError:
        raise
    except (ValueError, RuntimeError, MemoryError, ZeroDivisionError, OverflowError) as error:
        # Sizes that no layer can have, or no memory can hold.
        silent = "no memory" if isinstance(error, MemoryError) else type(error).__name__
        reason = str(error).strip().splitlines()[0][:120] if str(error).strip() else silent
        raise InputError(f"model '{config}' cannot be built: {reason}.") from None
    if not type(made).__module__.startswith("simgrad."):
        _try(made, config, inputs)
    return made


def _try(made: RetrievalModel, config: ModelConfig, inputs: Inputs) -> None:
    """Ask a model of somebody's own for two images and two captions, and look at what it gives."""
    if not isinstance(made, RetrievalModel):
        raise InputError(f"model '{config}': build gave {made!r:.80}, not a RetrievalModel.")
    if inputs.images == "pixels" or made.reads_vectors:  # the model says which sizes it takes
        return
    training = made.training
    device = next(made.parameters(), torch.zeros(0)).device
    try:
        with torch.no_grad(), torch.random.fork_rng([]):
            made.eval()
            images = torch.randn(2, *inputs.image_shape).to(device)
            tokens = torch.randint(1, max(2, inputs.vocabulary_size), (2, 5)).to(device)
            lengths = torch.tensor([5, 5], device=device)
            found: dict[str, Any] = {
                "encode_images": made.encode_images(images),
                "encode_captions": made.encode_captions(tokens, lengths),
            }
    except InputError:
        raise
    except Exception:  # it may need more than this: then its use shows what is wrong
        return
    finally:
        made.train(training)
    dimensions = {}
    for method, encoded in found.items():
        who = f"model '{config}': {type(made).__name__}.{method}"
        if not isinstance(encoded, Encoded):
            given = type(encoded).__name__
            raise InputError(
                f"{who} returned a {given}; simgrad.models.Encoded(vectors) is needed."
            )
        if len(encoded) != 2:
            raise InputError(f"{who} returned {len(encoded)} items for 2.")
        if encoded.vectors is None or not made.embeds:
            continue
        dimensions[method] = encoded.vectors.shape[1]
        long = encoded.vectors.float().norm(dim=1)
        if not bool(torch.isfinite(long).all()):
            raise InputError(f"{who} returned NaN or infinity.")
        if float((long - 1).abs().max()) > 0.01 and who not in _told:
            _told.add(who)
            warnings.warn(
                f"{who} returned vectors of length {float(long.max()):.3g}, not 1: evaluation "
                "takes their product for a cosine. nn.functional.normalize(vectors, dim=1) makes "
                "it one.",
                stacklevel=3,
            )
    if len(set(dimensions.values())) > 1:
        told = " and ".join(f"{method} {size}" for method, size in dimensions.items())
        raise InputError(f"model '{config}': {type(made).__name__}: dimensions differ: {told}.")
