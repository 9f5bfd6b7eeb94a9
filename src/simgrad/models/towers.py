"""Two pretrained networks, one for pictures and one for captions, with new projections.

Zhai et al.: LiT, zero-shot transfer with locked-image text tuning, CVPR 2022: the image network is
locked, the text network learns to meet it. Any other division of labour is a setting.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from simgrad.core.errors import InputError
from simgrad.core.spec import refuse_given, setting
from simgrad.data.vocabulary import Tokenizer
from simgrad.models.base import Encoded, Inputs, ModelConfig, RetrievalModel, TokenizerNeeds, models
from simgrad.models.networks import backbones, parts
from simgrad.models.networks.backbones import Backbone, backbone
from simgrad.models.networks.layers import l2norm
from simgrad.models.networks.sentences import POOLINGS, SentenceNetwork, packaged, text_source
from simgrad.models.networks.tuning import Tower, Way, add_lora, grouped, lora_config
from simgrad.models.published.towers import exports_as_pair, write_pair, write_pair_modules


@models.declare(
    "towers",
    paper="Zhai et al., CVPR 2022",
    description="a pretrained image network and a pretrained text network, new projections",
)
@dataclass(frozen=True)
class Towers(ModelConfig):
    small: ClassVar[dict[str, Any]] = {"dimension": 128, "text": None, "width": 64, "layers": 2}

    image: str = setting(
        "efficientnet-lite0", "image network: a name, transformers:SOURCE, timm:NAME"
    )
    text: str | None = setting(
        "minilm", "text network: minilm, a folder or a hub name of transformers; none: untrained"
    )
    pooling: str = setting(
        "auto",
        "how the text network's states become one vector; auto: as its folder says",
        choices=POOLINGS,
    )
    dimension: int = setting(512, "size of the joint space")
    hidden: int = setting(0, "width of a hidden layer in the projections; 0: they are linear")
    train_image: str = setting(
        "none", "what of the image network is trained: full, none, last=K or lora=RANK"
    )
    train_text: str = setting(
        "full", "what of the text network is trained: full, none, last=K or lora=RANK"
    )
    tower_lr: float = setting(0.1, "learning rate of the pretrained networks, as a share of lr")
    width: int = setting(384, "width of an untrained text network (BERT)")
    layers: int = setting(6, "layers of an untrained text network")
    layer_decay: float = setting(1.0, "learning rate of a layer, as a share of the next layer's")
    checkpointing: bool = setting(False, "recompute layers in the backward pass: less memory")

    def build(self, inputs: Inputs) -> "TowersModel":
        return TowersModel(self, inputs)

    @property
    def reads(self) -> str:
        """Pictures where it trains their network; else features of it will do."""
        return "global" if self.train_image == "none" else "pixels"

    @property
    def lock(self) -> str | None:
        return None if self.train_image == "none" else "train_image=none"

    @property
    def tokenizer_needs(self) -> TokenizerNeeds:
        self.require_sense()  # before a network is looked for
        if self.text is None:
            return TokenizerNeeds(True)
        return TokenizerNeeds(True, ("text", text_source(self.text)), by_transformers=True)

    def require_sense(self) -> None:
        """Refuse settings that mean nothing beside the others."""
        if not 0 < self.layer_decay <= 1 or not self.tower_lr > 0:
            raise InputError("tower_lr is above 0; layer_decay is above 0 and at most 1.")
        if self.text is not None:
            refuse_given(self, ("width", "layers"), "an untrained text network (text=none)")
        if (self.train_image, self.train_text) == ("none", "none"):
            trained = "a network that is trained, and both are locked"
            refuse_given(self, ("tower_lr", "layer_decay", "checkpointing"), trained)

    def without_downloads(self) -> "Towers":
        changed: dict[str, Any] = {}
        if self.text is not None and not (packaged(self.text) or parts.here(self.text)):
            changed["text"] = None
        if not backbones.here(self.image):
            changed |= {"image": "efficientnet-lite0", "train_image": "none"}
        return dataclasses.replace(self, **changed)


class TowersModel(RetrievalModel):
    """Two networks and two projections."""

    config: Towers

    def __init__(self, config: Towers, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        self.needs("features", "pixels")
        config.require_sense()
        self.image: Backbone | None = None
        if inputs.images == "pixels":
            self.image = backbone(config.image)
            self.sees(self.image.size, self.image.transform)
        elif config.train_image != "none":
            raise InputError(f"train_image={config.train_image} needs pictures, not features.")
        sizes = {"words": inputs.vocabulary_size, "width": config.width, "layers": config.layers}
        self.text = SentenceNetwork(config.text, config.pooling, sizes)
        self.longest = self.text.longest
        self._tune()
        width = inputs.image_dimension if self.image is None else self.image.dimension
        self.image_projection = _projection(width, config)
        self.text_projection = _projection(self.text.dimension, config)

    def _tune(self) -> None:
        config = self.config
        self.towers = [Tower("train_text", Way.read(config.train_text, "train_text"),
                             {"text.net": self.text.net})]  # fmt: skip
        way = Way.read(config.train_image, "train_image")
        if self.image is not None:
            self.towers.append(Tower("train_image", way, {"image.network": self.image.network}))
        self.lora = lora_config(self, self.towers)
        if self.lora is not None:
            add_lora(self, self.lora)
        self.requires_grad_(False)
        for tower in self.towers:
            tower.freeze()
            if config.checkpointing and not tower.locked:
                _save_memory(tower)

    def encode_images(self, images: Tensor) -> Encoded:
        if self.image is not None and images.dim() != 2:
            images = self.image.pooled(images)
        # Unit length first: networks differ a thousandfold in how long their vectors are.
        return Encoded(l2norm(self.image_projection(l2norm(images))))

    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Encoded:
        made = tokens.is_floating_point()
        vectors = tokens if made else self.text(tokens, lengths)
        return Encoded(l2norm(self.text_projection(l2norm(vectors))))

    def train(self, mode: bool = True) -> "TowersModel":
        super().train(mode)
        for tower in self.towers:
            tower.rest()
        for part in self.modules():
            if isinstance(part, _BatchNorm):  # statistics of its pretraining stay
                part.eval()
        return self

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        share = lr * self.config.tower_lr
        slow = [g for tower in self.towers for g in tower.groups(share, self.config.layer_decay)]
        new = [*self.image_projection.parameters(), *self.text_projection.parameters()]
        return [*grouped((p, lr) for p in new), *slow]

    def can_capture(self) -> bool:
        return not self.config.checkpointing

    def has_batch_norms(self) -> bool:
        """None that would see a batch: they keep their statistics."""
        return False

    def fixed_network(self) -> "tuple[Backbone, int | None] | None":
        locked = self.image is not None and self.config.train_image == "none"
        return (self.image, None) if locked and self.image is not None else None

    def fixed_captions(self) -> Any:
        return self.text if self.config.train_text == "none" else None

    def formats(self) -> tuple[str, ...]:
        pair = () if exports_as_pair(self) else ("transformers", "sentence-transformers")
        return (*pair, "onnx")

    def export(
        self, format: str, folder: Path, tokenizer: Tokenizer, *, adapter: bool = False
    ) -> None:
        if adapter:
            raise InputError(
                f"model '{self.config}': its projections are new, so a LoRA adapter is not the "
                "whole model."
            )
        if format == "transformers":
            write_pair(self, tokenizer, folder)
        elif format == "sentence-transformers":
            write_pair_modules(self, tokenizer, folder)
        else:
            super().export(format, folder, tokenizer)


def _projection(width: int, config: Towers) -> nn.Module:
    if not config.hidden:
        return nn.Linear(width, config.dimension, bias=False)
    return nn.Sequential(
        nn.Linear(width, config.hidden),
        nn.GELU(),
        nn.Linear(config.hidden, config.dimension),
    )


def _save_memory(tower: Tower) -> None:
    for part in tower.parts.values():
        network = getattr(part, "model", part)
        switch = getattr(network, "gradient_checkpointing_enable", None)
        if switch is None:
            raise InputError(
                f"checkpointing=true, but the network of {tower.name} has no such way."
            )
        switch({"use_reentrant": False})
