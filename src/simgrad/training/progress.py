"""Where a run stands: all that decides how it continues, beside the tensors."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from simgrad.core.errors import InputError
from simgrad.training.trouble import Watch


@dataclass
class Progress:
    """The counters of a run."""

    step: int = 0  # updates made
    epoch: int = 0  # the one in work
    place: int = 0  # its batches that are done
    losses: int = 0  # added up since the last evaluation
    evaluations: int = 0
    best: float = -1.0  # validation score of the best weights
    best_step: int = 0
    best_objective: dict[str, Any] = field(default_factory=dict)  # what it had learned by then
    since_best: int = 0  # evaluations
    over: bool = False  # stopped early
    seconds: float = 0.0  # of earlier sittings
    warnings: list[dict[str, Any]] = field(default_factory=list)  # step and text
    scaler: dict[str, Any] = field(default_factory=dict)  # half precision's scale
    watch: Watch = field(default_factory=Watch)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a checkpoint."""
        return {**vars(self), "watch": self.watch.to_json()}

    @staticmethod
    def from_json(told: dict[str, Any]) -> "Progress":
        """The inverse of `to_json`; refuses what is not of this version."""
        fields = {f.name: f for f in dataclasses.fields(Progress)}
        if told.keys() != fields.keys():
            raise InputError("its counters are not those of this version.")
        values = {**told, "watch": Watch.from_json(told["watch"])}
        default = Progress()
        for name, value in values.items():
            wanted = type(getattr(default, name))
            if type(value) is not wanted:
                raise InputError(f"its counter '{name}' is {value!r:.40}.")
        return Progress(**values)
