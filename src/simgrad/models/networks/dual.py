"""The dual encoders of `transformers` behind one face: pictures and captions to vectors."""

import dataclasses
import math
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.models.inputs import Scale
from simgrad.models.networks.backbones import Backbone
from simgrad.models.networks.layers import valid
from simgrad.models.networks.open_clip import is_open_clip, read_config, read_state
from simgrad.models.networks.parts import WITH_TOKENIZER, pretrained_folder, quiet, stored
from simgrad.models.networks.pixels import HALF, Standardise
from simgrad.models.networks.processing import Reading, read_processing


class Dual(nn.Module):
    """CLIP, SigLIP or SigLIP 2: vectors before they are brought to unit length."""

    part_kind: ClassVar[str] = "clip"

    def __init__(self, source: str | None, untrained: dict[str, Any]) -> None:
        super().__init__()
        kept = stored("clip")
        if kept is not None:
            self.net: Any = _empty(kept)
            self.reading = _stored_reading(kept)
        elif source is not None:
            self.net, self.reading = _pretrained(source)
        else:
            self.net = _empty(untrained)
            self.reading = _own(_usual(self.net.config))
        self.family: str = self.net.config.model_type
        self.longest: int = self.net.config.text_config.max_position_embeddings
        settings = self.net.config.to_diff_dict() | {"model_type": self.family}
        self.part_settings = settings | {"reading": self.reading.to_json()}
        self.standardise = Standardise(self.reading.mean, self.reading.std)

    # -- pictures

    def image(self, pixels: Tensor) -> Tensor:
        """(n, 3, size, size) bytes or numbers from 0 to 1 -> (n, d)"""
        return _image(self.net, self.reading, self.standardise, pixels)

    def image_network(self) -> Backbone:
        """The image tower alone, for those who keep what it makes."""
        tower = _ImageTower(self)
        look = ((0.0,) * 3, (1.0,) * 3)  # it standardises pictures itself
        reading = self.reading
        return Backbone(
            f"{self.family} tower", tower, size=reading.size, transform=reading.transform,
            mean_std=look,
        )  # fmt: skip

    # -- captions

    def caption(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """(m, length) -> (m, d)"""
        if tokens.shape[1] > self.longest:
            raise InputError(
                f"captions of {tokens.shape[1]} tokens, but this network reads {self.longest}."
            )
        if self.family != "clip":
            return self._filled_caption(tokens, lengths)
        # Attention looks back only, so what follows a caption cannot reach its last state.
        states: Tensor = self.net.text_model(tokens).last_hidden_state
        last = (lengths - 1).view(-1, 1, 1).expand(-1, 1, states.shape[-1])
        out: Tensor = self.net.text_projection(states.gather(1, last).squeeze(1))
        return out

    def _filled_caption(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """SigLIP learnt captions filled up to its full length, and reads the last place."""
        reading, width = self.reading, tokens.shape[1]
        real = valid(lengths, self.longest)
        tokens = torch.where(real[:, :width], tokens, reading.pad)
        full = torch.nn.functional.pad(tokens, (0, self.longest - width), value=reading.pad)
        if reading.pad_left:
            places = torch.arange(self.longest, device=tokens.device) + lengths[:, None]
            full, real = (x.gather(1, places % self.longest) for x in (full, real))
        mask = real.long() if reading.masked else None
        out: Tensor = self.net.text_model(full, attention_mask=mask).pooler_output
        return out

    # -- scale and bias

    def scale(self) -> Scale:
        """What similarities are multiplied by, and what is added."""
        bias = self.net.logit_bias.item() if hasattr(self.net, "logit_bias") else 0.0
        return Scale(self.net.logit_scale.exp().item(), bias)

    def set_scale(self, scale: Scale) -> None:
        """Keep what an objective has learned."""
        with torch.no_grad():
            self.net.logit_scale.fill_(math.log(scale.scale))
            if hasattr(self.net, "logit_bias"):
                self.net.logit_bias.fill_(scale.bias)

    def save_memory(self) -> None:
        """Keep little for the way back, and compute layers again."""
        self.net.gradient_checkpointing_enable({"use_reentrant": False})


class _ImageTower(nn.Module):
    """The part of a dual encoder that sees pictures, and nothing else: its weights name what it
    makes."""

    def __init__(self, dual: Dual) -> None:
        super().__init__()
        self.vision_model = dual.net.vision_model
        if hasattr(dual.net, "visual_projection"):
            self.visual_projection = dual.net.visual_projection
        self.reading, self.standardise = dual.reading, dual.standardise
        with torch.no_grad():
            size, place = self.reading.size, next(self.vision_model.parameters()).device
            self.dimension: int = self.pooled(torch.zeros(1, 3, size, size, device=place)).shape[1]

    def pooled(self, pixels: Tensor) -> Tensor:
        return _image(self, self.reading, self.standardise, pixels)


def _image(net: Any, reading: Reading, standardise: Standardise, pixels: Tensor) -> Tensor:
    if reading.patches:
        pooled: Tensor = net.vision_model(*_patched(pixels, reading, standardise)).pooler_output
    else:
        pooled = net.vision_model(pixel_values=standardise(pixels)).pooler_output
    return net.visual_projection(pooled) if hasattr(net, "visual_projection") else pooled


def _patched(pixels: Tensor, reading: Reading, standardise: Standardise) -> tuple[Tensor, ...]:
    """A sheet of patches (`cutting.patches`) as SigLIP 2 reads it: the patches one after another,
    which of them are there, and the rows and columns they came in; in this order, as the names
    differ between versions of transformers."""
    sheet = pixels if pixels.dtype == torch.uint8 else pixels * 255
    shapes = sheet[:, :2, -1, -1].round().long().clamp(min=1)
    values = standardise(pixels)
    side, n, across = reading.patch, len(pixels), reading.size // reading.patch
    cells = values.view(n, 3, across, side, across, side).permute(0, 2, 4, 3, 5, 1)
    flat = cells.reshape(n, across * across, -1)[:, : reading.patches]
    there = valid(shapes.prod(1), reading.patches)
    # What fills the sheet is black; transformers fills with zeros after standardising.
    flat = flat * there[:, :, None]
    return flat, there.long(), shapes


def _classes(family: str) -> tuple[Any, Any]:
    import transformers

    if family == "clip":
        return transformers.CLIPConfig, transformers.CLIPModel
    if family == "siglip":
        return transformers.SiglipConfig, transformers.SiglipModel
    if family == "siglip2":
        return transformers.Siglip2Config, transformers.Siglip2Model
    raise InputError(f"a network of kind '{family}', but clip, siglip or siglip2 is needed.")


def _empty(settings: dict[str, Any]) -> Any:
    config, model = _classes(str(settings.get("model_type")))
    own = {k: v for k, v in settings.items() if k not in ("model_type", "reading")}
    return model(config(**own))


def _pretrained(source: str) -> tuple[Any, Reading]:
    folder = pretrained_folder(source, "source", WITH_TOKENIZER)
    if is_open_clip(folder):
        return _of_open_clip(folder)
    _, model = _classes(str(read_json(folder / "config.json").get("model_type")))
    try:
        with quiet():
            net, told = model.from_pretrained(
                folder, local_files_only=True, dtype=torch.float32, output_loading_info=True
            )
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0][:160]
        raise InputError(f"{folder}: its weights cannot be read ({reason}).") from None
    missing = sorted(told["missing_keys"])
    if missing:
        raise InputError(f"{folder}: incomplete weights; {missing[0]} and others are missing.")
    return net, read_processing(folder, _usual(net.config))


def _of_open_clip(folder: Path) -> tuple[Any, Reading]:
    settings, reading = read_config(folder)
    net, state = _empty(settings), read_state(folder)
    try:
        told = net.load_state_dict(state, strict=False)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()[:160]
        raise InputError(f"{folder}: its weights are not of its config ({reason}).") from None
    if told.missing_keys:
        raise InputError(f"{folder}: incomplete weights; {told.missing_keys[0]} is missing.")
    return net.eval(), read_processing(folder, reading)


def _stored_reading(kept: dict[str, Any]) -> Reading:
    """Of a checkpoint; earlier ones knew CLIP's and SigLIP's usual ways alone."""
    if "reading" in kept:
        return Reading.from_json(kept["reading"])
    return _usual(_classes(str(kept["model_type"]))[0](**kept))


def _own(usual: Reading) -> Reading:
    """Of a network that begins here: cut as transformers would, to the last bit."""
    return dataclasses.replace(usual, transform=f"crop:{usual.size}:bicubic")


def _usual(config: Any) -> Reading:
    size = int(getattr(config.vision_config, "image_size", 224))  # NaFlex has none
    if config.model_type == "clip":
        return Reading(size=size)
    told = getattr(config.text_config, "pad_token_id", None)
    return Reading(size=size, mean=HALF, std=HALF, pad=1 if told is None else int(told))
