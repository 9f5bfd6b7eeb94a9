"""A recipe: everything that decides what a training run does, as typed and documented fields.

Recipes are YAML files with the fields of `recipe_fields.py`, in any order; `simgrad train
recipe.yaml --objective nt-xent --seed 3` overrides any of them. The defaults are VSE++'s published
schedule, but for the objective and the rate: where nobody names them, each model has its own.
`simgrad train --schema` prints a JSON schema, with which editors complete and check recipes.
"""

import contextlib
import dataclasses
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import model_validator

from simgrad.core.errors import InputError
from simgrad.core.files import atomic_write
from simgrad.core.typed import checked, read_yaml
from simgrad.data.base import Dataset
from simgrad.data.classes import classes_place
from simgrad.data.opening import absolute as place_of
from simgrad.data.opening import open_dataset
from simgrad.data.resplit import read_resplit
from simgrad.evaluation.protocols import find_protocol
from simgrad.models import models
from simgrad.models.base import Usual
from simgrad.objectives import Objective, objective, objectives
from simgrad.runs.recipe_fields import RecipeFields

# The first field of each group, in the order of the recipe: in --help, and in files that are saved.
GROUPS = {
    "data": "data",
    "model": "model",
    "objective": "objective",
    "batch": "optimisation",
    "epochs": "schedule",
    "select": "evaluation",
    "device": "machine",
}
MODES = ("images", "pairs")  # of `positives`
_PLACES = (
    "data",
    "features",
    "skip",
    "vocabulary",
    "candidates",
    "start_from",
    "positives",  # of recipes before `found_pairs`
    "found_pairs",
    "also",
)


# From this rate on rules of the hardest negative need a first epoch (results/generalise).
_FAILS_FROM = 2e-3
_SLOW = 2e-4  # the rate of VSE++'s paper, for such rules where nobody names one


