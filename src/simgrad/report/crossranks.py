"""Cross-retrieval ranks: how many true pairs stand first, near the top, far down."""

import numpy as np

from simgrad.evaluation import cross_ranks, histogram
from simgrad.pages.blocks import (
    Block,
    BodyRow,
    Cell,
    Column,
    Details,
    Figure,
    Figures,
    Paragraph,
    Section,
    Table,
)
from simgrad.pages.charts import share_chart
from simgrad.pages.glossary import explained
from simgrad.report.material import Material

_WORDS = (
    "A pair is found well only if its image is found from its text and its text from its image. "
    "Its {cross-retrieval rank} says so: 1 means first both ways."
)


def crossed(material: Material) -> Section | None:
    """The histogram of each system, mean over seeds."""
    shown = [s for s in material.systems if s.ranks]
    if not shown:
        return None
    counts = {s.label: [histogram(cross_ranks(ranks)) for ranks in s.ranks] for s in shown}
    names = list(next(iter(counts.values()))[0])
    rows = []
    for system in shown:
        each = [[c[n] / sum(c.values()) for n in names] for c in counts[system.label]]
        shares = [float(x) for x in np.mean(each, axis=0)]
        rows.append((system.label, material.colour(system), shares))
    told = "; ".join(f"{label}: {_told(names, values)}" for label, _, values in rows)
    title = "true pairs by cross-retrieval rank"
    see = "The longer the full blue on the left, the more pairs are found first in both directions."
    figure = Figure("cross-ranks", title, share_chart(rows, names, title), told, see)
    lines = []
    for system in shown:
        name = Cell(system.label, key=True, colour=material.colour(system))
        means = [np.mean([c[n] for c in counts[system.label]]) for n in names]
        lines.append(BodyRow([name, *(Cell(f"{mean:,.0f}") for mean in means)]))
    columns = [Column("", numeric=False), *(Column(n, over="rank") for n in names)]
    caption = "Test pairs, mean over seeds."
    table = Table("Pairs by cross-retrieval rank", columns, lines, caption)
    blocks: list[Block] = [
        Paragraph(explained(_WORDS)),
        Figures([figure]),
        Details("In numbers", [table]),
    ]
    return Section("crossranks", "Found in both directions", "Both ways", blocks)


def _told(names: list[str], values: list[float]) -> str:
    return ", ".join(f"rank {n} {100 * v:.0f}%" for n, v in zip(names, values, strict=True))
