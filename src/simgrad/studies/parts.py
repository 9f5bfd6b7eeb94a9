"""A study file that is about several data sets, or whose rows share settings by group.

    groups:
      vsrn: {set: {model: vsrn}, per_dataset: {f30k: {decay_every: 10}}}
    per_dataset:
      f30k: {recipe: {protocol: flickr30k-1k}, where: {dataset: f30k}}
      coco: {recipe: {protocol: coco-5k}, where: {dataset: coco}}

Later words win: the recipe, the data set's recipe, the group, the group on this data set, the row,
the row on this data set.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from simgrad.core.errors import InputError
from simgrad.core.typed import Text, Typed
from simgrad.runs.recipe_fields import of_fields

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
