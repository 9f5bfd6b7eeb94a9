"""The Swin transformer, X-VLM's image tower: attention in windows that shift by half.

Liu et al.: Swin transformer: Hierarchical vision transformer using shifted windows, ICCV 2021.
Weights carry the names of the published files. Ours and not transformers' (5.22): in training that
leaves branches out in the attention alone, where the published one does in both halves of a block;
it copies the masks of shifted windows for every picture and head (over a gigabyte in a block of
the first stage, at 128 pictures of 384 pixels); and it has changed the names of its weights between
versions, which our checkpoints would carry. Where nothing is trained, both give the same: a test
holds that."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.models.networks.parts import pretrained_folder, read_weights, stored

_BLOCKED = -100.0  # added to the attention between parts of a window that are not neighbours


@dataclass(frozen=True)
class SwinSettings:
    """The sizes of a Swin; published: 128, 2-2-18-2, 4-8-16-32, window 12, at 384 pixels."""

    size: int = 384  # pixels a side
    width: int = 128
    depths: tuple[int, ...] = (2, 2, 18, 2)
    heads: tuple[int, ...] = (4, 8, 16, 32)
    window: int = 12
    patch: int = 4
    drop_path: float = 0.1

    def __post_init__(self) -> None:
        stages = len(self.depths)
        side, rest = divmod(self.size, self.patch * 2 ** (stages - 1))
        sides = [side * 2**i for i in range(stages)]
        if rest or any(s > self.window and s % self.window for s in sides):
            step = self.patch * 2 ** (stages - 1)
            raise InputError(
                f"a Swin of {stages} stages with windows of {self.window} cannot cut pictures of "
                f"{self.size} pixels into equal windows: give a size that is a multiple of "
                f"{step * self.window}, or another window (at 224 pixels and 4 stages, 7)."
            )


class WindowAttention(nn.Module):
    """Attention within windows, with a learnt bias for each relative position."""

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads = heads
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.register_buffer("index", _relative_index(window), persistent=False)

    def forward(self, x: Tensor, blocked: Tensor | None) -> Tensor:
        """(n, windows, places, width); blocked: (windows, places, places)."""
        n, windows, places, width = x.shape
        parts = self.qkv(x).view(n, windows, places, 3, self.heads, -1).permute(3, 0, 1, 4, 2, 5)
        index = self.get_buffer("index")
        bias = self.relative_position_bias_table[index].permute(2, 0, 1)  # (heads, places, places)
        bias = bias[None] if blocked is None else bias + blocked[:, None]
        query, key, value = parts.unbind(0)
        seen = F.scaled_dot_product_attention(query, key, value, bias.to(query.dtype))
        out: Tensor = self.proj(seen.transpose(2, 3).reshape(n, windows, places, width))
        return out


def _relative_index(window: int) -> Tensor:
    """Which row of the bias table belongs to each pair of places: (places, places)."""
    axis = torch.arange(window)
    place = torch.stack(torch.meshgrid(axis, axis, indexing="ij")).flatten(1)  # (2, places)
    apart = place[:, :, None] - place[:, None] + window - 1
    return apart[0] * (2 * window - 1) + apart[1]


class Mlp(nn.Module):
    """Two linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return out


class SwinBlock(nn.Module):
    """Window attention, in every other block over shifted windows, then two linear layers."""

    def __init__(
        self, width: int, heads: int, side: int, window: int, *, shifted: bool, drop: float
    ) -> None:
        super().__init__()
        self.side, self.drop = side, drop
        self.window = min(window, side)
        self.shift = window // 2 if shifted and side > window else 0
        self.norm1 = nn.LayerNorm(width)
        self.attn = WindowAttention(width, heads, self.window)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)
        self.register_buffer("blocked", self._blocked(), persistent=False)

    def _blocked(self) -> Tensor | None:
        """Shifted windows hold parts from opposite edges, which must not see each other."""
        if not self.shift:
            return None
        edges = torch.zeros(self.side)
        edges[-self.window : -self.shift] = 1
        edges[-self.shift :] = 2
        part = (3 * edges[:, None] + edges).view(1, self.side, self.side, 1)
        place = _cut(part, self.window).squeeze(-1)[0]  # (windows, places)
        return (place[:, None] != place[:, :, None]).float() * _BLOCKED

    def forward(self, x: Tensor) -> Tensor:
        """(n, side * side, width)"""
        n, _, width = x.shape
        inner = self.norm1(x).view(n, self.side, self.side, width)
        inner = torch.roll(inner, (-self.shift, -self.shift), (1, 2)) if self.shift else inner
        inner = self.attn(_cut(inner, self.window), getattr(self, "blocked", None))
        inner = _join(inner, self.window, self.side)
        inner = torch.roll(inner, (self.shift, self.shift), (1, 2)) if self.shift else inner
        x = x + self._path(inner.reshape(n, -1, width))
        return x + self._path(self.mlp(self.norm2(x)))

    def _path(self, x: Tensor) -> Tensor:
        """Stochastic depth: while training, whole branches are left out for some images."""
        if not self.training or self.drop == 0:
            return x
        kept = torch.rand(len(x), 1, 1, device=x.device) >= self.drop
        return x * kept / (1 - self.drop)


def _cut(x: Tensor, window: int) -> Tensor:
    """(n, side, side, width) -> (n, windows, places, width)"""
    n, side, _, width = x.shape
    many = side // window
    x = x.view(n, many, window, many, window, width).transpose(2, 3)
    return x.reshape(n, many * many, window * window, width)