class Recipe(RecipeFields):
    """What to train, on what, and how.

    Examples:
        >>> recipe = simgrad.Recipe(objective="nt-xent(tau=0.05)", epochs=10, lr=1e-3)
        >>> recipe.model, recipe.batch
        ('vse++', 128)
    """

    @model_validator(mode="before")
    @classmethod
    def _by_todays_names(cls, values: Any) -> Any:
        return with_usual(up_to_date(values)) if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Refuse mistakes in the second round, or in the test, before the first is trained."""
        if self.second_round is not None:
            self.round_two()
        find_protocol(self.protocol)
        for spec in (self.objective, self.first_objective or ""):
            if self.reduction != "published" and re.search(r"\breduction\s*=", spec):
                raise InputError(
                    f"objective: {spec:.200}: `reduction={self.reduction}` is for all objectives: "
                    "leave `reduction` out of the spec."
                )
        if self.found_pairs is not None and self.positives == "pairs":
            raise InputError(
                "recipe: found_pairs come beside all captions of an image: leave `positives: pairs`"
                " out, or `found_pairs`."
            )
        if self.resplit is not None:
            read_resplit(self.resplit)
            if self.protocol != "all":
                raise InputError(
                    f"protocol: {self.protocol} is of the data's own test split; with `resplit` it "
                    "is `all`."
                )
        return self

    @property
    def other_captions_are_negatives(self) -> bool:
        """Whether a caption's only positive is its pair: other captions of the image are pushed."""
        return self.positives == "pairs"

    def round_two(self, **changes: Any) -> "Recipe":
        """The recipe of the second round."""
        own = up_to_date({**(self.second_round or {}), **changes})
        if own.get("second_round") is not None:
            raise InputError("second_round: there is no third round.")
        goes_on = own.pop("from_round_one", False)
        if not isinstance(goes_on, bool):
            raise InputError(f"second_round: from_round_one is true or false, not {goes_on!r:.80}.")
        if goes_on:  # the weights bring the words they were trained with
            for field in ("model", "vocabulary", "start_from"):
                if own.get(field) not in (None, getattr(self, field)):
                    raise InputError(
                        f"second_round: {field}: with from_round_one it is the first round's: "
                        "leave it out."
                    )
            own |= {"vocabulary": None, "start_from": None}
        return checked(Recipe, {**self.to_dict(), **own, "second_round": None}, "second_round")

    @property
    def from_round_one(self) -> bool:
        """Whether a second round starts from the first one's weights."""
        return bool((self.second_round or {}).get("from_round_one", False))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in YAML."""
        values = ((name, getattr(self, name)) for name in Recipe.model_fields)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values}

    def __repr_args__(self) -> Any:
        """What differs from the defaults."""
        default = Recipe.model_fields
        return [(k, v) for k, v in super().__repr_args__() if v != default[str(k)].default]

    def dataset(self) -> Dataset:
        """The data it names."""
        return open_dataset(
            self.data,
            features=self.features,
            skip=self.skip,
            train_images=self.train_images,
            resplit=self.resplit,
        )

    def tested_split(self, dataset: Dataset) -> str:
        """The split of some data that the test is about."""
        return self.test_split or find_protocol(self.protocol).split_in(dataset.splits)

    def settled(self) -> "Recipe":
        """The same recipe from anywhere: paths that are there become absolute."""
        return self.replace(**absolute(self.to_dict()))

    def replace(self, **changes: Any) -> "Recipe":
        """Another recipe with some fields changed, checked like one that was read."""
        return from_dict({**self.to_dict(), **up_to_date(changes)}, "recipe")

    def save(self, path: Path) -> None:
        """Write YAML that reads back."""
        values = self.to_dict()
        with atomic_write(path) as file:
            for title, names in grouped(values).items():
                file.write(f"# {title}\n")
                some = {name: values[name] for name in names}
                yaml.safe_dump(some, file, sort_keys=False, allow_unicode=True)


# May change between sittings of a run: how the same gradient is computed, and where.
MACHINE = (
    "device", "threads", "workers", "graphs", "checkpoint_seconds", "micro_batch", "log",
)  # fmt: skip


def differing(one: Recipe, other: Recipe) -> list[str]:
    """The fields in which two recipes differ, as far as they decide what a run does."""
    a, b = one.to_dict(), other.to_dict()
    return [name for name in a if a[name] != b[name] and name not in MACHINE]


def read_recipe(path: str | Path | None, **changes: Any) -> Recipe:
    """A recipe from its YAML file, with changes; without a file, of the changes alone.

    Examples:
        >>> from pathlib import Path
        >>> _ = Path("mine.yaml").write_text("objective: nt-xent\\nepochs: 3\\n")
        >>> simgrad.training.read_recipe("mine.yaml").epochs
        3
    """
    if path is not None and not Path(path).exists() and _names_objective(str(path)):
        raise InputError(f'{path}: there is no such file. Did you mean `objective="{path}"`?')
    values = {} if path is None else read_yaml(path)
    fields = {**up_to_date(values), **up_to_date(changes)}
    where = "recipe" if path is None else str(path)
    found = from_dict(values, where)  # a mistake in a change is not told of the file
    found = from_dict(fields, "recipe") if changes else found
    for text in earlier_names(values) + unsaid(fields, found):
        warnings.warn(f"{where}: {text}.", stacklevel=2)
    return found


def _names_objective(text: str) -> bool:
    return text.split("(")[0].strip() in {one.name for one in objectives}


def from_dict(values: Mapping[str, Any], where: str) -> Recipe:
    """A recipe from plain values; unknown or ill-typed fields are named."""
    return checked(Recipe, values, where)


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Names of fields by group; they come in the recipe's order."""
    groups: dict[str, list[str]] = {}
    for name in names:
        if name in GROUPS:
            groups[GROUPS[name]] = []
        groups[next(reversed(groups))].append(name)
    return groups


