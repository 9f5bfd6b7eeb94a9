"""Two pretrained networks, one for pictures and one for captions, with new projections.

Zhai et al.: LiT, zero-shot transfer with locked-image text tuning, CVPR 2022: the image network is
locked, the text network learns to meet it. Any other division of labour is a setting.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from torch.nn.modules.batchnorm import _BatchNorm

from simgrad.core.errors import InputError
from simgrad.core.spec import refuse_given, setting
from simgrad.models.base import Inputs, ModelConfig, TokenizerNeeds, Usual, models
from simgrad.models.light import Light
from simgrad.models.networks import backbones
from simgrad.models.networks.backbones import Backbone
from simgrad.models.networks.heads import HeadSettings, HeadsModel
from simgrad.models.networks.sentences import SentenceNetwork
from simgrad.models.networks.tuning import TunedTower, Way, add_lora, grouped, lora_config


@models.declare(
    "towers",
    paper="Zhai et al., CVPR 2022",
    description="a pretrained image network and a pretrained text network, new projections",
)
@dataclass(frozen=True)
class Towers(HeadSettings):
    usual = Usual("nt-xent(tau=0.05, learned=true)", 3e-4)  # results/towers
    small: ClassVar[dict[str, Any]] = {"dimension": 128, "text": None, "width": 64, "layers": 2}

    text: str | None = setting(
        "minilm", "text network: minilm, a folder or a hub name of transformers; none: untrained"
    )
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

    def simplest(self) -> ModelConfig:
        """With both networks locked it is `light`."""
        if self.text is None or (self.train_image, self.train_text) != ("none", "none"):
            return self
        self.require_sense()
        shared = {f.name: getattr(self, f.name) for f in dataclasses.fields(HeadSettings)}
        return Light(**shared, dropout=0.0)

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
        return self.network_tokenizer

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
        if self.lacks_text():
            changed["text"] = None
        if not backbones.here(self.image):
            changed |= {"image": "efficientnet-lite0", "train_image": "none"}
        return dataclasses.replace(self, **changed)


class TowersModel(HeadsModel):
    """Two networks, of which at least one is trained, with a head on each."""

    config: Towers

    def __init__(self, config: Towers, inputs: Inputs) -> None:
        if inputs.images != "pixels" and config.train_image != "none":
            raise InputError(f"train_image={config.train_image} needs pictures, not features.")
        super().__init__(config, inputs)

    def text_network(self) -> SentenceNetwork:
        words, config = self.inputs.vocabulary_size, self.config
        sizes = {"words": words, "width": config.width, "layers": config.layers}
        return SentenceNetwork(config.text, config.pooling, sizes)

    def freeze(self) -> None:
        config = self.config
        self.towers = [TunedTower("train_text", Way.read(config.train_text, "train_text"),
                             {"text.net": self.text.net})]  # fmt: skip
        way = Way.read(config.train_image, "train_image")
        if self.image is not None:
            self.towers.append(
                TunedTower("train_image", way, {"image.network": self.image.network})
            )
        self.lora = lora_config(self, self.towers)
        if self.lora is not None:
            add_lora(self, self.lora)
        self.requires_grad_(False)
        for tower in self.towers:
            tower.freeze()
            if config.checkpointing and not tower.locked:
                _save_memory(tower)

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
        return [*grouped((p, lr) for p in self.heads()), *slow]

    def can_capture(self) -> bool:
        return not self.config.checkpointing

    def fixed_network(self) -> "tuple[Backbone, int | None] | None":
        locked = self.image is not None and self.config.train_image == "none"
        return (self.image, None) if locked and self.image is not None else None

    def fixed_captions(self) -> Any:
        return self.text if self.config.train_text == "none" else None


def _save_memory(tower: TunedTower) -> None:
    for part in tower.parts.values():
        network = getattr(part, "model", part)
        switch = getattr(network, "gradient_checkpointing_enable", None)
        if switch is None:
            raise InputError(
                f"checkpointing=true, but the network of {tower.name} has no such way."
            )
        switch({"use_reentrant": False})
