"""Python processes of our own, in which nothing runs that merely lies in the current folder.

Python, started with -m or -c, looks for modules in the current folder first: a `json.py` beside a
stranger's study would run. PYTHONPATH counts as usual.
"""

import sys

# In the environment, for processes that a library starts (`multiprocessing`), and theirs.
SAFE_PATH = {"PYTHONSAFEPATH": "1"}


def python(module: str, *words: str) -> list[str]:
    """The command that runs a module of ours."""
    return [sys.executable, "-P", "-m", module, *words]
