"""Workers that begin at once: forked from one process that has imported and read everything.

Sixteen workers that each import torch, read the data and split the captions into words were busy
with that for twenty seconds. One process does it, touches no GPU, and forks the others, which share
its memory. Linux alone forks safely; elsewhere workers are started one by one.

    python -m simgrad.studies.forked_workers STUDY WORKERS RUNS

WORKERS is JSON: for each worker the file for its output, and what it adds to the environment. RUNS:
how many each trains at a time.
"""

import gc
import importlib
import importlib.util
import json
import os
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

import torch

from simgrad.core.extras import import_extras
from simgrad.models import models
from simgrad.retriever.prepare import read_ahead
from simgrad.studies.study import Study
from simgrad.studies.worker import attend, work_together

CAN_FORK = sys.platform == "linux"


def read_for(study: Study) -> dict[Any, Any]:
    """What the runs of a study have in common, read once for each kind of them."""
    shared: dict[Any, Any] = {}
    kinds = set()
    for _, _, recipe in study.plan.runs():
        with suppress(Exception):  # the run itself will say what is wrong
            needs = models.parse(recipe.model).tokenizer_needs
            data = (recipe.data, recipe.features, recipe.skip, recipe.resplit)
            kind = (*data, recipe.vocabulary, needs)
            if kind not in kinds:
                kinds.add(kind)
                read_ahead(recipe, shared)
    return shared


def main() -> None:
    """Entry point of the process that forks the workers, and waits for them."""
    import_extras()
    path, workers, count = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    cores = torch.get_num_threads()
    torch.set_num_threads(1)  # threads that compute would not be there after a fork
    study = Study.open(path)
    # The first optimizer of a process imports it, which takes seconds.
    importlib.import_module("torch._dynamo")
    if study.tunings:
        # Who draws a first setting imports these while the others wait for the search's lock:
        # sixteen workers were idle for up to 8 s each.
        for name in ("optuna", "scipy.stats.qmc"):
            if importlib.util.find_spec(name.partition(".")[0]) is not None:
                importlib.import_module(name)
    shared = read_for(study)
    # What is there now is nobody's garbage: a worker that looks through it after each run takes
    # long over it, and makes copies of memory that all share.
    gc.freeze()
    children: list[int] = []
    # A signal that comes now waits until all are there to be told; else some would work on.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    for number, (log, environment) in enumerate(workers):
        child = os.fork()
        if not child:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            _redirect(log)
            os.environ.update(environment)
            torch.set_num_threads(cores)
            attend()
            failed = work_together(study, count, shared, number, len(workers))
            _end(bool(failed))
        children.append(child)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the workers too
    signal.signal(signal.SIGTERM, lambda *_: _tell(children))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    _end(any(codes))


def _end(failed: bool) -> NoReturn:
    """All is written: nothing is taken apart in order, which takes a process of torch a second."""
    sys.stdout.flush()
    os._exit(int(failed))


def _redirect(log: str) -> None:
    """What a worker prints goes to a file of its own."""
    place = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(place, number)


def _tell(children: list[int]) -> None:
    """Workers are asked to stop; each writes a checkpoint."""
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)


if __name__ == "__main__":
    main()
