"""`simgrad report`: one file that shows a study or some runs."""

from pathlib import Path
from typing import Annotated

import tyro

from simgrad.choosing.choice import CHOICE
from simgrad.core.console import say
from simgrad.report.build import Format, write_report


def report(
    targets: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[STUDY|RUN ...]", help_behavior_hint=""),
    ],
    *,
    output: Path | None = None,
    format: Format = "html",
    batches: int = 4,
    pictures: bool = True,
    examples: tuple[str, ...] = (),
    photos: str | None = None,
    device: str = "auto",
) -> None:
    """Write one self-contained file: which objective won, how sure, and why.

    Args:
        targets: study folders, run folders, or folders of runs. Runs that differ only in their seed
            are taken together
        output: the file to write (default: report.html, report.md or report-print.html, in the
            folder of a choice, else here)
        format: html: one page; md: Markdown, with pictures in a folder beside it; pdf-ready: light,
            unfolded and split into pages, to print to PDF from a browser
        batches: number of training batches on which to count what contributes to the gradient, for
            each setting; 0 skips this
        pictures: show retrieved examples; needs the data and a checkpoint
        examples: the one or two settings whose finds are shown, by their labels, e.g. "VSRN
            adap-off-quin" "VSRN online"; by default the best and what it is compared with
        photos: a data set with the pictures, for a study of features alone (regions), e.g.
            DATA/coco; pictures are found by their captions
        device: auto, cpu, cuda, cuda:N or mps
    """
    if output is None and len(targets) == 1 and (Path(targets[0]) / CHOICE).is_file():
        output = Path(targets[0])  # where its own report lies
    path = write_report(
        targets, output, format, batches=batches, pictures=pictures, examples=examples,
        photos=photos, device=device,
    )  # fmt: skip
    size = path.stat().st_size
    shown = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} KB"
    say(f"{path} ({shown})")
