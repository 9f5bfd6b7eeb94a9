"""Small SVG drawings, written by hand: colours are classes, so a page decides on light or dark.

Charts are made of these pieces, for reports, the lab page and notebooks alike.
"""

import math
from collections.abc import Sequence
from html import escape

# Eight colours that differ for every kind of colour vision, on light paper and on dark.
LIGHT = (
    "#0068a8", "#b84700", "#00795a", "#9a3f86", "#866400", "#3f4754", "#2f7fb5", "#b0303f",
)  # fmt: skip
DARK = (
    "#5db4f0", "#ff9351", "#3fcf9f", "#df93cd", "#e6bd45", "#c9ced6", "#9fd4f7", "#ff8a94",
)  # fmt: skip
_SURFACES = {  # name -> on light paper, on dark
    "ink": ("#1c1f24", "#eceae4"),
    "muted": ("#59616d", "#a3abb7"),
    "rule": ("#dfdfda", "#31363e"),
    "paper": ("#fdfdfc", "#15171b"),
    "card": ("#ffffff", "#1a1d22"),
    "sunken": ("#f4f4f1", "#20242b"),
    "ground": ("#f4f4f1", "#121417"),
    "warn": ("#6f4f00", "#e3c374"),
    "warn-ground": ("#fbf3dd", "#2f2917"),
}


def colours(dark: bool) -> str:
    """The colours as CSS variables."""
    pairs = [f"--{name}:{values[dark]}" for name, values in _SURFACES.items()]
    pairs += [f"--c{i}:{colour}" for i, colour in enumerate(DARK if dark else LIGHT)]
    pairs += ["--cx:var(--muted)", f"--heat:{'brightness(1.8)' if dark else 'none'}"]
    return ";".join([*pairs, f"color-scheme:{'dark' if dark else 'light'}"])


# What every drawing needs, whether it stands in a page or in a file of its own.
RULES = (
    "svg.chart{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',sans-serif;"
    "font-variant-numeric:tabular-nums}"
    ".chart text{fill:var(--muted)}.chart text.strong{fill:var(--ink);font-weight:600}"
    ".chart text.on-dark{fill:var(--paper);font-weight:600}"
    ".chart .heat{filter:var(--heat)}.chart .axis{stroke:var(--rule);stroke-width:1}"
    ".chart .zero{stroke:var(--muted);stroke-width:1;stroke-dasharray:2 3}"
    ".chart .halo{stroke:var(--paper);stroke-width:3;paint-order:stroke;stroke-linejoin:round}"
    + "".join(
        f".chart .s{i}{{stroke:var(--c{i});fill:none}}.chart .f{i}{{fill:var(--c{i})}}"
        f".chart text.f{i}{{fill:var(--c{i});font-weight:600}}"
        for i in (*range(len(LIGHT)), "x")
    )
)


def colour_class(colour: int | None) -> str:
    """What follows s (stroke) or f (fill) in a class name; x is the colour of the rest."""
    return "x" if colour is None else str(colour)


def number(value: float) -> str:
    """A coordinate, as short as can be."""
    return f"{value:.1f}".rstrip("0").rstrip(".") if value else "0"


def element(tag: str, text: str = "", **attributes: object) -> str:
    """An element; `text` is plain text, attribute names lose a trailing underscore."""
    return _tag(tag, escape(text, quote=False), attributes)


def group(parts: Sequence[str], **attributes: object) -> str:
    """Elements together."""
    return _tag("g", "".join(parts), attributes)


def _tag(tag: str, inside: str, attributes: dict[str, object]) -> str:
    words = [
        f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for name, value in attributes.items()
        if value is not None
    ]
    return f"<{tag}{''.join(words)}>{inside}</{tag}>" if inside else f"<{tag}{''.join(words)}/>"


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else escape(str(value))


def drawing(width: float, height: float, parts: Sequence[str], **attributes: object) -> str:
    """A drawing without its title, which `described` adds."""
    box = f"0 0 {number(width)} {number(height)}"
    more = "".join(
        f' {name.replace("_", "-")}="{_value(value)}"' for name, value in attributes.items()
    )
    return f'<svg class="chart" viewBox="{box}"{more}>{"".join(parts)}</svg>'


def described(svg: str, name: str, title: str, description: str) -> str:
    """The drawing with what a screen reader says of it."""
    head, _, rest = svg.partition(">")
    ids = f'role="img" aria-labelledby="{name}-t {name}-d"'
    return (
        f"{head} {ids}>{element('title', title, id=f'{name}-t')}"
        f"{element('desc', description, id=f'{name}-d')}{rest}"
    )


def standalone(svg: str) -> str:
    """The drawing as a file of its own, light or dark as the reader's system is."""
    dark = f"@media(prefers-color-scheme:dark){{:root{{{colours(True)}}}}}"
    style = f"<style>:root{{{colours(False)}}}{dark}{RULES}svg{{background:var(--paper)}}</style>"
    head, _, rest = svg.partition(">")
    return f'{head} xmlns="http://www.w3.org/2000/svg">{style}{rest}\n'


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from low to high."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [round((first + i) * step, 10) for i in range(count)]


def printed(value: float) -> str:
    """A tick: 1,200 · 40 · −0.25 · 1e−06"""
    if value == 0:
        return "0"
    text = f"{value:.0e}" if abs(value) < 1e-3 else f"{value:,.4f}".rstrip("0").rstrip(".")
    return text.replace("-", "−")


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move labels apart, keeping their order, as little as need be."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    placed: list[float] = []
    for i in order:
        placed.append(max(positions[i], placed[-1] + gap if placed else low))
    limit = high
    for k in reversed(range(len(placed))):
        placed[k] = min(placed[k], limit)
        limit = placed[k] - gap
    result = [0.0] * len(positions)
    for k, i in enumerate(order):
        result[i] = placed[k]
    return result
