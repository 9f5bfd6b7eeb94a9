"""One page for each objective, from its declaration: nothing here knows one of them by name."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import drawings
import known_numbers
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from latex2mathml.converter import convert

from simgrad.core.spec import print_value
from simgrad.objectives import Objective, objective, objectives

_EXAMPLE = """\
import torch
import simgrad

torch.manual_seed(0)
images, texts = torch.randn(8, 16), torch.randn(8, 16, requires_grad=True)
objective = simgrad.objective("{spec}")
{call}
loss.backward()
print(f"{{loss.item():.4f}}", f"{{texts.grad.norm().item():.4f}}")
"""
_CALL = "loss = objective(images, texts)  # row i of both is a pair; lengths do not matter"
_MINED = """\
mined = simgrad.objectives.Offline(*torch.rand(4, 8))  # four similarities of each pair
loss = objective(images, texts, offline=mined)"""

# What a formula may hold -> what it means.
_SYMBOLS = {
    "s^{+}": "s⁺: similarity of the query and its positive.",
    "s_n": "sₙ: of the query and a negative n.",
    "s^{-}": "s⁻: of the query and its hardest negative.",
    r"\hat{s}": "ŝ: of a mined negative.",
    r"\tilde{s}": "s̃: of a mined image with a mined caption.",
    "s_i": "P: the query's positives; sᵢ: its similarity to one of them, sⱼ: to any candidate.",
    " N ": "N: how many negatives there are.",
    r"\sigma": "σ: the logistic sigmoid.",
    "m^{": "m⁺, m⁻: how the pair stands among the batch's others (1 in sig-ms and 0 in lin-ms "
    "where there are none).",
}


def declared() -> list[Any]:
    """Those that come with simgrad; names of another's cases last."""
    return sorted(objectives, key=lambda entry: (bool(entry.preset), entry.name))


def navigation() -> list[Any]:
    """The section of the navigation."""
    pages = [{entry.name: f"objectives/{entry.name}.md"} for entry in declared()]
    return [{"All of them": "objectives/index.md"}, *pages]


def pages() -> dict[str, str]:
    """Place in the site -> text."""
    found = {"objectives/index.md": _template("objectives.md").render(entries=declared())}
    for entry in declared():
        found[f"objectives/{entry.name}.md"] = _template("objective.md").render(_facts(entry))
    return found


def example(rule: Objective) -> str:
    """Code that uses it, and prints."""
    return _EXAMPLE.format(spec=rule, call=_MINED if rule.needs_offline else _CALL)


def _facts(entry: Any) -> dict[str, Any]:
    rule = objective(entry.name)
    code, formulas = example(rule), _formulas(entry)
    return {
        "entry": entry,
        "rule": rule,
        "formulas": [convert(line, display="block") for line in formulas],
        "symbols": [text for mark, text in _SYMBOLS.items() if mark in " ".join(formulas)],
        "positive": drawings.POSITIVE,
        "other": drawings.OTHER,
        "mined": drawings.MINED,
        "over_negative": drawings.over_negative(entry.name),
        "field": drawings.field(entry.name),
        "searched": {p.name: rule.searched().get(p.name) for p in entry.parameters},
        "code": code,
        "printed": _printed(code),
        "cases": {} if entry.preset else type(rule).known_cases(),
        "published": [n for n in known_numbers.published() if _belongs(entry, n.objective)],
        "ours": [n for n in known_numbers.ours() if _belongs(entry, n.objective)],
    }


def _formulas(entry: Any) -> list[str]:
    """Those that hold for it: not T_con, where the name fixes another triplet weight."""
    choices = {c for p in objectives[entry.factory.name].parameters for c in p.choices or ()}
    fixed = {value for _, value in entry.preset}
    left_out = choices - fixed if fixed else set()
    named = re.compile(r"[A-Z]_\{\\text\{([a-z-]+)\}\}")
    lines = [(line, named.match(line)) for line in entry.formula.strip().splitlines()]
    return [line for line, name in lines if name is None or name[1] not in left_out]


def _printed(code: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "example", "exec"), {})
    return out.getvalue()


def _belongs(entry: Any, used: Objective) -> bool:
    fixed = all(getattr(used, key, None) == value for key, value in entry.preset)
    return type(used) is entry.factory and fixed


def _values(parameter: Any) -> str:
    if parameter.choices:
        return ", ".join(parameter.choices)
    kinds = {bool: "true, false", int: "a whole number", float: "a number"}
    return kinds.get(type(parameter.default), "")


def _template(name: str) -> Any:
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    made = Environment(loader=loader, undefined=StrictUndefined, keep_trailing_newline=True)
    made.filters |= {
        "sentence": lambda text: f"{text[0].upper()}{text[1:]}.",
        "value": print_value,
        "values": _values,
        "parsed": objective,
    }
    return made.get_template(name)
