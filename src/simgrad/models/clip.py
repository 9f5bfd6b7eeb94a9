"""CLIP and SigLIP: the dual encoders that people fine-tune today, from `transformers`.

Radford et al., ICML 2021; Zhai et al., ICCV 2023. Captions must come from the network's own
tokenizer; a caption is read at its last token, so padding never matters.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.core.spec import setting
from simgrad.models.base import (
    Encoded,
    Inputs,
    ModelConfig,
    RetrievalModel,
    Scale,
    TokenizerNeeds,
    models,
)
from simgrad.models.networks.layers import l2norm, valid
from simgrad.models.networks.parts import WITH_TOKENIZER, here, pretrained_folder, stored
from simgrad.models.networks.pixels import CLIP_MEAN, CLIP_STD, HALF, Standardise


@models.declare(
    "clip",
    paper="Radford et al., ICML 2021; Zhai et al., ICCV 2023",
    description="CLIP or SigLIP, fine-tuned",
)
@dataclass(frozen=True)
class Clip(ModelConfig):
    small: ClassVar[dict[str, Any]] = {
        "source": None, "dimension": 128, "width": 128, "layers": 2, "heads": 2, "size": 64,
        "patch": 8,
    }  # fmt: skip

    source: str | None = setting(
        "openai/clip-vit-base-patch32", "folder or hub name; none: untrained"
    )
    family: str = setting("clip", "of an untrained network", choices=("clip", "siglip"))
    dimension: int = setting(512, "size of an untrained network's joint space")
    width: int = setting(512, "width of an untrained network's layers")
    layers: int = setting(12, "layers in each of an untrained network's towers")
    heads: int = setting(8, "attention heads of an untrained network")
    patch: int = setting(32, "pixels a side of an untrained network's patches")
    positions: int = setting(77, "longest caption of an untrained network")
    size: int = setting(224, "pixels a side of an untrained network's pictures")

    def build(self, inputs: Inputs) -> "ClipModel":
        return ClipModel(self, inputs)

    @property
    def reads(self) -> str:
        return "pixels"

    @property
    def tokenizer_needs(self) -> TokenizerNeeds:
        if self.source is None:
            return TokenizerNeeds()
        return TokenizerNeeds(True, ("source", self.source))

    def offline(self) -> "Clip":
        return self if here(self.source) else dataclasses.replace(self, source=None)


class ClipModel(RetrievalModel):
    """CLIP or SigLIP."""

    config: Clip

    def __init__(self, config: Clip, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        self.needs("pixels")
        self.body = Body(config, inputs)
        siglip = self.body.family == "siglip"
        self.standardise = Standardise(*((HALF, HALF) if siglip else (CLIP_MEAN, CLIP_STD)))
        self.longest = self.body.longest
        self.sees(self.body.size, "clip")

    def encode_images(self, images: Tensor) -> Encoded:
        pixels = self.standardise(images)
        return Encoded(l2norm(self.body.image(pixels)))

    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Encoded:
        return Encoded(l2norm(self.body.caption(tokens, lengths)))

    def pretrained_scale(self) -> Scale | None:
        """An untrained network has none yet."""
        if self.config.source is None:
            return None
        net = self.body.net
        bias = net.logit_bias.item() if self.body.family == "siglip" else 0.0
        return Scale(net.logit_scale.exp().item(), bias)


class Body(nn.Module):
    """The two towers of `transformers`, as vectors before normalisation."""

    part_kind: ClassVar[str] = "clip"

    def __init__(self, config: Clip, inputs: Inputs) -> None:
        super().__init__()
        kept = stored("clip")
        if kept is not None:
            self.net: Any = _empty(kept)
        elif config.source is not None:
            self.net = _pretrained(config.source)
        else:
            self.net = _empty(_untrained(config, inputs))
        self.family: str = self.net.config.model_type
        self.longest: int = self.net.config.text_config.max_position_embeddings
        self.size: int = self.net.config.vision_config.image_size
        self.part_settings = self.net.config.to_diff_dict() | {"model_type": self.family}

    def image(self, pixels: Tensor) -> Tensor:
        pooled: Tensor = self.net.vision_model(pixels).pooler_output
        return self.net.visual_projection(pooled) if self.family == "clip" else pooled

    def caption(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        if tokens.shape[1] > self.longest:
            raise InputError(
                f"captions of {tokens.shape[1]} tokens, but this network reads {self.longest}."
            )
        if self.family == "siglip":
            return self._padded_caption(tokens, lengths)
        # Attention looks back only, so what follows a caption cannot reach its last state.
        states: Tensor = self.net.text_model(tokens).last_hidden_state
        last = (lengths - 1).view(-1, 1, 1).expand(-1, 1, states.shape[-1])
        out: Tensor = self.net.text_projection(states.gather(1, last).squeeze(1))
        return out

    def _padded_caption(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """SigLIP learnt captions filled up to its full length, and reads the last place."""
        told = getattr(self.net.config.text_config, "pad_token_id", None)
        pad = 1 if told is None else int(told)
        full = tokens.new_full((len(tokens), self.longest), pad)
        full[:, : tokens.shape[1]] = torch.where(valid(lengths, tokens.shape[1]), tokens, pad)
        out: Tensor = self.net.text_model(full).pooler_output
        return out


def _classes(family: str) -> tuple[Any, Any]:
    import transformers

    if family == "clip":
        return transformers.CLIPConfig, transformers.CLIPModel
    if family == "siglip":
        return transformers.SiglipConfig, transformers.SiglipModel
    raise InputError(f"a network of kind '{family}', where clip or siglip is needed.")


def _empty(settings: dict[str, Any]) -> Any:
    config, model = _classes(str(settings.get("model_type")))
    return model(config(**{key: value for key, value in settings.items() if key != "model_type"}))


def _pretrained(source: str) -> Any:
    folder = pretrained_folder(source, "source", WITH_TOKENIZER)
    _, model = _classes(str(read_json(folder / "config.json").get("model_type")))
    return model.from_pretrained(folder)


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
        "bos_token_id": 1,
        "eos_token_id": 2,
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
