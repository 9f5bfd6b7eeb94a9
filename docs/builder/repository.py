"""Files of the repository outside docs/ that the site shows, and links between them.

A page is written for those who read it in the repository: `../results/flickr8k/README.md`. In the
site docs/ is the root and the rest lies beside it, so links are turned. A link to a file that the
site does not show (source code) becomes plain text. Where a page first names an objective as code,
it is linked to that objective's page.
"""

import os
import re
from collections.abc import Callable, Collection
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
_NAMED = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contribute.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
}
# A folder of source code stands in the repository where the site has pages made from it.
_MADE = {
    "src/simgrad": "reference/index.md",
    "src/simgrad/cli": "commands.md",
    "src/simgrad/integrations": "reference/integrations.md",
    "src/simgrad/objectives": "objectives/index.md",
}
_SHOWN = ("results/**/*", "recipes/*.yaml", "benchmarks/*.md")
_KINDS = {".md", ".csv", ".json", ".png", ".py", ".yaml"}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def shown() -> dict[str, Path]:
    """Place in the site -> file."""
    found = {place: ROOT / name for name, place in _NAMED.items()}
    for pattern in _SHOWN:
        for path in sorted(ROOT.glob(pattern)):
            if path.suffix in _KINDS and "__pycache__" not in path.parts:
                found[path.relative_to(ROOT).as_posix()] = path
    return found


def relink(markdown: str, place: Path, known: set[str]) -> str:
    """The page at this place of the site, its links turned; `known`: what the site has."""
    origin = _in_repository(place.as_posix()).parent

    def turn(match: re.Match[str]) -> str:
        mark, text, target = match.groups()
        path, hash_, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        wanted = PurePosixPath(os.path.normpath(origin / path))
        found = _in_site(wanted)
        if found in known:
            return f"{mark}[{text}]({os.path.relpath(found, place.parent)}{hash_}{anchor})"
        return (
            text if (ROOT / wanted).exists() else match[0]
        )  # a dead link stays: strict mode tells

    return _outside_code(markdown, lambda text: _LINK.sub(turn, text))


def with_title(markdown: str) -> str:
    """A page that begins with a small heading, as a table of a study does, begins with a title."""
    first = re.match(r"\s*(#+) ", markdown)
    spare = len(first[1]) - 1 if first else 0
    raised = re.compile(rf"^#{{{spare}}}(?=#+ )", re.MULTILINE)
    return _outside_code(markdown, lambda text: raised.sub("", text)) if spare else markdown


def name_objectives(markdown: str, place: Path, names: Collection[str]) -> str:
    """Where a page first names each of these as `name`, a link to its page."""
    left = set(names)

    def link(match: re.Match[str]) -> str:
        if match[1] not in left:
            return match[0]
        left.discard(match[1])
        return f"[{match[0]}]({os.path.relpath(f'objectives/{match[1]}.md', place.parent)})"

    return _outside_code(markdown, lambda text: re.sub(r"(?<!\[)`([a-z-]+)`(?!\])", link, text))


def _outside_code(markdown: str, change: Callable[[str], str]) -> str:
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def _in_repository(place: str) -> PurePosixPath:
    names = {site: name for name, site in _NAMED.items()}
    if place in names:
        return PurePosixPath(names[place])
    outside = place.split("/")[0] in {pattern.split("/")[0] for pattern in _SHOWN}
    return PurePosixPath(place if outside else f"docs/{place}")


def _in_site(path: PurePosixPath) -> str:
    if path.parts[:1] == ("docs",):
        return PurePosixPath(*path.parts[1:]).as_posix()
    return (_NAMED | _MADE).get(path.as_posix(), path.as_posix())
