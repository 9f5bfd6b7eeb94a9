"""A device without float64, played on a CPU, as Apple's `mps` is: for a process of its own.

PyTorch lets Python declare one device. Its tensors hold a CPU tensor, on which every operation is
done; one whose result on the device would be float64 is refused, and so are tensors of two devices
in one operation. `python -m tests.core.narrow FOLDER` does there what users do.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

import simgrad
from simgrad.core import devices
from simgrad.mining import mine
from simgrad.objectives import Offline
from simgrad.objectives import objectives as registry
from simgrad.retriever.opening import open_folder

NAME = "apple"
aten = torch.ops.aten


class Backend(_DummyBackendModule):  # type: ignore[misc]
    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


_setup_privateuseone_for_python_backend(NAME, Backend())


class OnDevice(Tensor):
    """Says that it is on the device; what it holds is inside."""

    inside: Tensor

    @staticmethod
    def __new__(cls, inside: Tensor) -> "OnDevice":
        made = Tensor._make_wrapper_subclass(
            cls,
            inside.shape,
            strides=inside.stride(),
            storage_offset=inside.storage_offset(),
            dtype=inside.dtype,
            device=torch.device(NAME, 0),
        )
        made.inside = inside
        return made

    def __repr__(self) -> str:
        return f"OnDevice({self.inside})"

    def tolist(self) -> Any:
        return self.inside.tolist()

    @classmethod
    def __torch_dispatch__(
        cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return work(operation, args, kwargs or {})


def work(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    inside = any(isinstance(x, OnDevice) for x in tensors)
    wanted = kwargs.get("device")
    there = inside if wanted is None else torch.device(wanted).type == NAME
    if there and wanted is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if operation is aten.copy_.default:  # between devices
        there = isinstance(args[0], OnDevice)
    elif inside and operation is not aten._to_copy.default:
        _refuse_two_devices(operation, tensors)
    plain, words = tree_map_only(OnDevice, lambda x: x.inside, (args, kwargs))
    made = operation(*plain, **words)
    if not there:
        return args[0] if operation is aten.copy_.default else made
    made = tree_map_only(
        Tensor, lambda x: x if _counts(operation, x) else _placed(operation, x), made
    )
    return return_and_correct_aliasing(operation, args, kwargs, made) if inside else made


def _placed(operation: Any, made: Tensor) -> OnDevice:
    if made.dtype in (torch.float64, torch.complex128):
        raise TypeError(f"{operation}: this device has no float64")
    return OnDevice(made)


def _refuse_two_devices(operation: Any, tensors: list[Tensor]) -> None:
    """Numbers without a dimension may come from the CPU, and indices too."""
    for x in tensors:
        index = operation._schema.name.startswith(("aten::index", "aten::_index"))
        whole = index and not x.is_floating_point()
        if not isinstance(x, OnDevice) and x.ndim and not whole and not _counts(operation, x):
            raise RuntimeError(f"{operation}: tensors on two devices")


def _counts(operation: Any, x: Tensor) -> bool:
    """Lengths of packed sequences stay on the CPU everywhere."""
    return "_pack" in operation._schema.name and not x.is_floating_point()


def _gru_cell(gates: Tensor, hidden: Tensor, h: Tensor, *biases: Tensor | None) -> Any:
    """A device of one's own is asked for a fused cell."""
    given = [b for b in biases if b is not None]
    if given:
        gates, hidden = gates + given[0], hidden + given[1]
    (r, z, n), (hr, hz, hn) = gates.chunk(3, 1), hidden.chunk(3, 1)
    reset, update = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
    new = torch.tanh(n + reset * hn)
    return new + update * (h - new), new


everything = torch.library.Library("_", "IMPL")  # what makes a tensor there from none
everything.fallback(lambda operation, *args, **words: work(operation, args, words), "PrivateUse1")
library = torch.library.Library("aten", "IMPL")
library.impl("_thnn_fused_gru_cell", _gru_cell, "AutogradPrivateUse1")
for name in ("arange", "arange.start", "arange.start_step", "linspace", "randperm"):
    # Otherwise made empty first, and resized.
    packet, _, overload = name.partition(".")
    made_at_once = getattr(getattr(aten, packet), overload or "default")
    library.impl(name, lambda *a, _op=made_at_once, **k: work(_op, a, k), "PrivateUse1")


