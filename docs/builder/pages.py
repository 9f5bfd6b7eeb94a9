"""Write the site as plain Markdown: `python docs/builder/pages.py FOLDER`.

FOLDER/pages gets docs/, what the repository has outside it, and the pages that are made from the
code, all links turned. A builder reads that folder alone; of the reference pages it must know the
directives of mkdocstrings. FOLDER/mkdocs.yml is for
MkDocs: this repository's, with the pages that were made in its navigation.
"""

import json
import shutil
import sys
from pathlib import Path

import command_page
import objective_pages
import reference_pages
import repository

from simgrad.pages.svg import RULES, colours

ROOT = repository.ROOT
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


def copied() -> dict[str, Path]:
    """Files of the repository, by their place in the site."""
    docs = ROOT / "docs"
    own = {p.relative_to(docs).as_posix(): p for p in sorted(docs.rglob("*")) if p.is_file()}
    left = {place for place in own if place.startswith("builder/") or place.endswith(".py")}
    return {**{place: own[place] for place in own.keys() - left}, **repository.shown()}


def turned(markdown: str, place: Path, known: set[str], names: list[str]) -> str:
    """A page's links and headings as they are in the repository -> as they are in the site."""
    text = repository.with_title(repository.relink(markdown, place, known))
    if place.parts[0] == "objectives":
        return text
    return repository.name_objectives(text, place, names)


def found_later(text: str, place: Path) -> str:
    """Pages that show figures or signatures come after those that explain, in the search."""
    if place.parts[0] not in ("results", "benchmarks", "reference", "changelog.md"):
        return text
    return f"---\nsearch:\n  boost: 0.3\n---\n\n{text}"


def settings() -> str:
    """mkdocs.yml for the folder that is written."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    made = {
        "- Objectives: []": f"- Objectives: {json.dumps(objective_pages.navigation())}",
        "- Python: []": f"- Python: {json.dumps(reference_pages.navigation())}",
        "docs_dir: docs": "docs_dir: pages",
        "paths: [src]": f"paths: [{json.dumps(str(ROOT / 'src'))}]",
    }
    for old, new in made.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def write(folder: Path) -> None:
    """All of it; what an earlier call left is gone."""
    pages = folder / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    made, files = generated(), copied()
    known, names = {*made, *files}, [entry.name for entry in objective_pages.declared()]
    for place in sorted(known):
        target = pages / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if place.endswith(".md"):
            text = made[place] if place in made else files[place].read_text(encoding="utf-8")
            text = turned(text, Path(place), known, names)
            target.write_text(found_later(text, Path(place)), encoding="utf-8")
        elif place in made:
            target.write_text(made[place], encoding="utf-8")
        else:
            shutil.copyfile(files[place], target)
    (folder / "mkdocs.yml").write_text(settings(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