def up_to_date(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields, or changes of some, by the names that they have now.

    Whoever sets `positives` says all of it: found pairs that were given before are dropped.
    """
    found: dict[str, Any] = with_specs(fields)
    if "trial" in found:
        found["validation_only"] = found.pop("trial")
    tensorboard = found.pop("tensorboard", False)
    if not isinstance(tensorboard, bool):
        raise InputError("recipe: tensorboard is true or false; today it is `log: tensorboard`.")
    if tensorboard:
        named = [name for name in (found.get("log"), "tensorboard") if name]
        found["log"] = ",".join(named)
    positives = found.get("positives")
    if _is_place(positives):
        found |= {"positives": "images", "found_pairs": str(positives)}
    elif positives in MODES:
        found.setdefault("found_pairs", None)
    second = found.get("second_round")
    if isinstance(second, Mapping):
        found["second_round"] = up_to_date(second)
    return found


def with_specs(value: Any) -> Any:
    """The same values, with its spec in place of each objective that is an object."""
    if isinstance(value, Mapping):
        return {key: with_specs(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(with_specs, value))
    return str(value) if isinstance(value, Objective) else value


def with_usual(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields, with the objective and the rate that are usual for the model where nobody says."""
    found = dict(fields)
    model = found.get("model", Recipe.model_fields["model"].default)
    if isinstance(model, str) and any(name not in found for name in Usual._fields):
        with contextlib.suppress(InputError):  # a mistake in the spec is told where it is built
            found = {**models.parse(model).usual._asdict(), **found}
            if "lr" not in fields and _needs_first_epoch(found):
                found["lr"] = _SLOW
    return found


def _needs_first_epoch(fields: Mapping[str, Any]) -> bool:
    """Whether a rule of the hardest negative begins by itself, at a rate at which it fails."""
    rate = fields["lr"]
    fast = isinstance(rate, float) and rate >= _FAILS_FROM
    eased = fields.get("first_objective") and fields.get("first_epochs")  # one alone does nothing
    return fast and not eased and objective(str(fields["objective"])).sparse


def unsaid(fields: Mapping[str, Any], chosen: Recipe) -> list[str]:
    """What a recipe leaves open and is not what it was before 0.3: a sentence for each."""
    return [
        f"`{name}` is not named: it is {getattr(chosen, name)}, usual for {chosen.model}, and was "
        f"{before} before 0.3"
        for name, before in (("objective", "triplet-sh"), ("lr", "0.0002"))
        if name not in fields and str(getattr(chosen, name)) != before
    ]


def without_a_first_epoch(chosen: Recipe) -> list[str]:
    """That a row's rule of the hardest negative fails at the rate of its study, if it does."""
    needs = False
    with contextlib.suppress(InputError):  # a mistake in the spec is told where it is built
        needs = _needs_first_epoch(chosen.to_dict())
    if not needs:
        return []
    why = (
        "learns from the hardest negative alone: at rates of 0.002 to 0.004 all 76 trials of such "
        "rules on VSE++ failed in results/generalise, and 1 of 76 with `first_objective: triplet` "
        "and `first_epochs: 1`. Name these, or a lower `lr`"
    )
    return [f"{chosen.objective} {why}"]


def earlier_names(fields: Mapping[str, Any]) -> list[str]:
    """What became of the fields that had other names: a sentence for each."""
    told = []
    if "trial" in fields:
        told.append("`trial` is `validation_only` now")
    if "tensorboard" in fields:
        told.append("`tensorboard: true` is `log: tensorboard` now")
    if _is_place(fields.get("positives")):
        told.append("`positives` with a file or folder is `found_pairs` now")
    return told


def _is_place(value: Any) -> bool:
    """A file or folder of found pairs, not a mode or a mistyped one."""
    if isinstance(value, Path):
        return True
    return isinstance(value, str) and value not in MODES and ("/" in value or Path(value).exists())


def absolute(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a recipe with absolute paths, also within a model's spec and a second round."""
    found = {k: place_of(v) if k in _PLACES and v is not None else v for k, v in fields.items()}
    if fields.get("positives") in MODES:  # even where a folder is called `images`
        found["positives"] = fields["positives"]
    if isinstance(found.get("also"), str):
        found["also"] = classes_place(found["also"])
    if "model" in found:
        config = models.parse(str(found["model"]))
        texts = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
        paths = {k: place_of(v) for k, v in texts.items() if isinstance(v, str) and "/" in v}
        if any(texts[k] != path for k, path in paths.items()):
            found["model"] = str(dataclasses.replace(config, **paths))
    second = fields.get("second_round")
    if isinstance(second, dict):
        found["second_round"] = absolute(second)
    return found
