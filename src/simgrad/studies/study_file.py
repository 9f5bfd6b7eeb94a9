"""What a person writes in a study file: rows or a grid, seeds, published numbers, a search.

`StudyFile` checks it and gives the JSON schema; plan.py makes of it what will be run. A file may be
about several data sets, and its rows may share settings by group:

    groups:
      vsrn: {set: {model: vsrn}, per_dataset: {f30k: {decay_every: 10}}}
    per_dataset:
      f30k: {recipe: {protocol: flickr30k-1k}, where: {dataset: f30k}}
      coco: {recipe: {protocol: coco-5k}, where: {dataset: coco}}

Later words win: the recipe, the data set's recipe, the group, the group on this data set, the row,
the row on this data set.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, field_serializer

from simgrad.core.errors import InputError
from simgrad.core.typed import Text, Typed
from simgrad.evaluation import headlines
from simgrad.runs import naming
from simgrad.runs.recipe import Recipe
from simgrad.runs.recipe_fields import of_fields
from simgrad.studies.tune import Searched, Tune, plain

Changes = Annotated[dict[str, Any], Field(json_schema_extra=of_fields)]


class Group(Typed):
    """What the rows of one group share."""

    model_config = ConfigDict(validate_by_name=True)

    changes: Changes = Field(
        default_factory=dict, alias="set", description="Fields of the recipe that differ"
    )
    per_dataset: dict[str, Changes] = Field(
        default_factory=dict, description="Further fields that differ on one data set, by its name"
    )
    source: Text = Field(
        default="", description="Whose settings these are, of published/settings.csv"
    )


class Part(Typed):
    """A study on one of its data sets."""

    recipe: Changes = Field(
        default_factory=dict, description="Fields of the recipe that differ for all rows"
    )
    table: Text | None = Field(
        default=None, description="Another CSV file of simgrad/studies/published"
    )
    where: dict[str, Any] = Field(
        default_factory=dict, description="Columns and values that find published numbers"
    )


def offered(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The data sets that a file has settings for."""
    return tuple(values.get("per_dataset") or ())


def for_dataset(values: Mapping[str, Any], dataset: str | None, where: str) -> dict[str, Any]:
    """What a file says for one of its data sets, as a file without groups and data sets.

    The values have been checked field by field. Of several data sets the first, if `dataset` is
    none of them.
    """
    found = {key: value for key, value in values.items() if key not in ("per_dataset", "groups")}
    offers = offered(values)
    if offers:
        name = found["dataset"] = dataset if dataset in offers else offers[0]
        part = values["per_dataset"][name]
        found["recipe"] = {**(values.get("recipe") or {}), **part.get("recipe", {})}
        published = values.get("published") or {}
        whole = {**published.get("where", {}), **part.get("where", {})}
        found["published"] = {**published, "where": whole}
        if part.get("table"):
            found["published"]["table"] = part["table"]
    groups = values.get("groups") or {}
    rows = values.get("rows") or []
    unused = set(groups) - {str(row.get("group", "")) for row in rows}
    if unused:
        raise InputError(f"{where}: groups: no row is of the group '{min(unused)[:80]}'.")
    _check_ensembles(rows, where)
    if rows:
        found["rows"] = [_spread(row, groups, found.get("dataset"), offers, where) for row in rows]
    return found


def _spread(
    row: Mapping[str, Any],
    groups: Mapping[str, Any],
    dataset: str | None,
    offers: tuple[str, ...],
    where: str,
) -> dict[str, Any]:
    """A row with all that differs."""
    changes: dict[str, Any] = {}
    for layer in (groups.get(str(row.get("group", "")), {}), row):
        for name in layer.get("per_dataset") or {}:
            if name not in offers:
                raise InputError(
                    f"{where}: row '{str(row['label'])[:80]}': per_dataset: '{name[:40]}' is not "
                    f"among the file's own: {', '.join(offers) or 'it has none'}."
                )
        changes |= layer.get("set") or {}
        changes |= (layer.get("per_dataset") or {}).get(dataset, {})
    rest = {key: value for key, value in row.items() if key != "per_dataset"}
    source = row.get("source") or groups.get(str(row.get("group", "")), {}).get("source", "")
    return {**rest, "set": changes, "source": source}


def _check_ensembles(rows: list[Mapping[str, Any]], where: str) -> None:
    trained = {str(row["label"]) for row in rows if not row.get("ensemble")}
    for row in rows:
        for label in row.get("ensemble") or ():
            if str(label) not in trained:
                raise InputError(
                    f"{where}: row '{str(row['label'])[:80]}': ensemble: no row that is trained is "
                    f"called '{str(label)[:80]}'."
                )


_LONGEST = 200  # of a row's name: file systems take 255 with what is added to it


def _words(value: Any) -> Any:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return str(value) if number else value


