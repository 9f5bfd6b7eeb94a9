"""Checkpoints: model.safetensors and model.json, enough to evaluate, search and go on.

The JSON carries the model's spec, what it is fed, the tokenizer, the settings of pretrained
parts, and whatever the caller adds; the weights are plain tensors. Nothing in the files can run.
Both are written whole or not at all, the JSON last: it names the hash of the weights it belongs
to and of its own content, so a pair torn apart by a crash or a copy is refused, and a flipped bit
in either.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.core.files import atomic_path, read_json, sha256, write_json
from simgrad.data.vocabulary import Tokenizer, tokenizer_from_json
from simgrad.models.base import Inputs, ModelConfig, RetrievalModel, build, models
from simgrad.models.networks.parts import recorded, stored_parts

State = dict[str, Tensor]
Shapes = dict[str, torch.Size]


def refuse_misfits(config: ModelConfig, inputs: Inputs, state: State, path: Path) -> None:
    """Compare the shapes of a model and of its weights before any memory is asked for: settings
    from a file may ask for more than there is."""
    try:
        with torch.device("meta"):
            shapes = _shapes(build(config, inputs))
    except InputError:
        raise
    except Exception:  # a model may compute while it is built; then the real one is compared
        return
    _compare(shapes, state, config, path)


def fill(model: RetrievalModel, state: State, path: Path) -> None:
    """Load weights; each must have its place, and each place its weight."""
    _compare(_shapes(model), state, model.config, path)
    for name, parameter in model.named_parameters():
        _check_numbers(name, state[name], parameter, path)
    model.load_state_dict(state, strict=False)


def _check_numbers(name: str, given: Tensor, parameter: Tensor, path: Path) -> None:
    """Whole numbers would be taken for weights without a word, and NaN found only in results."""
    if given.dtype.is_floating_point != parameter.dtype.is_floating_point:
        raise InputError(f"{path}: '{name}' holds {given.dtype}, not {parameter.dtype}.")
    if not bool(given.isfinite().all()):
        raise InputError(f"{path}: '{name}' holds NaN or infinity.")


def _shapes(model: RetrievalModel) -> Shapes:
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


def _compare(wanted: Shapes, state: State, config: ModelConfig, path: Path) -> None:
    # Old files have no batch counters, and nothing reads them.
    missing = [n for n in wanted if n not in state and not n.endswith("num_batches_tracked")]
    problems = [f"nothing in it for {name}" for name in missing]
    problems += [f"'{name}' has no place" for name in state if name not in wanted]
    problems += [
        f"'{name}' is {tuple(state[name].shape)}, not {tuple(wanted[name])}"
        for name in wanted
        if name in state and state[name].shape != wanted[name]
    ]
    if problems:
        more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
        kind = "partial; " if missing else ""
        shown = "; ".join(problems[:3])
        raise InputError(f"{path}: {kind}does not fit {config}: {shown}{more}.")


WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"
_FORMAT = "simgrad-model-2"
_FORMATS = (_FORMAT, "simgrad-model-1")  # the first had no hash of its own content


@dataclass
class Checkpoint:
    """What a checkpoint holds.

    Examples:
        >>> loaded = simgrad.models.load("runs/first/best")
        >>> type(loaded.tokenizer).__name__
        'Vocabulary'
    """

    model: RetrievalModel
    tokenizer: Tokenizer | None  # None: it was imported without a vocabulary
    extra: dict[str, Any]

    def require_tokenizer(self, where: str | Path) -> Tokenizer:
        """What reads captions for it; refused where there is none. `where` it was loaded from."""
        if self.tokenizer is None:
            raise InputError(
                f"{where}: the checkpoint has no vocabulary, so it cannot read captions; make it "
                "again by `simgrad import FILE --vocabulary WORDS`."
            )
        return self.tokenizer


def weights_hash(model: torch.nn.Module) -> str:
    """A hash of every weight and buffer by name: equal hashes, equal embeddings.

    Examples:
        >>> first, second = (simgrad.models.load("runs/first/best").model for _ in range(2))
        >>> simgrad.models.weights_hash(first) == simgrad.models.weights_hash(second)
        True
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(_state(model).items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save(
    folder: str | Path,
    model: RetrievalModel,
    tokenizer: Tokenizer | None,
    extra: dict[str, Any] | None = None,
) -> None:
    """Write a checkpoint; `extra` is JSON that comes back from `load`.

    Examples:
        >>> vocabulary = simgrad.data.Vocabulary.build(["a red heart"], min_count=1)
        >>> inputs = simgrad.models.Inputs.of("features", (1280,), vocabulary)
        >>> model = simgrad.models.build("vse++(dimension=16, word_dimension=8)", inputs)
        >>> simgrad.models.save("my-model", model, vocabulary, {"note": "untrained"})
        >>> simgrad.models.load("my-model").extra
        {'note': 'untrained'}
    """
    from safetensors.torch import save as to_bytes

    folder = Path(folder)
    with atomic_path(folder / WEIGHTS) as path:
        # Not save_file: it has temporary files of its own, which a kill would leave behind.
        path.write_bytes(to_bytes(_state(model)))
        written = sha256(path)
    description = {
        "format": _FORMAT,
        "model": str(model.config),
        "inputs": model.inputs.to_json(),
        "parts": recorded(model),
        "tokenizer": None if tokenizer is None else tokenizer.to_json(),
        "weights_sha256": written,
        "extra": extra or {},
    }
    write_json(folder / DESCRIPTION, {**description, "sha256": _content_hash(description)})


def load(folder: str | Path, *, device: torch.device | str = "cpu") -> Checkpoint:
    """Read a checkpoint; the model comes back in evaluation mode.

    Examples:
        >>> loaded = simgrad.models.load("runs/first/best")
        >>> str(loaded.model.config)
        'vse++(dimension=16, word_dimension=8)'
    """
    folder = Path(folder)
    description = _description(folder)
    state = _weights(folder, description["weights_sha256"])
    try:
        config = models.parse(description["model"])
        inputs = Inputs.from_json(description["inputs"])
        with stored_parts(description["parts"]):
            refuse_misfits(config, inputs, state, folder / WEIGHTS)
            model = build(config, inputs)
    except InputError as error:
        raise InputError(f"{folder / DESCRIPTION}: {error}") from None
    except Exception as error:  # sizes that were changed make layers raise nearly anything
        raise InputError(
            f"{folder / DESCRIPTION}: no model can be built from it ({error!r:.200}); it was "
            "damaged or changed."
        ) from error
    fill(model, state, folder / WEIGHTS)
    tokenizer = None
    if description["tokenizer"] is not None:
        try:
            tokenizer = tokenizer_from_json(description["tokenizer"])
        except InputError as error:
            raise InputError(f"{folder / DESCRIPTION}: {error}") from None
    return Checkpoint(model.to(device).eval(), tokenizer, description["extra"])


def _state(model: torch.nn.Module) -> dict[str, Tensor]:
    """Weights and buffers on the CPU, each in memory of its own as safetensors wants."""
    state = model.state_dict()
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}


