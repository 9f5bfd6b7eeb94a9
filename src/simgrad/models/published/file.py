"""A published checkpoint as it is in its file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from simgrad.core.errors import InputError

State = dict[str, Tensor]


@dataclass(frozen=True)
class Published:
    """A published checkpoint as it is in the file."""

    path: Path
    image: State  # of X-VLM: everything
    text: State
    options: dict[str, Any]
    facts: dict[str, Any]  # epoch, best_rsum: plain data to carry along

    def option(self, name: str, default: Any) -> Any:
        return self.options.get(name, default)

    def size(self, part: State, name: str, axis: int = 0) -> int:
        """The size of a weight that the model cannot do without."""
        if name not in part:
            raise InputError(f"{self.path}: partial; the weight '{name}' is missing.")
        return int(part[name].shape[axis])

    def only(self, name: str, *values: Any) -> None:
        """Refuse an option that our model does not have."""
        value = self.options.get(name, values[0])
        if value not in values:
            raise InputError(
                f"{self.path}: trained with {name}={value!r:.40}; only "
                f"{' or '.join(map(repr, values))} can be imported."
            )
