"""LICENSES.md: the licence of every package that simgrad needs, as the packages state it.

    python tools/licences.py    # writes the file, from what is installed

Core dependencies and extras of pyproject.toml, with all that they need in turn. Nothing here is a
legal opinion: it repeats what each package says about itself.
"""

import textwrap
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
CORE = "simgrad"
HEAD = """# Licences of the packages simgrad uses

simgrad itself: MIT ([LICENSE](LICENSE)). It holds no code of these packages; pip installs them.
Written by `python tools/licences.py` from what the packages say about themselves, as installed on
Linux. *Needed by*: simgrad, or the extras that ask for it, themselves or through another package.

| package | version | licence | needed by |
|---|---|---|---|
"""


def asked() -> dict[str, list[Requirement]]:
    """What pyproject.toml asks for: simgrad itself first, then each extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {CORE: project["dependencies"], **project["optional-dependencies"]}

    def needed(group: str) -> list[Requirement]:
        found = []
        for one in map(Requirement, groups[group]):
            if one.name == project["name"]:  # another of its extras
                found += [need for extra in sorted(one.extras) for need in needed(extra)]
            else:
                found.append(one)
        return found

    return {name: needed(name) for name in groups if name != "all"}


def closure(wanted: Iterable[Requirement]) -> set[str]:
    """These and all that they need, on this system."""
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    queue = [(one, extra) for one in wanted for extra in ("", *one.extras)]
    while queue:
        one, extra = queue.pop()
        name = canonicalize_name(one.name)
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        found.add(name)
        try:
            needs = [Requirement(text) for text in distribution(name).requires or []]
        except PackageNotFoundError:
            continue
        for need in needs:
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                queue += [(need, more) for more in ("", *need.extras)]
    return found


def licence(name: str) -> tuple[str, str]:
    """Version and licence."""
    try:
        told = distribution(name).metadata
    except PackageNotFoundError:
        return "", "not installed where this was written"
    start = "License :: "
    kinds = [text for text in told.get_all("Classifier") or [] if text.startswith(start)]
    classified = "; ".join(kind.split(" :: ")[-1] for kind in kinds if kind.count("::") > 1)
    free = next(iter((told["License"] or "").strip().splitlines()), "").replace("UNKNOWN", "")
    stated = told["License-Expression"] or classified or free or first_line(name) or "not stated"
    return told["Version"], textwrap.shorten(stated, 90, placeholder=" …").replace("|", "/")


def first_line(name: str) -> str:
    """Of the licence that comes with a package; empty where none does."""
    for file in distribution(name).files or []:
        if file.name.upper().startswith("LICEN"):
            return next(filter(None, map(str.strip, file.read_text().splitlines())), "")
    return ""


def page() -> str:
    users: dict[str, list[str]] = {}
    for group, wanted in asked().items():
        for name in closure(wanted):
            users.setdefault(name, []).append(group)
    rows = []
    for name in sorted(users):
        first = [group for group in (CORE, "train") if group in users[name]]  # others bring these
        needed = first[0] if first else ", ".join(users[name])
        rows.append(f"| {name} | {' | '.join(licence(name))} | {needed} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    (ROOT / "LICENSES.md").write_text(page(), encoding="utf-8")
