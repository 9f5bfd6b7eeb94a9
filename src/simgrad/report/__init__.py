"""Reports: one file that shows a study or some runs to people.

`build.py` collects and puts together; each section has a file of its own, which makes blocks
(`blocks.py`) of plain text and drawings; `html.py` and `markdown.py` write them.
"""

from simgrad.report.build import build_report, write_report

__all__ = ["build_report", "write_report"]
