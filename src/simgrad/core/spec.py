"""Specs: how a declared thing is written in one line, `name(key=value, ...)`, and read back.

Objectives, models, data sets and metrics declare themselves once (name, paper, description, typed
parameters = dataclass fields). The command line, documents, result tables and tests all come
from that declaration.
"""

import dataclasses
import keyword
import math
import os
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from simgrad.core.errors import InputError
from simgrad.core.text import did_you_mean, place, plain_formula, with_section

T = TypeVar("T")
C = TypeVar("C")  # a declared class: type checkers still see it as itself

_SPEC = re.compile(r"\s*([A-Za-z0-9_+.\-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9_+.\-{}]+")  # {k} of a metric
# A spec is typed by a person or read from a file: longer than this is a mistake or an attack.
_LONGEST = 2000
# Above the first a product of two numbers overflows float32; below the second a quotient does.
_LARGEST = 1e30
_SMALLEST = 1e-30


@dataclass(frozen=True)
class Range:
    """Where a search looks for a value: from `low` to `high`, by factors where `log`.

    Examples:
        >>> str(simgrad.objectives.Range(0.01, 1.0))
        '0.01 to 1'
    """

    low: float
    high: float
    log: bool = True

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise InputError(f"a range from {self.low:g} to {self.high:g} holds nothing.")
        if self.log and not self.low > 0:
            raise InputError(
                f"a range from {self.low:g} to {self.high:g} cannot be searched by factors: give "
                "log: false."
            )

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}" + ("" if self.log else " (linear)")