def _seeds(value: Any) -> tuple[int, ...]:
    if type(value) is int and 1 <= value <= 1000:
        return tuple(range(value))
    listed = value if isinstance(value, (list, tuple)) else ()
    if listed and all(type(seed) is int and abs(seed) < 2**31 for seed in listed):
        return tuple(listed)
    raise ValueError("is a number of seeds (to 1000), or a list of seeds below 2^31")


def _folder(name: str) -> str:
    if len(name.encode(errors="replace")) > _LONGEST or not re.fullmatch(r"[^/\\:\0-\x1f]*", name):
        raise ValueError(
            f"is part of a folder's name, without / \\ : or line breaks and of at most {_LONGEST} "
            f"bytes, not {name!r:.60}"
        )
    return name


Words = Annotated[str, BeforeValidator(_words)]
Seeds = Annotated[
    tuple[int, ...],
    BeforeValidator(_seeds, json_schema_input_type=int | list[int]),
]


class Row(Typed):
    """One setting, run with every seed: one row of the table."""

    model_config = ConfigDict(validate_by_name=True)

    label: Words = Field(description="What tables call it")
    name: Annotated[Text, AfterValidator(_folder)] = Field(
        default="", description="What its run folders are called; from the label if empty"
    )
    group: Words = Field(default="", description="Rows of a group are compared with its baseline")
    changes: dict[str, Any] = Field(
        default_factory=dict,
        alias="set",
        json_schema_extra=of_fields,
        description="Fields of the recipe that differ",
    )
    baseline: bool = Field(
        default=False, description="What the others of its group are compared with"
    )
    published: dict[str, Words] = Field(
        default_factory=dict,
        description="Columns and values that find its row in the published table, or in `table`",
    )
    per_dataset: dict[str, Changes] = Field(
        default_factory=dict, description="Further fields that differ on one data set, by its name"
    )
    source: Text = Field(
        default="", description="Whose settings these are, of published/settings.csv"
    )
    space: dict[str, Searched] = Field(
        default_factory=dict,
        description="In a tuned study, where to look for this row's setting: adds to `tune`'s "
        "space, or replaces parts of it",
    )
    ensemble: list[Words] = Field(
        default_factory=list,
        description="Not trained: the mean similarities of these rows, seed by seed; a row that is "
        "named twice gives two of its seeds",
    )

    @field_serializer("space")
    def _plain_space(self, space: dict[str, Any]) -> dict[str, Any]:
        return {key: plain(where) for key, where in space.items()}

    def folder(self, seed: int) -> str:
        """The folder of one of its runs."""
        return f"{self.name or naming.slug(self.label)}-s{seed}"

    def ensembles(self, seeds: int) -> int:
        """How many ensembles of its rows so many seeds give."""
        return seeds // max(Counter(self.ensemble).values(), default=1)

    def renamed(self, name: str) -> "Row":
        """The same row, its folders called otherwise."""
        return self.model_copy(update={"name": name})

    def with_changes(self, **changes: Any) -> "Row":
        """The same row with more of the recipe changed."""
        return self.model_copy(update={"changes": {**self.changes, **changes}})


class Published(Typed):
    """Numbers of a paper, to stand beneath ours."""

    table: Text | None = Field(default=None, description="A CSV file of simgrad/studies/published")
    where: dict[str, Words] = Field(
        default_factory=dict, description="Columns and values that hold for all rows"
    )
    deviation: Literal["population", "sample"] | None = Field(
        default=None, description="What its ± is, where the paper or its code says so"
    )


class StudyFile(Typed):
    """What a study file says."""

    title: Words | None = Field(default=None, description="Stands above the table")
    claim: Words = Field(default="", description="What the paper says about it, in one sentence")
    recipe: Recipe = Field(default_factory=Recipe, description="What all runs share")
    rows: list[Row] = Field(default_factory=list, description="Settings, one by one")
    grid: dict[str, list[Any]] = Field(
        default_factory=dict,
        json_schema_extra=of_fields,
        description="Fields of the recipe with choices; a row for each mix",
    )
    groups: dict[str, Group] = Field(
        default_factory=dict, description="What the rows of a group share, by its name"
    )
    per_dataset: dict[str, Part] = Field(
        default_factory=dict,
        description="Data sets that the table is about (f30k, coco): settings, published numbers",
    )
    dataset: Text | None = Field(
        default=None, description="In a study folder: the data set whose settings were chosen"
    )
    seeds: Seeds = Field(default=(0,), description="How many seeds, or which")
    baseline: Words | None = Field(
        default=None,
        description="Objective of the grid, or label of a row, that others are compared with",
    )
    tune: Tune | None = Field(
        default=None, description="Search for each row's setting first, with the same budget"
    )
    short: bool = Field(
        default=False, description="Too short a training to say who is ahead: nobody is told apart"
    )
    published: Published = Field(default_factory=Published, description="Numbers of a paper")
    metrics: list[Text] = Field(
        default_factory=lambda: list(headlines()), description="Columns of the table"
    )
