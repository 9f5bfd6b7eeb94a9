"""Reports: one file that shows a study or some runs to people.

`build.py` collects and puts together; each section has a file of its own, which makes blocks
(`pages/blocks.py`) of plain text and drawings; `page.py` and `markdown.py` write them, from the
templates beside them.
"""

from simgrad.report.build import build_report, write_report

__all__ = ["build_report", "write_report"]
