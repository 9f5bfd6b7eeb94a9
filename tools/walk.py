"""Which of the project's files does one call pass through? Fewer are easier to follow.

    python tools/walk.py "simgrad evaluate runs/first"
    python tools/walk.py step

The command runs once, in this process. Files of src/simgrad are printed in the order in which the
call first enters a function of theirs, with the number of such calls. What runs while a module is
imported is left out. `step` is one training step of a small model on drawn scenes, from one update
of the weights to the next: watch, fetch, encode, weigh, backward, update.
"""

import contextlib
import shlex
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src" / "simgrad"


class Walk:
    """Calls into each file, in the order of the first."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._thread = threading.local()  # each imports modules of its own

    def see(self, frame: FrameType, event: str, _: Any) -> None:
        """Called by Python at every call and return."""
        code, importing = frame.f_code, getattr(self._thread, "importing", 0)
        if code.co_name == "<module>":
            self._thread.importing = importing + {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not importing:
            file = Path(code.co_filename)
            if file.is_relative_to(SOURCE):
                self.calls[str(file.relative_to(SOURCE))] += 1


@contextlib.contextmanager
def watching(walk: Walk) -> Iterator[None]:
    """This thread, and those that start meanwhile."""
    threading.setprofile(walk.see)
    sys.setprofile(walk.see)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def walk_command(line: str) -> Walk:
    """One command, as from a terminal."""
    from simgrad.cli.program import main

    walk = Walk()
    with contextlib.suppress(SystemExit), watching(walk):
        main(shlex.split(line.removeprefix("simgrad ")))
    return walk


def walk_step() -> Walk:
    """What lies between the first update of the weights and the second."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    import simgrad

    walk, updates, opened = Walk(), 0, contextlib.ExitStack()

    def updated(*_: Any) -> None:
        nonlocal updates
        updates += 1
        if updates == 1:
            opened.enter_context(watching(walk))
        elif updates == 2:
            opened.close()

    hook = register_optimizer_step_post_hook(updated)
    recipe = simgrad.Recipe(
        data="scenes(train=32, val=8, test=8, features=global)",
        model="vse++(dimension=8, word_dimension=8)",
        epochs=1,
        batch=32,
        device="cpu",
    )
    with tempfile.TemporaryDirectory() as folder:
        simgrad.train(recipe, f"{folder}/run", quiet=True)
    hook.remove()
    return walk


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = walk_step() if sys.argv[1] == "step" else walk_command(sys.argv[1])
    for name, times in found.calls.items():
        print(f"{times:>9,}  {name}")
    print(f"{len(found.calls)} files, {found.calls.total():,} calls: {sys.argv[1]}")