@dataclass(frozen=True)
class Limits:
    """What a number may be."""

    above: float | None = None
    at_least: float | None = None
    below: float | None = None

    def hold(self, value: Any) -> bool:
        """Whether a value is within; what is no number has no limits."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return True
        return (
            (self.above is None or value - self.above >= _SMALLEST)
            and (self.at_least is None or value >= self.at_least)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        told = {"greater than": self.above, "at least": self.at_least, "less than": self.below}
        return " and ".join(f"{word} {end:g}" for word, end in told.items() if end is not None)

    def wanted(self, value: float) -> str:
        """What a value outside should have been."""
        near = self.above is not None and value > self.above and value - self.above < _SMALLEST
        return f"{self}, by {_SMALLEST:g} at least" if near else str(self)


@dataclass(frozen=True)
class Parameter:
    """One typed parameter of a declared thing."""

    name: str
    type: str
    default: Any
    choices: tuple[str, ...] | None
    description: str
    limits: Limits = Limits()
    search: Range | None = None  # where a tuned study looks

    def __str__(self) -> str:
        kind = "|".join(self.choices) if self.choices else print_value(self.default)
        return f"{self.name}={kind}"


@dataclass(frozen=True)
class Declaration(Generic[T]):
    """A declared thing: what the command line, the documents and the tests need to know of it."""

    name: str
    factory: Callable[..., T]
    paper: str
    description: str
    parameters: tuple[Parameter, ...]
    preset: tuple[tuple[str, Any], ...] = ()  # what an alias fixes
    formula: str = ""  # LaTeX, one formula a line, for the documents


def setting(
    default: Any,
    description: str,
    *,
    choices: tuple[str, ...] | None = None,
    shown: bool = False,
    search: Range | None = None,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
) -> Any:
    """A documented dataclass field.

    `shown` puts it into the spec even at its default; `search` is where a tuned study looks for it.
    `above`, `at_least` and `below` say what a number may be; anything else is refused.

    Examples:
        >>> from dataclasses import dataclass, fields
        >>> @dataclass
        ... class Mine:
        ...     power: float = simgrad.objectives.setting(2.0, "power of the push", above=0)
        ...
        >>> fields(Mine)[0].default
        2.0
    """
    metadata = {
        "description": description,
        "choices": choices,
        "shown": shown,
        "search": search,
        "limits": Limits(above, at_least, below),
    }
    return dataclasses.field(default=default, metadata=metadata)


class Registry(Generic[T]):
    """Declared things of one kind, by name."""

    def __init__(
        self,
        kind: str,
        command: str,
        examine: Callable[[T], None] | None = None,
        common: tuple[Parameter, ...] = (),
    ) -> None:
        self.kind = kind  # "objective": what an error calls it
        self.common = common  # parameters that all have; they are no fields, but attributes
        self.command = command  # "simgrad objectives": where the list is
        self.elsewhere: dict[str, str] = {}  # what others call it, bare: a spec of ours
        self.hints: dict[str, str] = {}  # a name that is none of these: what to do instead
        self._examine = examine  # asked the first time a name is used; raises what is wrong
        self._examined: set[str] = set()
        self._declared: dict[str, Declaration[T]] = {}
        self._places: dict[str, str] = {}  # where each was declared

    def __repr__(self) -> str:
        """A line for each: its name, and what it is."""
        width = max(map(len, self._declared), default=0)
        return "\n".join(f"{one.name:{width}}  {one.description}" for one in self)

    def __iter__(self) -> Iterator[Declaration[T]]:
        return iter(self._declared.values())

    def __getitem__(self, name: str) -> Declaration[T]:
        if name not in self._declared:
            near = did_you_mean(name, self._declared)
            hint = f" Did you mean '{near}'?" if near else ""
            known = self.elsewhere.get(_bare(name))
            hint = f" What others call so is '{known}' here." if known else hint
            hint = self.hints.get(name, hint)
            raise InputError(
                f"there is no {self.kind} '{name[:80]}'.{hint} `{self.command}` lists them all; "
                "one of your own needs `simgrad --with FILE.py`."
            )
        return self._declared[name]

    def known_as(self, spec: str, *names: str) -> None:
        """Names that others use for what a spec says: an error about them suggests it."""
        self.elsewhere |= {_bare(name): spec for name in names}

    def declare(
        self, name: str, *, paper: str, description: str, formula: str = ""
    ) -> Callable[[type[C]], type[C]]:
        """Class decorator: declare a dataclass, whose fields are its parameters.

        `formula` is LaTeX, one formula a line, for the documents.
        """

        def add(cls: type[C]) -> type[C]:
            given = any(isinstance(value, dataclasses.Field) for value in vars(cls).values())
            if given or not dataclasses.is_dataclass(cls):
                # As its base is: a model's settings are frozen, an objective cannot be.
                base = getattr(cls, "__dataclass_params__", None)
                wanted = f"@dataclass{'(frozen=True)' if base is not None and base.frozen else ''}"
                raise InputError(
                    f"the {self.kind} '{name}': {cls.__name__} is no dataclass: write {wanted} "
                    "between `declare` and the class."
                )
            parameters = _parameters(cls)
            made: Any = cls
            self.add(Declaration(name, made, paper, description, parameters, formula=formula))
            made.name = name
            made.__doc__ = _documented(made, parameters, paper, formula)
            if "__init__" in vars(made) and not made.__init__.__doc__:
                made.__init__.__doc__ = description  # not that of torch's base
            return cls

        return add

    def alias(self, name: str, of: str, *, paper: str, description: str, **preset: Any) -> None:
        """Another name for a declared thing with some parameters fixed."""
        base = self[of]
        rest = tuple(p for p in base.parameters if p.name not in preset)
        fixed = tuple(preset.items())
        self.add(Declaration(name, base.factory, paper, description, rest, fixed, base.formula))

    def add(self, declaration: Declaration[T]) -> None:
        """Add a declaration."""
        name = declaration.name
        if name in self._declared:
            raise InputError(
                f"the {self.kind} '{name}' is declared twice, first in {self._places[name]}: take "
                "another name."
            )
        if not _NAME.fullmatch(name):
            raise InputError(
                f"the {self.kind} {name!r:.80}: a name has letters, digits and + - . _ alone."
            )
        self._declared[name], self._places[name] = declaration, _place()

    def parse(self, text: str, given: Mapping[str, Any] | None = None) -> T:
        """`name(key=value, ...)` -> the thing itself. Values may also be given as Python's."""
        name, values = split_spec(text, self.kind)
        declaration = self[name]
        known = {p.name: p for p in (*self.common, *declaration.parameters)}
        arguments: dict[str, Any] = dict(declaration.preset)
        named = {key.rstrip("_"): value for key, value in (given or {}).items()}  # lambda_
        twice = named.keys() & values.keys()
        if twice:
            raise InputError(f"in {text!r:.200}: '{twice.pop()[:80]}' is given twice.")
        for key, value in (*values.items(), *named.items()):
            if key not in known:
                has = ", ".join(p.name for p in declaration.parameters) or "none"
                raise InputError(
                    f"{self.kind} '{name}' has no parameter '{key[:80]}' (it has: {has})."
                    f"{meant(key, known.values())}"
                )
            owner = f"{self.kind} '{name}'"
            check = _check_type if key in named else _convert
            arguments[key] = check(value, known[key], owner)
            limits = known[key].limits
            if not limits.hold(arguments[key]):
                wanted = limits.wanted(arguments[key])
                raise InputError(
                    f"{owner}: parameter '{key}' must be {wanted}, not {print_value(value):.80}."
                )
        shared = [p.name for p in self.common if known[p.name] is p]
        common = {name: arguments.pop(name) for name in shared if name in arguments}
        made = declaration.factory(**{_field_name(k): v for k, v in arguments.items()})
        for key, value in common.items():
            setattr(made, key, value)
        if self._examine is not None and name not in self._examined:
            self._examine(made)
            self._examined.add(name)
        return made


