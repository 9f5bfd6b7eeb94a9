"""A whole report, and its page: one file, no script, nothing from the network."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from simgrad.pages.blocks import Album, Block, Section
from simgrad.pages.rendering import render, stylesheet, theme

_PAPER = "#training,#cocos,#triplets,#examples,#provenance{break-before:page}"


@dataclass(frozen=True)
class Report:
    """A whole report."""

    title: str
    subtitle: str
    head: Sequence[Block]
    sections: Sequence[Section]
    foot: str
    pictures: Album = field(default_factory=dict)

    def blocks(self) -> list[Block]:
        """Everything that is shown, in its order."""
        return [*self.head, *(block for section in self.sections for block in section.blocks)]


def page(report: Report, *, paper: bool = False) -> str:
    """The whole file; `paper`: light, unfolded and broken into pages, to be printed to PDF."""
    css = theme(dark=not paper) + stylesheet("simgrad.report", "report.css")
    css += _PAPER if paper else ""
    return render("simgrad.report", "report.html", report=report, paper=paper, css=Markup(css))
