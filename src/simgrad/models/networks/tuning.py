"""What of a pretrained tower is trained: all of it, nothing, its last layers, or low-rank changes.

`full`, `none`, `last=K`, `lora` or `lora=RANK` (Hu et al., ICLR 2022, by the package peft). Layers
further from the end may learn more slowly (`layer_decay`), and norms and biases have no weight
decay, as usual where transformers are fine-tuned.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn

from simgrad.core.errors import InputError

_WAY = re.compile(r"(full|none|last=([1-9]\d{0,3})|lora(?:=([1-9]\d{0,3}))?)")
_RANK = 8
# The linear layers of attention, as the families of transformers and timm call them.
_ATTENTION = re.compile(
    r"(.*\.)?((q|k|v|out|o)_proj|query|key|value|(q|k|v|out)_lin|qkv|Wqkv|c_attn)"
)


@dataclass(frozen=True)
class Way:
    """How a tower is tuned."""

    kind: str  # full, none, last or lora
    number: int = 0  # layers, or the rank

    @staticmethod
    def read(text: str, option: str) -> "Way":
        """`full`, `none`, `last=2`, `lora`, `lora=16`."""
        found = _WAY.fullmatch(text)
        if not found:
            raise InputError(f"{option} is full, none, last=K or lora=RANK, not '{text[:40]}'.")
        kind = text.partition("=")[0]
        return Way(kind, int(found[2] or found[3] or (_RANK if kind == "lora" else 0)))


@dataclass
class TunedTower:
    """One side of a pretrained model: its parts in order, from what it reads to its vectors."""

    name: str  # the option that says how it is tuned
    way: Way
    parts: dict[str, nn.Module]  # by their names in the whole

    def __post_init__(self) -> None:
        self.depth, self.layers = _depths(self._named())
        if self.way.kind == "last" and self.way.number > self.layers:
            has = f"{self.layers} layers" if self.layers else "no layers in a row"
            raise InputError(f"{self.name}=last={self.way.number}, but that network has {has}.")

    def _named(self) -> list[tuple[str, nn.Parameter]]:
        return [
            (f"{at}.{name}", parameter)
            for at, part in self.parts.items()
            for name, parameter in part.named_parameters()
        ]

    @property
    def locked(self) -> bool:
        """Whether nothing of it is trained."""
        return self.way.kind == "none"

    def freeze(self) -> None:
        """Let exactly what should learn have a gradient."""
        self.depth, _ = _depths(self._named())  # low-rank changes came after the first look
        first = self.layers + 1 - self.way.number  # depth of the first of the last layers
        for name, parameter in self._named():
            parameter.requires_grad_(
                self.way.kind == "full"
                or (self.way.kind == "last" and self.depth[name] >= first)
                or (self.way.kind == "lora" and ".lora_" in name)
            )

    def rest(self) -> None:
        """Nothing of a locked tower changes while the other trains: no dropout."""
        if self.locked:
            for part in self.parts.values():
                part.eval()

    def groups(self, lr: float, layer_decay: float) -> list[dict[str, Any]]:
        """What is trained of it, slower the further from the end."""
        return grouped(
            (p, lr * layer_decay ** (self.layers + 1 - self.depth.get(name, self.layers + 1)))
            for name, p in self._named()
        )


def grouped(parameters: Iterable[tuple[nn.Parameter, float]]) -> list[dict[str, Any]]:
    """Parameters with their rates as an optimiser's groups; norms and biases without decay."""
    found: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for parameter, rate in parameters:
        if parameter.requires_grad:
            found.setdefault((rate, parameter.ndim < 2), []).append(parameter)
    return [
        {"params": some, "lr": rate, **({"weight_decay": 0.0} if plain else {})}
        for (rate, plain), some in found.items()
    ]


def _depths(named: list[tuple[str, nn.Parameter]]) -> tuple[dict[str, int], int]:
    """How deep each parameter is: 0 before the layers, 1 to n in them, n + 1 behind; and n.

    The layers are the numbered modules with most parameters: `encoder.layers.3`, `blocks.3`.
    """
    lists: dict[str, int] = {}
    for name, parameter in named:
        for found in re.finditer(r"\.\d+\.", name):
            lists[name[: found.start()]] = lists.get(name[: found.start()], 0) + parameter.numel()
    # The outermost where layers have lists within.
    top = max(lists, key=lambda at: (lists[at], -len(at)), default=None)
    if top is None:
        return {name: 1 for name, _ in named}, 0
    number = {
        name: int(name[len(top) + 1 :].split(".")[0])
        for name, _ in named
        if name.startswith(f"{top}.")
    }
    layers, begun, depth = max(number.values()) + 1, False, {}
    for name, _ in named:
        begun = begun or name in number
        depth[name] = number[name] + 1 if name in number else (layers + 1 if begun else 0)
    return depth, layers


def lora_config(network: nn.Module, towers: list[TunedTower]) -> Any:
    """peft's settings for the towers that want it; None where none does."""
    wanted = [tower for tower in towers if tower.way.kind == "lora"]
    if not wanted:
        return None
    try:
        from peft import LoraConfig
    except ImportError:
        raise InputError(
            f"{wanted[0].name}=lora needs the package peft: `pip install 'simgrad[peft]'`."
        ) from None
    if len({tower.way.number for tower in wanted}) > 1:
        raise InputError("both towers' lora have the same rank: give it twice, or once.")
    targets = [name for tower in wanted for name in _targets(network, tower)]
    rank = wanted[0].way.number
    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets, lora_dropout=0.0)


def add_lora(network: nn.Module, config: Any) -> None:
    """Low-rank changes beside the linear layers of attention, in place."""
    from peft import inject_adapter_in_model

    inject_adapter_in_model(config, network)


def _targets(network: nn.Module, tower: TunedTower) -> list[str]:
    layers = {name.rpartition(".")[0] for name, depth in tower.depth.items() if depth > 0}
    found = [
        name
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear)
        and name in layers
        and tower.depth[f"{name}.weight"] <= tower.layers  # a head's attention is another kind
        and _ATTENTION.fullmatch(name)
    ]
    if not found:
        raise InputError(f"{tower.name}=lora: that network has no attention that peft can change.")
    return found
