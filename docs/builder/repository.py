"""Files of the repository outside docs/ that the site shows, and links between them.

A page is written for those who read it in the repository: `../results/flickr8k/README.md`. In the
site docs/ is the root and the rest lies beside it, so links are turned. A link to a file that the
site does not show (source code) becomes plain text.
"""

import os
import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
_NAMED = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contribute.md",
    "CHANGELOG.md": "changelog.md",
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

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(turn, part) for part in parts)


def _in_repository(place: str) -> PurePosixPath:
    names = {site: name for name, site in _NAMED.items()}
    if place in names:
        return PurePosixPath(names[place])
    outside = place.split("/")[0] in {pattern.split("/")[0] for pattern in _SHOWN}
    return PurePosixPath(place if outside else f"docs/{place}")


def _in_site(path: PurePosixPath) -> str:
    if path.parts[:1] == ("docs",):
        return PurePosixPath(*path.parts[1:]).as_posix()
    return _NAMED.get(path.as_posix(), path.as_posix())
