"""Image networks of other libraries behind our interface: maps, and one vector per picture."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.models.networks.backbone_weights import read
from simgrad.models.networks.parts import pretrained_folder, quiet, weights_place, where_to_put
from simgrad.models.networks.processing import read_pictures

MeanStd = tuple[tuple[float, ...], tuple[float, ...]]
_FILES = "config.json, preprocessor_config.json and model.safetensors"
_IMAGENET: MeanStd = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class TransformersNetwork(nn.Module):
    """A vision model of `transformers`, or the vision half of a model with two."""

    def __init__(self, model: Any, look: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.model: Any = getattr(model, "vision_model", model)
        config = self.model.config
        size = _side(getattr(config, "image_size", None) or 224)
        usual = {"size": size, "transform": "clip", "mean": _IMAGENET[0], "std": _IMAGENET[1]}
        seen = {**usual, **(look or {})}
        self.settings = {
            "config": {**config.to_diff_dict(), "model_type": config.model_type},
            "look": seen,
        }
        self.mean_std: MeanStd = (tuple(seen["mean"]), tuple(seen["std"]))
        self.size, self.transform = int(seen["size"]), str(seen["transform"])
        self.dimension, self.grid_dimension = self._measure()

    @property
    def by_pooler(self) -> bool:
        """Whether its one vector is that of its pooler."""
        return bool(self.model.config.model_type != "vit")

    def _measure(self) -> tuple[int, int]:
        """Widths as the network makes them: configurations name them in many ways."""
        was = self.model.training
        self.model.eval()
        with torch.no_grad():
            pixels = torch.zeros(1, 3, self.size, self.size)
            widths = self.pooled(pixels).shape[1], self(pixels).shape[1]
        self.model.train(was)
        return widths

    def forward(self, pixels: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, d, rows, columns)"""
        states: Tensor = self._run(pixels).last_hidden_state
        return states if states.ndim == 4 else to_maps(states)

    def _run(self, pixels: Tensor) -> Any:
        """Pictures of another size than its own need its positions in between."""
        if pixels.shape[-2:] == (self.size, self.size):
            return self.model(pixel_values=pixels)
        try:
            return self.model(pixel_values=pixels, interpolate_pos_encoding=True)
        except (TypeError, ValueError):
            side = self.size
            raise InputError(
                f"this network reads pictures of {side} pixels: size={side}."
            ) from None

    def pooled(self, pixels: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, d)"""
        out = self._run(pixels)
        pooled: Tensor | None = getattr(out, "pooler_output", None)
        if pooled is not None and self.by_pooler:
            return pooled.flatten(1)
        # ViT's pooler is trained in few checkpoints; its first token always is.
        states: Tensor = out.last_hidden_state
        return states.mean((2, 3)) if states.ndim == 4 else states[:, 0]


def to_maps(states: Tensor) -> Tensor:
    """(n, tokens, d) -> (n, d, rows, columns): tokens that are no patch come first and go."""
    side = math.isqrt(states.shape[1])
    patches = states[:, states.shape[1] - side * side :]
    return patches.transpose(1, 2).reshape(len(states), -1, side, side)


def _side(size: Any) -> int:
    return int(size[0] if isinstance(size, list | tuple) else size)


def from_settings(
    settings: dict[str, Any], look: dict[str, Any] | None = None
) -> TransformersNetwork:
    """An untrained network of given settings."""
    import transformers

    rest = {key: value for key, value in settings.items() if key != "model_type"}
    config = transformers.AutoConfig.for_model(str(settings["model_type"]), **rest)
    return TransformersNetwork(
        transformers.AutoModel.from_config(config, trust_remote_code=False), look
    )


def from_folder(source: str, name: str, untrained: bool) -> TransformersNetwork:
    """A network from a local folder, or from the hub by its name."""
    import transformers

    try:
        folder = pretrained_folder(source, "weights")
    except InputError:
        raise InputError(
            f"the image network {name}: '{source}' is neither a folder here nor available from the "
            f"hub. {where_to_put(source, _FILES)}, or into another folder and give weights=FOLDER."
        ) from None
    try:
        if untrained:
            config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
            model = transformers.AutoModel.from_config(config, trust_remote_code=False)
        else:
            with quiet():
                model = transformers.AutoModel.from_pretrained(
                    folder, local_files_only=True, trust_remote_code=False, dtype=torch.float32
                )
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0][:160]
        raise InputError(f"{folder}: not a vision model of transformers ({reason}).") from None
    return TransformersNetwork(model, read_pictures(folder))


class TimmNetwork(nn.Module):
    """A network of `timm` without its classifier."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model: Any = model
        told = model.pretrained_cfg
        self.size = _side(told["input_size"][1:])
        self.mean_std: MeanStd = (tuple(told["mean"]), tuple(told["std"]))
        self.dimension: int = model.num_features
        self.grid_dimension = self.dimension

    def forward(self, pixels: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, d, rows, columns)"""
        states: Tensor = self.model.forward_features(pixels)
        if states.ndim == 3:
            return to_maps(states)
        # Some networks put the channels last.
        channels_first = states.shape[1] == self.dimension
        return states if channels_first else states.permute(0, 3, 1, 2)

    def pooled(self, pixels: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, d)"""
        out: Tensor = self.model(pixels)
        return out.flatten(1)


def timm_file(name: str) -> Path:
    """Where a user may put the weights of a network of `timm`."""
    return weights_place() / f"timm--{name}.safetensors"


def from_timm(name: str, weights: str | Path | None, untrained: bool) -> TimmNetwork:
    """A network of `timm` by its name."""
    try:
        import timm
    except ImportError:
        raise InputError(
            f"timm:{name} needs the package timm: `pip install 'simgrad[timm]'`."
        ) from None

    if name not in timm.list_models(pretrained=False) and not timm.is_model(name):
        raise InputError(f"timm has no network '{name[:80]}'.")
    cached = timm_file(name)
    if not untrained and weights is None and cached.is_file():
        weights = cached
    fetch = not untrained and weights is None
    try:
        model = timm.create_model(name, pretrained=fetch, num_classes=0)
    except Exception as error:  # no network, no such weights: one answer serves all
        raise InputError(
            f"timm:{name}: its weights could not be fetched ({type(error).__name__}). Put "
            f"model.safetensors of https://huggingface.co/timm/{name} at {cached}, or anywhere "
            "and give weights=FILE."
        ) from None
    if weights is not None:
        missing, unknown = model.load_state_dict(read(Path(weights)), strict=False)
        missing = [key for key in missing if not key.endswith("num_batches_tracked")]
        if missing or len(unknown) > 4:  # more than a classifier's
            wrong = f"'{missing[0]}' is missing" if missing else f"'{unknown[0]}' is unknown"
            raise InputError(f"{weights}: not the weights of timm:{name}: {wrong}.")
    return TimmNetwork(model)
