"""A family's formulas as the text of a GPU kernel: traced once, printed for both directions.

`terms` and `push` are called with stand-ins that note what is done to them (torch.fx). What they
noted is printed as lines of Triton over a tile of similarities `s`, for its rows and its columns in
lockstep: what does not depend on the direction is printed once. A vector of the queries stays one
number a query until it meets the tile.

Special functions are the scarcest part of such a kernel. Where the similarities are bounded, an
exponential of a sum is a product, exp(a s + v) = exp(a s) exp(v), so that both directions share the
one over the tile; and two sigmoids share one reciprocal.
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.fx as fx
from torch.nn.functional import relu, softplus

from simgrad.objectives.engine.forms import Elementwise
from simgrad.objectives.engine.totals import LARGEST_EXPONENT


class Unprintable(Exception):
    """A formula does something that has no place in a kernel."""


class Value(NamedTuple):
    """An expression: how it is written for rows and for columns."""

    row: str
    column: str
    axis: str  # "number", "scalar" (one for all queries), "vector" (one for each) or "tile"
    slope: float = 0.0  # where it is slope * s + rest:
    rest: "Value | None" = None  # a vector, or nothing
    linear: bool = False
    constant: float | None = None  # of a number
    guard: "tuple[Value, Value] | None" = None  # a condition; the value where it holds, else -inf

    @property
    def shared(self) -> bool:
        """Whether both directions write the same."""
        return self.axis != "vector" and self.row == self.column


_AXES = ("number", "scalar", "vector", "tile")
_INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/",
    operator.gt: ">", operator.ge: ">=", operator.lt: "<", operator.le: "<=",
    operator.and_: "&", operator.or_: "|",
    torch.add: "+", torch.sub: "-", torch.mul: "*", torch.div: "/",
    torch.gt: ">", torch.ge: ">=", torch.lt: "<", torch.le: "<=",
}  # fmt: skip
_CALLS: dict[Any, str] = {
    torch.log: "tl.log({0})", torch.sqrt: "tl.sqrt({0})", torch.abs: "tl.abs({0})",
    torch.relu: "tl.maximum({0}, 0.0)", relu: "tl.maximum({0}, 0.0)",
    torch.maximum: "tl.maximum({0}, {1})", torch.minimum: "tl.minimum({0}, {1})",
    torch.where: "tl.where({0}, {1}, {2})",
    torch.square: "{0} * {0}", torch.reciprocal: "1.0 / {0}",
}  # fmt: skip


class Printer:
    """Prints formulas over a tile; `bound` is the largest similarity, None if it is not known."""

    def __init__(self, bound: float | None) -> None:
        self.bound, self.lines = bound, list[str]()
        self._known: dict[str, str] = {}
        self.s = Value("s", "s", "tile", 1.0, None, True)

    def vectors(self, uniform: tuple[bool, ...]) -> list[Value]:
        """What queries are told: r0, r1, ... and c0, c1, ...; u0, ... if all are told the same."""
        return [
            self._linear(f"u{k}", f"u{k}", "scalar")
            if same
            else self._linear(f"r{k}", f"c{k}", "vector")
            for k, same in enumerate(uniform)
        ]

    def _linear(self, row: str, column: str, axis: str) -> Value:
        plain = Value(row, column, axis)
        return plain._replace(rest=plain, linear=True)

    def number(self, value: float) -> Value:
        text = f"float('{value}')" if value in (float("inf"), float("-inf")) else repr(float(value))
        return self._linear(text, text, "number")._replace(constant=float(value))

    def name(self, expression: str) -> str:
        """A variable for an expression, the same one for the same expression."""
        if expression not in self._known:
            self._known[expression] = f"v{len(self._known)}"
            self.lines.append(f"{self._known[expression]} = {expression}")
        return self._known[expression]

    def write(self, pattern: str, *values: Value) -> Value:
        """An operation on values, which meet as tiles where one of them is one."""
        axis = max((v.axis for v in values), key=_AXES.index)
        row = pattern.format(*(_met(v, axis, 0) for v in values))
        column = pattern.format(*(_met(v, axis, 1) for v in values))
        if axis == "number":
            return Value(f"({row})", f"({row})", axis)
        return Value(self.name(row), self.name(column), axis)

    def arithmetic(self, sign: str, a: Value, b: Value) -> Value:
        """Two operands; a sum of what is linear in s stays so."""
        made = self.write(f"{{0}} {sign} {{1}}", a, b)
        if not (a.linear and b.linear) or sign not in "+-*/":
            return made
        if sign in "+-":
            rest = b.rest if a.rest is None else a.rest
            if a.rest is not None and b.rest is not None:
                rest = self.write(f"{{0}} {sign} {{1}}", a.rest, b.rest)
            elif sign == "-" and a.rest is None and b.rest is not None:
                rest = self.write("-{0}", b.rest)
            slope = a.slope + b.slope if sign == "+" else a.slope - b.slope
            return made._replace(slope=slope, rest=rest, linear=True)
        for one, other in ((a, b), (b, a)):
            factor = other.constant
            if factor is not None and (sign == "*" or other is b):
                slope = one.slope * factor if sign == "*" else one.slope / factor
                rest = (
                    None if one.rest is None else self.write(f"{{0}} {sign} {{1}}", one.rest, other)
                )
                return made._replace(slope=slope, rest=rest, linear=True)
        return made

    def exp(self, x: Value) -> Value:
        """One exponential over the tile for both directions, where that is a number."""
        if x.guard is not None:
            return self.write("tl.where({0}, {1}, 0.0)", x.guard[0], self.exp(x.guard[1]))
        if x.axis != "tile" or not x.linear or not self._within(x, LARGEST_EXPONENT):
            return self.write("exp({0})", x)
        tile = self.write("exp({0})", self.arithmetic("*", self.number(x.slope), self.s))
        return tile if x.rest is None else self.write("{0} * {1}", tile, self.exp(x.rest))

    def sigmoid(self, x: Value) -> Value:
        """sigmoid(a s + v) of both directions from one exponential and one reciprocal."""
        bounded = x.linear and x.rest is not None and x.rest.axis == "vector"
        if x.axis != "tile" or not bounded or not self._within(x, 2 * LARGEST_EXPONENT):
            return self._curves(x, 0)
        # 1 / (1 + exp(-a s - v)): the exponential is a square, neither factor of which overflows.
        half = self.exp_of(f"{-0.5 * x.slope!r} * s")
        assert x.rest is not None
        row, column = (self.exp_of(f"-0.5 * {v}") for v in (x.rest.row, x.rest.column))
        pair = f"sigmoids({half} * {row}[:, None], {half} * {column}[None, :])"
        return Value(*self._pair(pair), "tile")

    def exp_of(self, text: str) -> str:
        return self.name(f"exp({text})")

    def softplus(self, x: Value) -> Value:
        return self._curves(x, 1)

    def _curves(self, x: Value, which: int) -> Value:
        """sigmoid and softplus of the same value come together."""
        row = self._pair(f"sigmoid_and_softplus({x.row})")[which]
        if x.shared:
            return Value(row, row, "tile")
        return Value(row, self._pair(f"sigmoid_and_softplus({x.column})")[which], x.axis)

    def _pair(self, expression: str) -> tuple[str, str]:
        if expression not in self._known:
            self._known[expression] = name = f"v{len(self._known)}"
            self.lines.append(f"{name}, {name}_ = {expression}")
        name = self._known[expression]
        return name, f"{name}_"

    def _within(self, x: Value, largest: float) -> bool:
        # Rounded vectors may be a little longer.
        return self.bound is not None and abs(x.slope) * self.bound * 1.01 <= largest


def _met(value: Value, axis: str, direction: int) -> str:
    text = value.row if direction == 0 else value.column
    if value.axis == "vector" and axis == "tile":
        return text + ("[:, None]" if direction == 0 else "[None, :]")
    return text


def trace(formula: Callable[..., Any], told: int) -> fx.Graph:
    """What a formula does to a similarity and to what a query is told."""
    graph = fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    given = [fx.Proxy(graph.placeholder(name), tracer) for name in ["s", *map(str, range(told))]]
    try:
        found = formula(*given)
    except (TypeError, fx.proxy.TraceError) as error:
        raise Unprintable(str(error)) from None
    nodes = [f.node for f in (found if isinstance(found, tuple) else (found,))]
    graph.output(tuple(nodes))
    return graph


def show(printer: Printer, formula: Callable[..., Any], uniform: tuple[bool, ...]) -> list[Value]:
    """Print a formula; what its results are called."""
    at: dict[fx.Node, Value] = {}
    stand_ins = iter([printer.s, *printer.vectors(uniform)])

    def value(argument: Any) -> Value:
        if isinstance(argument, fx.Node):
            return at[argument]
        if isinstance(argument, bool | int | float):
            return printer.number(argument)
        raise Unprintable(f"{argument!r} is no number")

    for node in trace(formula, len(uniform)).nodes:
        if node.op == "placeholder":
            at[node] = next(stand_ins)
        elif node.op == "output":
            return [at[x] for x in node.args[0]]
        else:
            at[node] = _operation(printer, node, value)
    raise AssertionError("a graph ends with its output")


def _operation(printer: Printer, node: fx.Node, value: Callable[[Any], Value]) -> Value:
    target: Any = node.target
    if node.op == "call_method":
        if target in ("to", "float", "double", "type_as"):  # a condition becomes 0 or 1
            return printer.write("tl.where({0}, 1.0, 0.0)", value(node.args[0]))
        target = getattr(torch, str(target), None)
    if target is getattr and node.args[1] == "dtype":
        return printer.number(0)  # of no interest to a kernel
    arguments = [value(a) for a in node.args]
    if target in _INFIX:
        return printer.arithmetic(_INFIX[target], *arguments)
    if target in (operator.neg, torch.neg):
        return printer.arithmetic("*", printer.number(-1.0), arguments[0])
    for function, method in (
        (torch.exp, printer.exp), (torch.sigmoid, printer.sigmoid), (softplus, printer.softplus)
    ):  # fmt: skip
        if target is function:
            return method(arguments[0])
    if target not in _CALLS or node.kwargs:
        raise Unprintable(f"{getattr(target, '__name__', target)} has no place in a kernel")
    made = printer.write(_CALLS[target], *arguments)
    if target is torch.where and arguments[2].row == "float('-inf')":
        made = made._replace(guard=(arguments[0], arguments[1]))
    return made


def print_totals(
    family: Elementwise, uniform: tuple[bool, ...], printer: Printer, sums: bool, columns: bool
) -> int:
    """Lines that store what a tile adds to the totals of its rows and columns; how many parts.

    `sums`: exponentials are summed up as they are, not their logarithms. `columns`: theirs too.
    """
    terms = show(printer, family.terms, uniform)
    lines, slot = printer.lines, 0

    def store(row: str, column: str) -> None:
        nonlocal slot
        lines.append(f"tl.store(row_at + {slot} * row_slot, {row}, mask=there)")
        if columns:
            lines.append(f"tl.store(column_at + {slot} * column_slot, {column}, mask=here)")
        slot += 1

    for kind, term in zip(family.totals, terms, strict=True):
        if term.axis != "tile":
            raise Unprintable("a term that does not depend on the similarity")
        if kind == "max":
            for axis, text, number in (
                (1, term.row, "column[None, :]"), (0, term.column, "row[:, None]")
            ):  # fmt: skip
                names = f"m{slot}_{axis}, w{slot}_{axis}"
                lines.append(f"{names} = hardest_of({text}, {number}, {axis})")
            first = slot
            store(f"m{first}_1", f"m{first}_0")
            store(f"w{first}_1.to(tl.float32)", f"w{first}_0.to(tl.float32)")
        elif kind == "count":
            row, column = (f"{text}.to(tl.float32)" for text in (term.row, term.column))
            store(f"tl.sum({row}, 1)", f"tl.sum({column}, 0)")
        elif kind == "sum":
            store(f"tl.sum({term.row}, 1)", f"tl.sum({term.column}, 0)")
        elif sums:
            e = printer.exp(term)
            store(f"tl.sum({e.row}, 1)", f"tl.sum({e.column}, 0)")
        else:
            store(f"log_sum_exp({term.row}, 1)", f"log_sum_exp({term.column}, 0)")
    return slot


def print_weights(family: Elementwise, uniform: tuple[bool, ...], printer: Printer) -> None:
    """Lines that store a tile's weights."""
    (push,) = show(printer, family.push, uniform)
    by_row, by_column = (push.row, push.column)
    if push.axis == "vector":
        raise Unprintable("a push that does not depend on the similarity")
    both = f"fr * {by_row} + fc * {by_column}" if by_row != by_column else f"(fr + fc) * {by_row}"
    printer.lines.append(f"tl.store(at, ({both}).to(weights.dtype.element_ty), mask=both)")