def _place() -> str:
    """The line outside this package that is declaring something; else the package."""
    ours, frame = f"{Path(__file__).parents[1]}{os.sep}", sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ours):
        frame = frame.f_back
    file = frame.f_code.co_filename
    return "simgrad" if file.startswith("<frozen") else place(file, frame.f_lineno)


# What others call a parameter: the word by which ours is found.
_OTHERS = {"temp": "temperature", "t": "temperature", "m": "margin", "logit_scale": "scale",
           "bias": "offset", "logit_bias": "offset"}  # fmt: skip
_INVERSE = {"scale": "temperature"}


def meant(name: str, parameters: Iterable[Parameter], cutoff: float = 0.6) -> str:
    """A sentence on the parameter that was probably meant: one called alike, or described so."""
    known = {p.name: p for p in parameters}
    near = did_you_mean(name, known, cutoff)
    if near:
        return f" Did you mean '{near}'?"
    word = _OTHERS.get(name.lower(), name.lower())
    for asked, how in ((word, ""), (_INVERSE.get(word, ""), f"1 / {name} is ")):
        told = [known[asked]] if asked in known else [
            p for p in known.values()
            if asked in re.findall(r"\w+", p.description) and not isinstance(p.default, bool)
        ]  # fmt: skip
        if len(asked) > 3 and told:
            return "".join(f" {how}'{p.name}': {p.description}." for p in told)
    return ""


def _bare(name: str) -> str:
    """A name as people remember it: no case, no signs, no word "loss"."""
    return re.sub(r"[^a-z0-9]", "", name.lower()).removesuffix("loss")


def print_spec(thing: Any, common: Mapping[str, Any] | None = None) -> str:
    """The spec of a declared dataclass: what differs from its defaults or is always shown.

    `common`: defaults of attributes that all of its kind have.
    """
    parts = []
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if value != field.default or field.metadata.get("shown"):
            parts.append(f"{field.name.rstrip('_')}={print_value(value)}")
    own = {field.name for field in dataclasses.fields(thing)}
    for name, default in (common or {}).items():
        if name not in own and getattr(thing, name) != default:
            parts.append(f"{name}={print_value(getattr(thing, name))}")
    return f"{thing.name}({', '.join(parts)})" if parts else str(thing.name)


def check_settings(thing: Any) -> None:
    """Refuse a dataclass with a value that its declaration does not allow; functions may pass."""
    for field in dataclasses.fields(thing):
        check_setting(thing, field.name, getattr(thing, field.name))


def check_setting(thing: Any, name: str, value: Any) -> None:
    """The same of one value that a field of it shall have."""
    field = next(f for f in dataclasses.fields(thing) if f.name == name)
    limits, choices = field.metadata.get("limits", Limits()), field.metadata.get("choices")
    where = f"{thing.name or type(thing).__name__}: {name.rstrip('_')}"
    if type(field.default) in (int, float):
        empty = value is None and "None" not in str(field.type)
        if empty or isinstance(value, (str, bool)):
            raise InputError(f"{where} is a number, not {value!r:.80}.")
    if not limits.hold(value):
        raise InputError(f"{where} must be {limits.wanted(value)}, not {print_value(value)}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where} must be a finite number, not {value}.")
    if choices and value not in choices and not callable(value):
        raise InputError(f"{where} is one of {', '.join(choices)}, not {value!r:.80}.")


def refuse_given(thing: Any, names: tuple[str, ...], of: str) -> None:
    """Refuse settings that were changed, but are of something that is not there."""
    default = {field.name: field.default for field in dataclasses.fields(thing)}
    for name in names:
        if getattr(thing, name) != default[name]:
            raise InputError(f"'{thing}': {name} is of {of}; leave it out.")


def searched(thing: Any) -> dict[str, Range]:
    """The parameters of a declared dataclass that a search varies, and where it looks."""
    if not dataclasses.is_dataclass(thing):
        return {}
    fields = ((f.name.rstrip("_"), f.metadata.get("search")) for f in dataclasses.fields(thing))
    return {name: search for name, search in fields if search is not None}


def with_values(text: str, values: dict[str, Any], kind: str) -> str:
    """A spec with some of its parameters changed."""
    name, before = split_spec(text, kind)
    after = {**before, **{key: print_value(value) for key, value in values.items()}}
    return f"{name}({', '.join(f'{k}={v}' for k, v in after.items())})" if after else name


