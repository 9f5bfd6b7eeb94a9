"""`tune` in a study file: how every row's setting is searched for, with the same budget for all."""

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from simgrad.core.typed import Text, Typed
from simgrad.studies.ranges import Searched, Where, mixes, plain


class Tune(Typed):
    """How every row of a study is tuned: with the same budget, by validation alone."""

    trials: int = Field(ge=1, le=10_000, description="Settings tried for each row, alike for all")
    space: dict[str, Searched] = Field(
        default_factory=dict,
        description="Where to look, beside the default: fields of the recipe, objective.PARAMETER, "
        "model.PARAMETER; {low, high, log}, a list of choices, {crossed: choices} (each point that "
        "is drawn is tried with every one), or null: not searched",
    )
    search: Literal["tpe", "quasi-random", "grid"] = Field(
        default="tpe", description="tpe: the first half quasi-random, then by Optuna's TPE"
    )
    start: bool = Field(
        default=False,
        description="The first trial of every row has the recipe's own values and the objective's "
        "defaults, so that no row is judged by poor settings alone",
    )
    select: Text | None = Field(
        default=None, description="Validation metric that decides; by default the recipe's"
    )
    finalists: int = Field(
        default=1,
        ge=1,
        description="So many of a row's best settings are trained with more seeds before one is "
        "chosen, by its mean; 1: the best single trial is chosen",
    )
    repeats: int = Field(
        default=2, ge=1, le=100, description="With how many more seeds finalists are trained"
    )
    extend: bool = Field(
        default=False,
        description="Where the best of a row's trials lies at the end of a range, add a quarter "
        "as many trials, from a range of the same width around that end; once",
    )
    replicates: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="Do it all N times: settings, finalists and seeds are drawn anew each time, "
        "so that the luck of the search shows",
    )
    splits: Literal["same", "new"] = Field(
        default="same",
        description="new: each replicate also draws a train, val and test split of its own, as "
        "the recipe's `resplit` says",
    )
    reduction: Literal["mean", "sum", "published"] = Field(
        default="mean", description="How all rows reduce their loss (see the recipe's field)"
    )
    seed: int = Field(
        default=1000,
        ge=0,
        lt=2**31,
        description="Of the search and its trials; no seed of the table",
    )

    @model_validator(mode="before")
    @classmethod
    def _of_today(cls, values: Any) -> Any:
        """Study files of earlier versions name halving even where it is off."""
        if isinstance(values, Mapping) and "halving" in values and values["halving"] is None:
            return {key: value for key, value in values.items() if key != "halving"}
        return values

    @property
    def quasi_random(self) -> int:
        """How many trials come before any that learns from others: a power of two near half."""
        if self.search != "tpe":
            return self.trials
        power: int = 2 ** max(1, round(math.log2(max(1, self.trials / 2))))
        return min(self.trials, power)

    @property
    def further(self) -> int:
        """Trainings of a row's finalists with more seeds, at most."""
        return self.finalists * self.repeats if self.finalists > 1 else 0

    @property
    def trainings(self) -> int:
        """Of a row before its setting is chosen, at most."""
        return self.trials + self.beyond(len(mixes(self.space))) + self.further

    def beyond(self, crossed: int) -> int:
        """How many trials an extended range adds, where each point is tried in so many mixes."""
        return crossed * math.ceil(max(2, self.trials / 4) / crossed) if self.extend else 0

    @property
    def seeds(self) -> range:
        """Of trials and their repetitions."""
        return range(self.seed, self.seed + 1 + (self.repeats if self.further else 0))

    def of_row(self, space: Mapping[str, Where | None]) -> "Tune":
        """The same search with what one row says of where to look."""
        return self.model_copy(update={"space": {**self.space, **space}}) if space else self

    def to_dict(self) -> dict[str, Any]:
        """Plain values that read back."""
        space = {key: plain(where) for key, where in self.space.items()}
        return {**self.model_dump(exclude={"space"}), "space": space}