# -- what users do

DEVICE = f"{NAME}:0"
DATA = "scenes(train=4, val=3, test=5, features=global)"  # every operation is slow here


def refusal(_: Path) -> None:
    """The device is as narrow as it says."""
    x = torch.ones(3, device=DEVICE)
    for attempt in (x.double, lambda: torch.ones(3, dtype=torch.float64, device=DEVICE)):
        with pytest.raises(TypeError, match="float64"):
            attempt()


def objectives(_: Path) -> None:
    """Every objective as on a CPU, with pairs, several positives, and a matrix."""
    images, texts, owner = torch.randn(6, 8), torch.randn(9, 8), torch.arange(9) % 6
    for declared in registry:
        for words in _spellings(declared.name):
            rule = simgrad.objective(words)
            for y, positives in ((texts[:6], None), (texts, owner)):
                outside = Offline(*torch.rand(4, len(y))) if rule.needs_offline else None
                results = []
                for place in ("cpu", DEVICE):
                    x = images.clone().to(place).requires_grad_()
                    given = None if positives is None else positives.to(place)
                    off = None if outside is None else Offline(*(o.to(place) for o in outside))
                    rule.to(place)(x, y.to(place), given, off).backward()
                    results.append(x.grad.cpu())
                torch.testing.assert_close(*results, rtol=1e-3, atol=1e-4, msg=words)


def _spellings(name: str) -> list[str]:
    if name != "goal":
        return [name]
    return [f"goal(triplet=cir, pair={pair})" for pair in ("con", "lin-ms", "sig-ms")]


def evaluation(_: Path) -> None:
    """Metrics of arrays in any precision, counted and mined there."""
    random = np.random.default_rng(0)
    images, texts = random.normal(size=(20, 8)), random.normal(size=(40, 8)).astype("float32")
    owner = np.arange(40) % 20
    here, there = (simgrad.evaluate(images, texts, owner, device=place) for place in (None, DEVICE))
    assert here.to_dict() == there.to_dict()
    S = torch.from_numpy(images @ texts.T).float()
    for released in (False, True):
        for rule in ("triplet", "nt-xent", "smooth-ap"):
            counts = [
                simgrad.cocos(rule, S[:, :20].to(place), released=released).to_dict()
                for place in ("cpu", DEVICE)
            ]
            assert str(counts[0])[:40] == str(counts[1])[:40]
    mined = mine(torch.from_numpy(texts[:20]).to(DEVICE), torch.from_numpy(texts).to(DEVICE),
                 torch.from_numpy(owner).to(DEVICE), depth=5)  # fmt: skip
    assert mined is not None


def training(folder: Path) -> None:
    """A run with GradCache, stopped and resumed; evaluated and searched."""
    recipe = simgrad.Recipe(
        data=DATA, model="vse++(dimension=8, word_dimension=4)", batch=8, micro_batch=3,
        epochs=2, objective="goal(triplet=cir, pair=sig-ms)", device=DEVICE, min_count=1,
        workers=0,
    )  # fmt: skip
    simgrad.train(recipe, folder / "run", quiet=True, stop_after=0.0)
    run = simgrad.train(recipe, folder / "run", quiet=True)
    assert run.info["status"] == "finished", run.info
    trained = open_folder(folder / "run", device=DEVICE)
    assert next(trained.model.parameters()).device.type == NAME
    assert len(trained.similarities().scores.same_images or range(5)) == 5
    assert "scene-" in str(simgrad.show(run, "a red heart", device=DEVICE))


if __name__ == "__main__":
    devices._WITHOUT_FLOAT64.add(NAME)
    for part in (refusal, objectives, evaluation, training):
        print(part.__name__, flush=True)
        part(Path(sys.argv[1]))
    print("done")