def _join(x: Tensor, window: int, side: int) -> Tensor:
    many = side // window
    x = x.view(len(x), many, many, window, window, -1).transpose(2, 3)
    return x.reshape(len(x), side, side, -1)


class Downsample(nn.Module):
    """Four neighbours become one place of twice the width."""

    def __init__(self, width: int, side: int) -> None:
        super().__init__()
        self.side = side
        self.reduction = nn.Linear(4 * width, 2 * width, bias=False)
        self.norm = nn.LayerNorm(4 * width)

    def forward(self, x: Tensor) -> Tensor:
        n, _, width = x.shape
        x = x.view(n, self.side // 2, 2, self.side // 2, 2, width)
        x = x.permute(0, 1, 3, 4, 2, 5).reshape(n, -1, 4 * width)  # columns vary slowest
        out: Tensor = self.reduction(self.norm(x))
        return out


class PatchEmbed(nn.Module):
    """Patches of the picture to vectors."""

    def __init__(self, patch: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, patch, patch)
        self.norm = nn.LayerNorm(width)

    def forward(self, pixels: Tensor) -> Tensor:
        out: Tensor = self.norm(self.proj(pixels).flatten(2).transpose(1, 2))
        return out


class Stage(nn.Module):
    """Blocks of one resolution."""

    def __init__(self, blocks: list[SwinBlock], downsample: Downsample | None) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*blocks)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(x)
        return x if self.downsample is None else self.downsample(x)


class Swin(nn.Module):
    """Pictures (n, 3, size, size) -> (n, cells, width), the last layer's cells."""

    part_kind: ClassVar[str] = "swin"

    def __init__(self, settings: SwinSettings) -> None:
        super().__init__()
        self.settings = settings
        self.part_settings = dataclasses.asdict(settings)
        self.patch_embed = PatchEmbed(settings.patch, settings.width)
        blocks_in_all = sum(settings.depths)
        rates = [settings.drop_path * i / max(1, blocks_in_all - 1) for i in range(blocks_in_all)]
        width, side = settings.width, settings.size // settings.patch
        stages = []
        for i, depth in enumerate(settings.depths):
            blocks = [
                SwinBlock(
                    width,
                    settings.heads[i],
                    side,
                    settings.window,
                    shifted=j % 2 == 1,
                    drop=rates[sum(settings.depths[:i]) + j],
                )
                for j in range(depth)
            ]
            last = i == len(settings.depths) - 1
            stages.append(Stage(blocks, None if last else Downsample(width, side)))
            width, side = (width, side) if last else (2 * width, side // 2)
        self.layers = nn.Sequential(*stages)
        self.width = width
        self.norm = nn.LayerNorm(width)

    def forward(self, pixels: Tensor) -> Tensor:
        if pixels.shape[-2:] != (self.settings.size, self.settings.size):
            raise InputError(
                f"pictures of {tuple(pixels.shape[-2:])} pixels, but this Swin reads squares of "
                f"{self.settings.size}."
            )
        out: Tensor = self.norm(self.layers(self.patch_embed(pixels)))
        return out


def swin(source: str | None, settings: SwinSettings) -> Swin:
    """A Swin: stored in a checkpoint that is being loaded, pretrained, or untrained."""
    kept = stored("swin")
    if kept is not None:
        return Swin(_settings(kept))
    if source is None:
        return Swin(settings)
    folder = pretrained_folder(source, "swin")
    model = Swin(_config(folder, settings.size))
    state = from_transformers(read_weights(folder))
    missing = [name for name in model.state_dict() if name not in state]
    if missing:
        raise InputError(f"{folder}: not a complete Swin; {missing[0]} and others are missing.")
    model.load_state_dict(state, strict=False)
    return model


def _settings(values: dict[str, Any]) -> SwinSettings:
    lists = {name: tuple(values[name]) for name in ("depths", "heads")}
    return SwinSettings(**{**values, **lists})


def _config(folder: Path, size: int) -> SwinSettings:
    values = read_json(folder / "config.json")
    try:
        return SwinSettings(
            size=size,
            width=values["embed_dim"],
            depths=tuple(values["depths"]),
            heads=tuple(values["num_heads"]),
            window=values["window_size"],
        )
    except (KeyError, TypeError):
        raise InputError(f"{folder}/config.json: not the settings of a Swin.") from None


# transformers' names -> the published ones
_NAMES = (
    ("embeddings.patch_embeddings.projection.", "patch_embed.proj."),
    ("embeddings.norm.", "patch_embed.norm."),
    ("encoder.layers.", "layers."),
    (".layernorm_before.", ".norm1."),
    (".layernorm_after.", ".norm2."),
    (".attention.self.relative_position_bias_table", ".attn.relative_position_bias_table"),
    (".attention.output.dense.", ".attn.proj."),
    (".intermediate.dense.", ".mlp.fc1."),
    (".output.dense.", ".mlp.fc2."),
)


def from_transformers(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """transformers' names of Swin's weights -> the published ones, which are ours."""
    found: dict[str, Tensor] = {}
    for given, tensor in state.items():
        name = given.removeprefix("swin.")
        name = name.replace("layernorm.", "norm.") if name.startswith("layernorm.") else name
        for theirs, ours in _NAMES:
            name = name.replace(theirs, ours)
        found[name] = tensor
    for name in [name for name in found if ".attention.self.query." in name]:
        parts = [found.pop(name.replace("query", part)) for part in ("query", "key", "value")]
        found[name.replace("attention.self.query", "attn.qkv")] = torch.cat(parts)
    return found
