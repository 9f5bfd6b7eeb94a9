"""The HTML writer: one file, no script, nothing from the network, every text escaped."""

import base64
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from itertools import groupby

from simgrad.report.blocks import (
    Block,
    Callout,
    Cell,
    Code,
    Details,
    Example,
    Examples,
    Figure,
    Figures,
    Inline,
    Key,
    Listing,
    Mark,
    Paragraph,
    Report,
    Row,
    Section,
    Strip,
    Strong,
    Table,
    Thumb,
)
from simgrad.report.svg import RULES, described, styles

# Even if a text slipped through unescaped, a browser would run nothing and fetch nothing.
_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "form-action 'none'; base-uri 'none'"
)
_SURFACES = (
    "--sunken:#f4f4f1;--card:#fff;color-scheme:light",
    "--sunken:#1d2026;--card:#1a1d22;color-scheme:dark",
)
_MARKS = {"right": ("✓", "right"), "true": ("~", "true, but not the pair")}


def page(report: Report, *, paper: bool = False) -> str:
    """The whole file; `paper`: light, unfolded and broken into pages, to be printed to PDF."""
    writer = _Writer(report, paper)
    light, dark = (f"{styles(bool(i))};{_SURFACES[i]}" for i in (0, 1))
    theme = f":root{{{light}}}"
    if not paper:
        # Print is always light: dark paper wastes ink.
        theme += f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    css = (files("simgrad.report") / "style.css").read_text(encoding="utf-8")
    if paper:
        css += (
            "#training,#cocos,#triplets,#examples,#provenance{break-before:page}nav{display:none}"
        )
    body = "".join(
        [
            f"<header><h1>{escape(report.title)}</h1>",
            f"<p class=subtitle>{escape(report.subtitle)}</p>",
            *(writer.block(block) for block in report.head),
            "</header>",
            "" if paper else writer.contents(),
            "<main>",
            *(writer.section(section) for section in report.sections),
            f"</main><footer>{escape(report.foot)}</footer>",
        ]
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escape(report.title)}</title>"
        f"<style>{theme}{RULES}{css}</style></head>\n<body>{writer.album()}{body}</body></html>\n"
    )


class _Writer:
    def __init__(self, report: Report, paper: bool) -> None:
        self.report, self.paper = report, paper

    def contents(self) -> str:
        links = "".join(
            f'<li><a href="#{escape(s.anchor)}">{escape(s.short)}</a></li>'
            for s in self.report.sections
        )
        return f'<nav aria-label="Contents"><ul>{links}</ul></nav>'

    def album(self) -> str:
        """Every picture once; the page refers to them."""
        symbols = []
        for key, (data, width, height) in self.report.pictures.items():
            uri = "data:image/webp;base64," + base64.b64encode(data).decode()
            symbols.append(
                f'<symbol id="{key}" viewBox="0 0 {width} {height}">'
                f'<image href="{uri}" width="{width}" height="{height}"/></symbol>'
            )
        if not symbols:
            return ""
        hidden = 'width="0" height="0" style="position:absolute" aria-hidden="true"'
        return f"<svg {hidden}>{''.join(symbols)}</svg>"

    def section(self, section: Section) -> str:
        inside = "".join(self.block(block) for block in section.blocks)
        name = escape(section.anchor)
        return (
            f'<section id="{name}" aria-labelledby="{name}-h"><h2 id="{name}-h">'
            f"{escape(section.title)}</h2>{inside}</section>\n"
        )

    def block(self, block: Block) -> str:
        match block:
            case Paragraph(words, kind):
                return (
                    f'<p class="{kind}">{_words(words)}</p>' if kind else f"<p>{_words(words)}</p>"
                )
            case Callout(title, lines):
                items = "".join(f"<li>{escape(line)}</li>" for line in lines)
                return f"<aside class=callout><h3>{escape(title)}</h3><ul>{items}</ul></aside>"
            case Table():
                return self.table(block)
            case Figures(figures, keys):
                few = f"few{len(figures)}" if len(figures) < 3 else "many"
                drawn = "".join(map(_figure, figures))
                return f'{_keys(keys)}<div class="figures {few}">{drawn}</div>'
            case Examples(examples):
                return "".join(self.example(example) for example in examples)
            case Listing(text):
                return f"<pre tabindex=0>{escape(text)}</pre>"
            case Details(title, blocks):
                inside = "".join(self.block(each) for each in blocks)
                if self.paper:
                    return f"<h3>{escape(title)}</h3>{inside}"
                return (
                    f"<details><summary>{escape(title)}</summary>"
                    f"<div class=inside>{inside}</div></details>"
                )

    def table(self, table: Table) -> str:
        heads = _heads(table)
        rows = []
        for row, following in zip(table.rows, [*table.rows[1:], None], strict=True):
            rows.append(_row(row, table, following))
        label = escape(table.title)
        caption = f'<p class="caption">{escape(table.caption)}</p>' if table.caption else ""
        return (
            f'<div class="scroll sticky" role="region" aria-label="{label}" tabindex="0"><table>'
            f"<caption class=hidden>{label}</caption>{heads}<tbody>{''.join(rows)}</tbody>"
            f"</table></div>{caption}"
        )

    def example(self, example: Example) -> str:
        if isinstance(example.query, Thumb):
            picture, text = _thumb(example.query), "Which captions belong to this picture?"
            below = example.query.name
        else:
            picture = _thumb(example.own) if example.own is not None else ""
            text, below = f"“{example.query}”", "← the picture it belongs to" if picture else ""
        head = (
            f"<div class=query>{picture}<div><blockquote>{escape(text)}</blockquote>"
            f"<div class=belongs>{escape(below)}</div></div></div>"
        )
        strips = "".join(_strip(strip) for strip in example.strips)
        return f"<article class=example>{head}<div class=strips>{strips}</div></article>"


