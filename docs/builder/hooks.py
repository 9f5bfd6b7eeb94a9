"""What `mkdocs build` adds to docs/: pages made from the code, and files of the repository.

MkDocs calls the functions `on_...`. The other files here make one kind of page each, as text.
"""

from pathlib import Path
from typing import Any

import command_page
import objective_pages
import reference_pages
import repository
from mkdocs.structure.files import File

from simgrad.pages.svg import RULES, colours

CHARTS = (
    f":root{{{colours(False)}}}"
    f'[data-md-color-scheme="slate"]{{{colours(True)}}}'
    f"{RULES}svg.chart{{width:100%;max-width:24rem;height:auto}}"
)


def generated() -> dict[str, str]:
    """Every page and file that is made here: its place in the site -> its text."""
    return {
        "assets/charts.css": CHARTS,
        "commands.md": command_page.page(),
        **objective_pages.pages(),
        **reference_pages.pages(),
    }


def on_config(config: Any) -> Any:
    """Put the pages that are made here into the navigation."""
    for section in config["nav"]:
        if "Objectives" in section:
            section["Objectives"] = objective_pages.navigation()
        if "Reference" in section:
            section["Reference"][0] = {"Python": reference_pages.navigation()}
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add what is made here, and what the repository has outside docs/."""
    for place, text in generated().items():
        files.append(File.generated(config, place, content=text))
    for place, path in repository.shown().items():
        files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links as they are in the repository -> links as they are in the site."""
    place = Path(page.file.src_uri)
    turned = repository.relink(markdown, place, {file.src_uri for file in files})
    if place.parts[0] == "objectives":
        return turned
    names = [entry.name for entry in objective_pages.declared()]
    return repository.name_objectives(turned, place, names)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """What the theme leaves out for those who read by ear: a name for the search."""
    return output.replace('role="dialog">', 'role="dialog" aria-label="Search">')
