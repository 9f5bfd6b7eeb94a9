"""Files that people write: what is read, what is refused, and in which words."""

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field

from simgrad.core.errors import InputError
from simgrad.core.typed import Number, Text, Typed, checked, read_yaml


class Part(Typed):
    label: Text


class Whole(Typed):
    name: Text = Field(default="a")
    rate: Number = Field(default=0.1, ge=0)
    count: int = Field(default=1, ge=1)
    few: int | None = Field(default=None, ge=1)
    sure: bool = Field(default=False)
    two: tuple[Number, Number] = Field(default=(0.0, 1.0), strict=False)
    kind: Literal["red", "blue"] = Field(default="red")
    parts: list[Part] = Field(default_factory=list)


def read(text: str, tmp_path: Path) -> Whole:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    return checked(Whole, read_yaml(file), str(file))


@pytest.mark.parametrize("text", ["2e-4", "2E-4", "'2e-4'", "0.0002", "+2e-04"])
def test_a_number_may_be_written_in_any_way(text: str, tmp_path: Path) -> None:
    assert read(f"rate: {text}\n", tmp_path).rate == 2e-4


def test_what_fits_is_read(tmp_path: Path) -> None:
    head = "# yaml-language-server: $schema=whole.json\n"
    told = read(f"{head}two: [1, 2e1]\nparts: [{{label: x}}]\nsure: true\n", tmp_path)
    assert told.two == (1.0, 20.0)
    assert told.parts[0].label == "x"
    assert told.sure


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nmae: b", "no field 'nmae'. Did you mean 'name'?"),
        ("parts: [{lable: x}]", "Did you mean 'label'?"),
        ("parts: [{}]", "parts: 1: 'label' is missing"),
        ("count: 1.5", "count takes a whole number, not 1.5"),
        ("count: true", "count takes a whole number, not True"),
        ("count: 0", "count must be at least 1"),
        ("few: 0", "few must be at least 1"),
        ("sure: 1", "sure takes true or false"),
        ("rate: .nan", "rate takes a number"),
        ("rate: true", "rate takes a number"),
        ("rate: -1", "rate must be at least 0"),
        ("two: [1]", "two has too few values"),
        ("two: 3", "two takes a list"),
        ("kind: green", "kind is one of red or blue, not 'green'"),
        ("name: [a]", "name takes text"),
        ("name: a\nname: b", "'name' stands there twice"),
        ("count: 1:20", "1:20 would be read as minutes and seconds"),
        ("rate: 1:20.5", "minutes and seconds"),
        ("parts: !!set {a, b}", "!!set is not used here"),
        ("name: !!binary aGk=", "!!binary is not used here"),
    ],
)
def test_what_does_not_fit_is_named(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as told:
        read(text + "\n", tmp_path)
    assert words in str(told.value)
    assert "file.yaml" in str(told.value)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as told:
        read("count: 0\nkind: green\n", tmp_path)
    assert len(str(told.value).splitlines()) == 2


def test_a_class_that_is_called_speaks_the_same_words() -> None:
    with pytest.raises(InputError, match="whole: count must be at least 1"):
        Whole(count=0)
    wrong: Any = {"nmae": "b"}
    with pytest.raises(InputError, match="Did you mean 'name'"):
        Whole(**wrong)
