"""Python processes of our own, in which nothing runs that merely lies in the current folder.

Python, started with -m or -c, looks for modules in the current folder first: a `json.py` beside a
stranger's study would run. PYTHONPATH counts as usual. Processes of `multiprocessing` are not used:
each would run the user's own script again, unless that is guarded by `__name__ == "__main__"`.
"""

import sys


def python(module: str, *words: str) -> list[str]:
    """The command that runs a module of ours."""
    return [sys.executable, "-P", "-m", module, *words]
