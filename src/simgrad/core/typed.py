"""Files that people write: YAML read safely, checked field by field, refused in plain words.

A kind of file is a `Typed` class: its fields have types, bounds and descriptions. The same class
gives the options of the command line and a JSON schema for editors.
"""

import inspect
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from simgrad.core.errors import InputError
from simgrad.core.text import did_you_mean, with_section

# A recipe is a page of text; longer is a mistake, or an attack on the parser.
_LARGEST, _DEEPEST = 1 << 20, 40
_MOST = 5  # mistakes told at once
_OPENING = (
    yaml.BlockMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.FlowSequenceStartToken,
)
_CLOSING = (yaml.BlockEndToken, yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)


def _number(value: Any) -> Any:
    """A number, also one written as text; True is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"takes a number, not {_shown(value)}")
    try:
        number = float(value)
    except (ValueError, OverflowError):  # no number, or a whole one that no float holds
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"takes a number, not {_shown(value)}")
    return number


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


Number = Annotated[float, BeforeValidator(_number)]
Text = Annotated[str, BeforeValidator(_text)]


class Typed(BaseModel):
    """Typed fields that are never changed; unknown ones are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    if not TYPE_CHECKING:  # type checkers know the fields

        def __init__(self, **values: Any) -> None:
            """Refuses what does not fit in the same words as for a file."""
            try:
                super().__init__(**values)
            except ValidationError as error:
                kind = type(self)
                raise InputError(explain(error, kind.__name__.lower(), kind)) from None

        @classmethod
        def __pydantic_init_subclass__(cls, **_: Any) -> None:
            """In `help`, names, defaults and meanings; types and bounds are in the schema."""
            told = {n: one.description for n, one in cls.model_fields.items() if one.description}
            if cls.__doc__ and told:
                about = {"description": inspect.cleandoc(cls.__doc__)}  # of the schema
                cls.model_config = {**cls.model_config, "json_schema_extra": about}
                cls.__doc__ = with_section(cls.__doc__, "Fields", told)
            cls.__signature__ = inspect.Signature(
                [
                    inspect.Parameter(
                        name,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=inspect.Parameter.empty if one.is_required() else one.default,
                    )
                    for name, one in cls.model_fields.items()
                ]
            )

        # Only for whoever calls it: within another class, pydantic names the place itself.
        __init__.__pydantic_base_init__ = True


T = TypeVar("T", bound=Typed)


def checked(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """The values as `kind`; `where` is what an error calls them."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise InputError(explain(error, where, kind)) from None


def explain(error: ValidationError, where: str, kind: type[BaseModel]) -> str:
    """What does not fit, a line for each mistake."""
    told = [_line(one, where, kind) for one in error.errors(include_url=False)]
    more = [f"{where}: and {len(told) - _MOST} more."] if len(told) > _MOST else []
    return "\n".join([*told[:_MOST], *more])


def _line(error: Mapping[str, Any], where: str, kind: type[BaseModel]) -> str:
    place = [str(part + 1) if isinstance(part, int) else part for part in error["loc"]]
    name, value, context = ": ".join(place), error["input"], error.get("ctx", {})
    if error["type"] == "extra_forbidden":
        within = ": ".join([where, *place[:-1]])
        return f"{within}: there is no field '{place[-1][:80]}'.{_near(place, kind)}"
    if error["type"] == "missing" and isinstance(error["loc"][-1], int):
        return f"{': '.join([where, *place[:-1]])} has too few values."
    if error["type"] == "missing":
        return f"{': '.join([where, *place[:-1]])}: '{place[-1]}' is missing."
    if error["type"] in _WORDS:
        said = f"takes {_WORDS[error['type']]}, not {_shown(value)}"
    elif error["type"] == "literal_error":
        choices = context["expected"].replace("'", "")
        said = f"is one of {choices}, not {_shown(value)}"
    elif error["type"] == "greater_than_equal":
        said = f"must be at least {context['ge']:g}, not {_shown(value)}"
    elif error["type"] == "less_than":
        said = f"must be below {context['lt']:g}, not {_shown(value)}"
    elif error["type"] == "value_error":
        said = str(context["error"]).rstrip(".")
    else:
        said = f"{error['msg'][:1].lower()}{error['msg'][1:]}, not {_shown(value)}"
    return f"{where}: {name} {said}." if name else f"{where}: {said}."


_WORDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "bool_type": "true or false",
    "string_type": "text",
    "string_unicode": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "fields and values",
    "model_type": "fields and values",
    "model_attributes_type": "fields and values",
}


def _near(place: list[str], kind: type[BaseModel]) -> str:
    """The field that was probably meant."""
    known: Any = kind
    for part in place[:-1]:  # the class of the field that holds it
        field = known.model_fields.get(part) if known is not None else None
        known = _class_within(field.annotation) if field is not None else known
    near = did_you_mean(place[-1], known.model_fields)
    return f" Did you mean '{near}'?" if near else ""


def _class_within(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = [_class_within(part) for part in getattr(annotation, "__args__", ())]
    return next((one for one in found if one is not None), None)


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.60}"
    except ValueError:  # a whole number of thousands of digits
        return "that"


# libyaml reads ten times as fast as Python; some builds of PyYAML come without it.
_Safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Safe):  # type: ignore[misc]
    """Safe YAML in which 2e-4 is a number, and no field stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"'{key.value[:80]}' stands there twice", key.start_mark
                )
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def _refuse_tag(loader: Any, node: yaml.Node) -> Any:
    raise yaml.constructor.ConstructorError(
        None,
        None,
        f"{node.tag.replace('tag:yaml.org,2002:', '!!')} is not used here",
        node.start_mark,
    )


def _plain_number(kind: str) -> Any:
    def construct(loader: Any, node: yaml.ScalarNode) -> Any:
        if ":" in node.value:
            raise yaml.constructor.ConstructorError(
                None,
                None,
                f"{node.value[:40]} would be read as minutes and seconds; write one number, or put "
                "it in quotes",
                node.start_mark,
            )
        return getattr(loader, f"construct_yaml_{kind}")(node)

    return construct


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _plain_number(_kind))
for _kind in ("set", "omap", "pairs", "binary"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _refuse_tag)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML mapping; nothing in the file can run, repeat itself or exhaust memory."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file.")
    if path.stat().st_size > _LARGEST:
        raise InputError(f"{path}: too large for a recipe ({path.stat().st_size:,} bytes).")
    try:
        text = path.read_text(encoding="utf-8")
        _refuse_tricks(text, path)
        loader = _Loader(text)
        try:
            value = loader.get_single_data()
        finally:
            loader.dispose()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}).") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise InputError(f"{path}{line}: not YAML: {problem}.") from None
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{path}: a recipe is a list of 'field: value' lines.")
    return value


def _refuse_tricks(text: str, path: Path) -> None:
    """What costs a parser gigabytes or hours, and recipes have no use for."""
    depth = 0
    for token in yaml.scan(text, Loader=_Safe):
        if isinstance(token, yaml.AliasToken):
            raise InputError(f"{path}: YAML references (*name) are not allowed in a recipe.")
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > _DEEPEST:
            raise InputError(f"{path}: nested too deeply for a recipe.")
