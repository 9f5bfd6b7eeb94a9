"""The lowest versions that pyproject.toml declares, as constraints for pip.

    python tools/lowest.py train serve > lowest.txt     # the core, and these extras
    python -m pip install -c lowest.txt -e ".[train,serve,test]"

So what the test tools need is the newest that goes with them. .github/workflows/tests.yml runs the
tests with these versions; `make test-lowest` does it here, in .venv-lowest.
"""

import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lowest(extras: list[str]) -> dict[str, str]:
    """Distribution -> its lowest declared version."""
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    offered = project["optional-dependencies"]
    found: dict[str, str] = {}
    waiting = [Requirement(text) for text in project["dependencies"]]
    seen: set[str] = set()
    while extras or waiting:
        for extra in set(extras) - seen:
            if extra not in offered:
                raise SystemExit(f"{PROJECT.name} has no extra {extra!r}: {', '.join(offered)}.")
            waiting += map(Requirement, offered[extra])
        seen |= set(extras)
        extras = []
        for one in waiting:
            name = canonicalize_name(one.name)
            if name == project["name"]:  # another of its extras
                extras += one.extras - seen
            elif one.marker is None or one.marker.evaluate():
                found[name] = _lower(one)
        waiting = []
    return dict(sorted(found.items()))


def _lower(one: Requirement) -> str:
    stated = [part.version for part in one.specifier if part.operator in (">=", "==")]
    if len(stated) != 1:
        raise SystemExit(f"{PROJECT.name}: {one} states no lowest version.")
    return stated[0]


if __name__ == "__main__":
    for name, version in lowest(sys.argv[1:]).items():
        print(f"{name}=={version}")