def _description(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise InputError(
            f"{folder}: there is no such checkpoint folder. Training makes one; `simgrad import "
            f"FILE --to {folder}` makes one of a published file."
        )
    path = folder / DESCRIPTION
    if not path.is_file():
        raise InputError(f"{folder}: no {DESCRIPTION} in it, so it is not a finished checkpoint.")
    description = read_json(path)
    if not isinstance(description, dict) or description.get("format") not in _FORMATS:
        raise InputError(f"{path}: not a simgrad checkpoint (format {_FORMAT}).")
    told = description.pop("sha256", None)
    if description["format"] == _FORMAT and told != _content_hash(description):
        raise InputError(
            f"{path}: damaged or changed since it was written; copy it again from an "
            "intact copy, or train or import the model again."
        )
    kinds = {"model": str, "inputs": dict, "parts": dict, "weights_sha256": str, "extra": dict}
    for key, kind in kinds.items():
        if not isinstance(description.get(key), kind):
            raise InputError(f"{path}: '{key}' is missing or of the wrong kind.")
    if "tokenizer" not in description:
        raise InputError(f"{path}: 'tokenizer' is missing.")
    return description


def _content_hash(description: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def verify(folder: str | Path) -> None:
    """Refuse a checkpoint whose files are not what was written, without reading the model."""
    folder = Path(folder)
    _whole_weights(folder, _description(folder)["weights_sha256"])


def _whole_weights(folder: Path, expected: str) -> Path:
    path = folder / WEIGHTS
    if not path.is_file():
        raise InputError(f"{folder}: no {WEIGHTS} in it; copy it along with {DESCRIPTION}.")
    if sha256(path) != expected:
        raise InputError(
            f"{path}: not the weights that {DESCRIPTION} describes (torn, changed, or of another "
            "checkpoint); copy both files again."
        )
    return path


def _weights(folder: Path, expected: str) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = _whole_weights(folder, expected)
    try:
        return dict(load_file(path))
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path}: not a safetensors file ({error}).") from None
