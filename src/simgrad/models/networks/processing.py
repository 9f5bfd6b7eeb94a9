"""How a pretrained network wants its pictures and captions, read from its own folder.

Size, crop, resampling, mean and spread come from its image processor; the words, the filling and
its side from its tokenizer. Both are `transformers`' own, asked once when a model is built; what
they say travels in a checkpoint, with the small files that an export writes back.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.data.cutting import FILTERS
from simgrad.data.subwords import Subwords, WordPieces, read_pieces
from simgrad.models.networks.pixels import CLIP_MEAN, CLIP_STD

# Files beside the weights that other programs want back.
_BESIDE = (
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
)


@dataclass(frozen=True)
class Reading:
    """What a network is fed."""

    size: int = 224  # pixels a side of the array that it gets
    transform: str = "clip"  # how pictures are cut, of simgrad.data.cutting
    mean: tuple[float, ...] = CLIP_MEAN
    std: tuple[float, ...] = CLIP_STD
    patch: int = 0  # NaFlex: pixels a side of a patch, and how many there are at most
    patches: int = 0
    pad: int = 0  # what fills a caption up
    pad_left: bool = False
    masked: bool = False  # whether its tokenizer says which tokens are filling
    beside: dict[str, Any] = dataclasses.field(default_factory=dict)  # small files of its folder

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(told: dict[str, Any]) -> "Reading":
        try:
            values = {**told, "mean": tuple(told["mean"]), "std": tuple(told["std"])}
            return Reading(**values)
        except (KeyError, TypeError) as error:
            raise InputError(f"'reading' of a pretrained part cannot be read ({error}).") from None


def read_processing(folder: Path, usual: Reading) -> Reading:
    """What the processor and the tokenizer in a folder say; the usual where it has none."""
    names = [name for name in _BESIDE if (folder / name).is_file()]
    told: dict[str, Any] = {"beside": {name: read_json(folder / name) for name in names}}
    if any("processor_config" in name for name in names):
        told |= _pictures(folder)
    if "tokenizer_config.json" in names:
        tokenizer = _tokenizer(folder)
        told["pad"] = int(tokenizer.pad_token_id or 0)
        told["pad_left"] = tokenizer.padding_side == "left"
        told["masked"] = "attention_mask" in tokenizer.model_input_names
    return dataclasses.replace(usual, **told)


def read_pictures(folder: Path) -> dict[str, Any]:
    """Size, cut, mean and spread of an image network's pictures, as far as its folder says."""
    if not any((folder / name).is_file() for name in _BESIDE[:2]):
        return {}
    told = _pictures(folder)
    if told.get("patches"):
        raise InputError(f"{folder}: its image processor makes patches of pictures of any shape.")
    return told


def own_tokenizer(folder: Path) -> Subwords | WordPieces:
    """The network's tokenizer as `transformers` makes it: classes of its own may add steps that
    tokenizer.json does not tell, such as lower case."""
    if not (folder / "tokenizer_config.json").is_file():  # nothing names a class
        return read_pieces(folder)
    inner = _tokenizer(folder).backend_tokenizer
    told = {"tokenizer": json.loads(inner.to_str())}
    return Subwords.from_json(told, str(folder))


def _tokenizer(folder: Path) -> Any:
    import transformers

    try:
        made = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # a class that is not here, or a package that it wants
        if not (folder / "tokenizer.json").is_file():
            reason = str(error).strip().splitlines()[0][:160]
            raise InputError(f"{folder}: no readable tokenizer in it ({reason}).") from None
        made = None
    if made is not None and getattr(made, "backend_tokenizer", None) is not None:
        return made
    if not (folder / "tokenizer.json").is_file():
        raise InputError(f"{folder}: its tokenizer is of a kind that needs tokenizer.json.")
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)


def _pictures(folder: Path) -> dict[str, Any]:
    import transformers

    try:
        told = transformers.AutoImageProcessor.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        ).to_dict()
    except Exception as error:
        reason = str(error).strip().splitlines()[0][:160]
        raise InputError(f"{folder}: no readable image processor in it ({reason}).") from None
    smooth = FILTERS.get(int(told.get("resample") or 3), "bicubic")
    look = {"mean": tuple(told["image_mean"]), "std": tuple(told["image_std"])}
    if not told.get("do_normalize", True):
        look = {"mean": (0.0,) * 3, "std": (1.0,) * 3}
    if not _says_size(folder):  # the network's own, then
        return look
    if told.get("max_num_patches"):
        patch, most = int(told["patch_size"]), int(told["max_num_patches"])
        # One patch more than there can be: it has a place to tell how many there are.
        side = patch * (int(most**0.5) + 1)
        style = f"patches:{patch}:{most}:{smooth}"
        return {**look, "size": side, "transform": style, "patch": patch, "patches": most}
    size = dict(told.get("size") or {})
    if told.get("do_center_crop") and "shortest_edge" in size:
        crop, short = _square(dict(told["crop_size"]), folder), int(size["shortest_edge"])
        if short >= crop:
            return {**look, "size": crop, "transform": f"crop:{short}:{smooth}"}
    if not told.get("do_center_crop") and "height" in size:
        return {**look, "size": _square(size, folder), "transform": f"squeeze:{smooth}"}
    raise InputError(
        f"{folder}: its image processor cuts pictures in a way that simgrad does not know "
        f"(size {size}, crop {told.get('crop_size')})."
    )


def _says_size(folder: Path) -> bool:
    """Whether a folder names the size of pictures, or leaves it to a class's default."""
    for name in _BESIDE[:2]:
        told = read_json(folder / name) if (folder / name).is_file() else {}
        inner = told.get("image_processor") if isinstance(told, dict) else None
        if any(key in part for part in (told, inner or {}) for key in ("size", "max_num_patches")):
            return True
    return False


def _square(size: dict[str, Any], folder: Path) -> int:
    if size.get("height") != size.get("width") or not size.get("height"):
        raise InputError(f"{folder}: its pictures are {size}; simgrad reads square ones.")
    return int(size["height"])