def _words(words: Sequence[Inline]) -> str:
    found = []
    for word in words:
        match word:
            case Strong(text):
                found.append(f"<strong>{escape(text)}</strong>")
            case Code(text):
                found.append(f"<code>{escape(text)}</code>")
            case Key():
                found.append(_key(word))
            case _:
                found.append(escape(word))
    return "".join(found)


def _key(key: Key) -> str:
    colour = "x" if key.colour is None else key.colour
    dot = f'<span class=dot style="--k:var(--c{colour})"></span>'
    return f"<span class=key>{dot}{escape(key.text)}</span>"


def _keys(keys: Sequence[Key]) -> str:
    if len(keys) < 2:
        return ""
    items = "".join(f"<li>{_key(key)}</li>" for key in keys if key.colour is not None)
    if any(key.colour is None for key in keys):
        items += f"<li>{_key(Key('the others', None))}</li>"
    return f"<ul class=keys>{items}</ul>"


def _figure(figure: Figure) -> str:
    caption = f"<figcaption>{escape(figure.caption)}</figcaption>" if figure.caption else ""
    svg = described(figure.svg, figure.name, figure.title, figure.description)
    return f"<figure>{svg}{caption}</figure>"


def _heads(table: Table) -> str:
    if not any(column.label or column.over for column in table.columns):
        return ""
    over = ""
    if any(column.over for column in table.columns):
        parts = [(name, len(list(same))) for name, same in groupby(table.columns, lambda c: c.over)]
        cells = "".join(
            f"<th colspan={n} scope=colgroup>{escape(name)}</th>"
            if name.strip()
            else f"<td colspan={n} class=blank></td>"
            for name, n in parts
        )
        over = f"<tr class=over>{cells}</tr>"
    heads = "".join(
        f"<th scope=col{'' if column.numeric else ' class=left'}>{escape(column.label)}</th>"
        if column.label
        else "<td class=blank></td>"
        for column in table.columns
    )
    return f"<thead>{over}<tr>{heads}</tr></thead>"


def _row(row: Row, table: Table, following: Row | None) -> str:
    if row.kind == "group":
        text = escape(row.cells[0].text)
        return f"<tr class=group><th colspan={len(table.columns)} scope=rowgroup>{text}</th></tr>"
    kind = row.kind or ("followed" if following is not None and following.kind == "aside" else "")
    cells = [f"<th scope=row>{_cell(row.cells[0])}</th>"]
    for cell, column in zip(row.cells[1:], table.columns[1:], strict=True):
        cells.append(f"<td{'' if column.numeric else ' class=text'}>{_cell(cell)}</td>")
    return f"<tr{f' class={kind}' if kind else ''}>{''.join(cells)}</tr>"


def _cell(cell: Cell) -> str:
    text = _key(Key(cell.text, cell.colour)) if cell.key else escape(cell.text)
    text = f"<b>{text}</b>" if cell.strong else text
    return text + (f"<small>{escape(cell.note)}</small>" if cell.note else "")


def _thumb(thumb: Thumb) -> str:
    said = _MARKS[thumb.mark][1] if thumb.mark else ""
    label = escape(f"picture {thumb.name}" + (f" ({said})" if said else ""))
    if thumb.picture is None:
        return f'<div class="pic name" role="img" aria-label="{label}">{escape(thumb.name)}</div>'
    return (
        f'<div class=pic><svg role="img" aria-label="{label}"><title>{escape(thumb.name)}</title>'
        f'<use href="#{thumb.picture}" width="100%" height="100%"/></svg></div>'
    )


def _badge(mark: Mark) -> str:
    if not mark:
        return ""
    sign, said = _MARKS[mark]
    return f'<span class=badge aria-hidden="true">{sign}</span><span class=hidden>{said}</span>'


def _strip(strip: Strip) -> str:
    head = f"<h4>{_key(strip.system)} · {escape(strip.outcome)}</h4>"
    if strip.thumbs:
        items = "".join(
            f'<li class="{thumb.mark}">{_thumb(thumb)}{_badge(thumb.mark)}</li>'
            for thumb in strip.thumbs
        )
        return f"<div class=strip>{head}<ol class=row>{items}</ol></div>"
    items = "".join(
        f'<li class="{line.mark}"><span>{escape(line.text)}</span>'
        f"<span>{_badge(line.mark)}</span></li>"
        for line in strip.lines
    )
    return f"<div class=strip>{head}<ol class=lines>{items}</ol></div>"
