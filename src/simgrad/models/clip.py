"""CLIP, SigLIP and SigLIP 2: the dual encoders that people fine-tune today.

Radford et al., ICML 2021; Zhai et al., ICCV 2023; Tschannen et al., arXiv 2502.14786. Folders of
`transformers`, and open_clip's of CLIP, which become the same network. The folder's own processor
and tokenizer are used, so that an embedding is what these make of the same picture or caption.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.core.spec import refuse_given, setting
from simgrad.data.vocabulary import Tokenizer
from simgrad.models.base import (
    Encoded,
    Inputs,
    ModelConfig,
    RetrievalModel,
    Scale,
    TokenizerNeeds,
    Usual,
    models,
)
from simgrad.models.networks.backbones import Backbone
from simgrad.models.networks.dual import Dual
from simgrad.models.networks.layers import l2norm
from simgrad.models.networks.parts import here
from simgrad.models.networks.tuning import TunedTower, Way, add_lora, lora_config
from simgrad.models.published.open_clip import write_open_clip
from simgrad.models.published.transformers import (
    write_adapter,
    write_sentence_transformers,
    write_transformers,
)


@models.declare(
    "clip",
    paper="Radford et al., ICML 2021; Zhai et al., ICCV 2023",
    description="CLIP, SigLIP or SigLIP 2 of transformers, zero-shot or fine-tuned",
)
@dataclass(frozen=True)
class Clip(ModelConfig):
    usual = Usual("nt-xent(learned=true)", 1e-5)  # its own scale; a common rate, not measured here
    small: ClassVar[dict[str, Any]] = {
        "source": None, "dimension": 128, "width": 128, "layers": 2, "heads": 2, "size": 64,
        "patch": 8, "train_image": "full", "train_text": "full",
    }  # fmt: skip

    source: str | None = setting(
        "openai/clip-vit-base-patch32", "folder or hub name; none: untrained"
    )
    train_image: str = setting(
        "full", "what of the image tower is trained: full, none, last=K or lora=RANK"
    )
    train_text: str = setting(
        "full", "what of the text tower is trained: full, none, last=K or lora=RANK"
    )
    layer_decay: float = setting(1.0, "learning rate of a layer, as a share of the next layer's")
    checkpointing: bool = setting(False, "recompute layers in the backward pass: less memory")
    family: str = setting("clip", "kind of an untrained network", choices=("clip", "siglip"))
    dimension: int = setting(512, "size of an untrained network's joint space")
    width: int = setting(512, "width of an untrained network's layers")
    layers: int = setting(12, "layers in each of an untrained network's towers")
    heads: int = setting(8, "attention heads of an untrained network")
    patch: int = setting(32, "side of a patch in pixels, of an untrained network")
    positions: int = setting(77, "longest caption of an untrained network")
    size: int = setting(224, "side of a picture in pixels, of an untrained network")

    def build(self, inputs: Inputs) -> "ClipModel":
        return ClipModel(self, inputs)

    @property
    def reads(self) -> str:
        return "pixels"

    @property
    def ready(self) -> bool:
        return self.source is not None

    @property
    def lock(self) -> str | None:
        both = "none" not in (self.train_image, self.train_text)
        return "train_image=none" if self.ready and both else None

    @property
    def tokenizer_needs(self) -> TokenizerNeeds:
        if self.source is None:
            return TokenizerNeeds(True)  # pieces of words, so that transformers can read it back
        return TokenizerNeeds(True, ("source", self.source), by_transformers=True)

    def without_downloads(self) -> "Clip":
        return self if here(self.source) else dataclasses.replace(self, source=None)


class ClipModel(RetrievalModel):
    """CLIP, SigLIP or SigLIP 2."""

    config: Clip

    def __init__(self, config: Clip, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        self.needs("pixels")
        if not 0 < config.layer_decay <= 1:
            raise InputError(f"layer_decay is above 0 and at most 1, not {config.layer_decay}.")
        if config.source is not None:
            refuse_given(config, _OF_UNTRAINED, "an untrained network (source=none)")
        elif config.family == "siglip" and config.dimension != config.width:
            refuse_given(config, ("dimension",), "family=clip: siglip's joint space is `width`")
        self.body = Dual(config.source, _untrained(config, inputs))
        ways = {name: Way.read(getattr(config, name), name) for name in _TOWERS}
        self.towers = [TunedTower(name, way, self._parts(name)) for name, way in ways.items()]
        self.lora = lora_config(self.body.net, self.towers)
        if self.lora is not None:
            add_lora(self.body.net, self.lora)
        self.requires_grad_(False)
        for tower in self.towers:
            tower.freeze()
        if config.checkpointing:
            self.body.save_memory()
        self.longest = self.body.longest
        self.fills_captions = self.body.family != "clip"
        self.sees(self.body.reading.size, self.body.reading.transform)

    def _parts(self, name: str) -> Any:
        net, kind = self.body.net, "vision" if name == "train_image" else "text"
        names = (f"{kind}_model", {"vision": "visual", "text": "text"}[kind] + "_projection")
        return {part: getattr(net, part) for part in names if hasattr(net, part)}

    def encode_images(self, images: Tensor) -> Encoded:
        made = images.dim() == 2  # what a locked tower made before
        return Encoded(l2norm(images if made else self.body.image(images)))

    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Encoded:
        made = tokens.is_floating_point()
        return Encoded(l2norm(tokens if made else self.body.caption(tokens, lengths)))

    def train(self, mode: bool = True) -> "ClipModel":
        super().train(mode)
        for tower in self.towers:
            tower.rest()
        return self

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        found = [
            group for tower in self.towers for group in tower.groups(lr, self.config.layer_decay)
        ]
        if not found:
            raise InputError(
                f"model '{self.config}': both towers are locked, so nothing is trained. Leave one "
                "of train_image=none and train_text=none out."
            )
        return found

    def pretrained_scale(self) -> Scale | None:
        """An untrained network has none yet."""
        return None if self.config.source is None else self.body.scale()

    def set_scale(self, scale: Scale) -> None:
        self.body.set_scale(scale)

    def between(
        self, before: dict[str, Tensor], after: dict[str, Tensor], share: float
    ) -> dict[str, Tensor]:
        # Of a product of two, one is scaled: the change itself goes along the line.
        kept = {name: value for name, value in after.items() if ".lora_A." in name}
        return {**super().between(before, after, share), **kept}

    def can_capture(self) -> bool:
        return not self.config.checkpointing and not self.body.reading.patches

    def can_augment(self) -> bool:
        return not self.body.reading.patches

    def fixed_network(self) -> "tuple[Backbone, int | None] | None":
        return (self.body.image_network(), None) if self.towers[0].locked else None

    def fixed_captions(self) -> Any:
        return self.body.caption if self.towers[1].locked else None

    def formats(self) -> tuple[str, ...]:
        own = ("open_clip",) if self.body.family == "clip" else ()
        return ("transformers", "sentence-transformers", *own, "onnx")

    def export(
        self, format: str, folder: Path, tokenizer: Tokenizer, *, adapter: bool = False
    ) -> None:
        if adapter and format == "transformers" and self._only_lora():
            write_adapter(self.body, self.lora, self.config.source, folder)
        elif adapter:
            raise InputError(
                f"model '{self.config}': an adapter needs the format transformers and a model of "
                "which only LoRA is trained (train_image and train_text are lora or none)."
            )
        elif format == "transformers":
            write_transformers(self.body, tokenizer, folder)
        elif format == "sentence-transformers":
            write_sentence_transformers(self.body, tokenizer, folder)
        elif format == "open_clip":
            write_open_clip(self.body, tokenizer, folder)
        else:
            super().export(format, folder, tokenizer)

    def _only_lora(self) -> bool:
        kinds = {tower.way.kind for tower in self.towers}
        return "lora" in kinds and kinds <= {"lora", "none"}


_TOWERS = ("train_image", "train_text")
_OF_UNTRAINED = (
    "family", "dimension", "width", "layers", "heads", "patch", "positions", "size",
)  # fmt: skip


def _untrained(config: Clip, inputs: Inputs) -> dict[str, Any]:
    tower = {
        "hidden_size": config.width,
        "intermediate_size": 4 * config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
    }
    text = {
        **tower,
        "vocab_size": inputs.vocabulary_size,
        "max_position_embeddings": config.positions,
        "pad_token_id": 0,
        "bos_token_id": 2,  # [CLS] and [SEP] of word pieces
        "eos_token_id": 3,
    }
    vision = {**tower, "image_size": config.size, "patch_size": config.patch}
    if config.family == "siglip":
        text["projection_size"] = config.width
    settings: dict[str, Any] = {
        "model_type": config.family,
        "text_config": text,
        "vision_config": vision,
    }
    return (
        settings if config.family == "siglip" else settings | {"projection_dim": config.dimension}
    )