def print_value(value: Any) -> str:
    """How a parameter's value is written in a spec."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.12g}"
    if callable(value):
        return str(getattr(value, "__name__", repr(value)))
    return str(value)


def split_spec(text: str, kind: str) -> tuple[str, dict[str, str]]:
    """`name(key=value, ...)` -> name, {key: value}, both still text."""
    if not isinstance(text, str) or len(text) > _LONGEST:
        a = "an" if kind[:1] in "aeiou" else "a"
        raise InputError(
            f"{a} {kind} is written 'name' or 'name(key=value, ...)', not {text!r:.80}."
        )
    match = _SPEC.fullmatch(text)
    if not match:
        raise InputError(f"cannot read the {kind} {text!r:.200}: write 'name(key=value, ...)'.")
    values: dict[str, str] = {}
    inside = match.group(2)
    for part in _split_commas(inside) if inside and inside.strip() else []:
        key, equals, value = part.partition("=")
        key, value = key.strip(), value.strip()
        if not equals or not key or not value:
            raise InputError(f"in {text!r:.200}: '{part.strip()[:80]}' is not 'key=value'.")
        if key in values:
            raise InputError(f"in {text!r:.200}: '{key[:80]}' is given twice.")
        values[key] = value
    return match.group(1), values


def _split_commas(text: str) -> list[str]:
    """Split at commas outside parentheses, so that a value may itself be a spec."""
    parts, depth, start = [], 0, 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


def _field_name(name: str) -> str:
    """The field of a parameter: a word that Python keeps for itself has an underscore behind."""
    return f"{name}_" if keyword.iskeyword(name) else name


def _parameters(cls: type[Any]) -> tuple[Parameter, ...]:
    hints = typing.get_type_hints(cls)
    return tuple(
        Parameter(
            f.name.rstrip("_"),
            getattr(hints[f.name], "__name__", str(hints[f.name])),
            f.default,
            f.metadata.get("choices"),
            f.metadata.get("description", ""),
            f.metadata.get("limits", Limits()),
            f.metadata.get("search"),
        )
        for f in dataclasses.fields(cls)
    )


def _documented(cls: type[Any], parameters: tuple[Parameter, ...], paper: str, formula: str) -> str:
    """The docstring of a declared class, for `help`, with what its declaration knows."""
    told = {}
    for p in parameters:
        allowed = f"one of {', '.join(p.choices)}" if p.choices else str(p.limits)
        told[p.name] = "; ".join(
            filter(None, [p.description, allowed, f"{print_value(p.default)} by default"])
        )
    doc = with_section(cls.__doc__, "Parameters", told)
    source = {"paper": paper, "formula": plain_formula(formula)}
    return with_section(doc, "Source", {name: text for name, text in source.items() if text})


def _check_type(value: Any, parameter: Parameter, owner: str) -> Any:
    """A value that Python gives: of the type that its default has."""
    if isinstance(value, str) or (value is None and "None" not in parameter.type):
        return _convert(str(value), parameter, owner)  # as in a spec
    default, number = parameter.default, isinstance(value, (int, float)) and value is not True
    number = number and value is not False
    whole = "int" in parameter.type and "float" not in parameter.type
    if isinstance(default, bool):
        fits, wanted = isinstance(value, bool), "true or false"
    elif isinstance(default, int) or whole:
        fits, wanted = number and isinstance(value, int), "a whole number"
    elif isinstance(default, float) or "float" in parameter.type:
        fits, wanted = number and math.isfinite(value) and abs(value) <= _LARGEST, "a number"
    else:
        fits, wanted = callable(value), "text"
    if not fits and value is not None:
        raise InputError(
            f"{owner}: parameter '{parameter.name}' takes {wanted}, not {value!r:.80}."
        )
    return float(value) if isinstance(default, float) and value is not None else value


def _convert(value: str, parameter: Parameter, owner: str) -> Any:
    where = f"{owner}: parameter '{parameter.name}'"
    if parameter.choices and value not in parameter.choices:
        raise InputError(f"{where} is one of {', '.join(parameter.choices)}, not {value!r:.80}.")
    default = parameter.default
    if value == "none" and (default is None or "None" in parameter.type):
        return None
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[value.lower()]
        if isinstance(default, int):
            return int(value)
        if isinstance(default, float) or (default is None and "float" in parameter.type):
            number = float(value)
            if number != number or abs(number) == float("inf"):
                raise ValueError(value)
            if abs(number) > _LARGEST:
                raise InputError(f"{where} is {value:.80}; it may be {_LARGEST:g} at most.")
            return number
        if default is None and "int" in parameter.type:
            return int(value)
    except (ValueError, KeyError):
        is_float = isinstance(default, float) or "float" in parameter.type
        wanted = "a number" if is_float else "a whole number"
        wanted = "true or false" if isinstance(default, bool) else wanted
        raise InputError(f"{where} takes {wanted}, not {value!r:.80}.") from None
    return value
