"""A study on a Ray cluster: the workers of one machine, on all of them.

They take turns by locking run folders, as workers of one machine do, so the study's folder, the
data and the files of `--with` must be on a disk that all machines share. A machine that is lost
costs what its runs had done since their last checkpoint: others take them up.
"""

import io
import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import simgrad
from simgrad.core.console import say
from simgrad.core.errors import InputError
from simgrad.core.extras import import_file, imported
from simgrad.runs.environment import COMMAND, HOST, command
from simgrad.studies.engine import Crew, crew_for, require_search
from simgrad.studies.study import Study
from simgrad.studies.watching import watch
from simgrad.studies.worker import work_together

_ADDRESS = "RAY_ADDRESS"


def run_ray(study: Study, processes: int | None = None, quiet: bool = False) -> None:
    """Train a study on the cluster of RAY_ADDRESS, or on one that Ray begins here."""
    try:
        import ray
    except ImportError:
        raise InputError("the ray engine needs the extra: pip install 'simgrad[ray]'.") from None
    if study.complete:
        return
    require_search(study)
    with _connected(ray):
        problems = _train(ray, study, processes, quiet)
    if problems and not Study(study.path).complete:
        raise InputError(problems[0])
    for told in dict.fromkeys(problems):
        say(f"{told} Others did its runs.", stderr=True)


def _train(ray: Any, study: Study, processes: int | None, quiet: bool) -> list[str]:
    """What kept workers from their part, in words."""
    crew = _crew(study, processes, [n["Resources"] for n in ray.nodes() if n["Alive"]])
    # Several runs on one GPU, if there are more of them.
    share = 1 / -(-crew.processes // crew.gpus) if crew.gpus else 0.0

    @ray.remote(num_cpus=crew.cores, num_gpus=share, max_retries=3)  # type: ignore[untyped-decorator]
    def worker(*given: Any) -> str | None:
        os.environ[HOST] = f"{socket.gethostname()} {ray.get_runtime_context().get_node_id()[:8]}"
        return _work(*given)

    files = [file["path"] for file in imported()]
    given = str(study.path.resolve()), files, command(), os.getcwd(), simgrad.__version__
    every = waiting = [worker.remote(*given, crew.together) for _ in range(crew.processes)]

    def busy() -> bool:
        nonlocal waiting
        if waiting:
            _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0.2)
        return bool(waiting)

    try:
        watch(study, busy, quiet)
    except BaseException:
        for each in waiting:
            ray.cancel(each)  # each run writes a checkpoint and stops
        ray.wait(waiting, num_returns=len(waiting), timeout=60)
        raise
    return [told for each in every if (told := _problem(ray, each))]


@contextmanager
def _connected(ray: Any) -> Iterator[None]:
    """Without what Ray prints to standard output: pages of its state when a machine is lost."""
    begin = not ray.is_initialized()
    with redirect_stdout(io.StringIO()):
        if begin:
            _connect(ray)
        try:
            yield
        finally:
            if begin:
                ray.shutdown()


def _connect(ray: Any) -> None:
    try:
        with chdir(sys.prefix):  # Ray's workers import from the folder where it was started
            ray.init(
                ignore_reinit_error=True, log_to_driver=False, include_dashboard=False,
                logging_level=logging.WARNING,
            )  # fmt: skip
    except Exception as error:  # of the network, of a token, of another version there
        first = str(error).strip().splitlines()[0][:200] if str(error).strip() else ""
        address = os.environ.get(_ADDRESS)
        what = f"no Ray cluster at {_ADDRESS}={address}" if address else "Ray did not start here"
        raise InputError(f"{what}: {first} (docs/scale.md, 'A study on many machines').") from None


def _crew(study: Study, processes: int | None, machines: list[dict[str, Any]]) -> Crew:
    """As many workers as help, each with cores that some machine has for it."""
    on_gpus = study.plan.base.device != "cpu"
    gpus = int(sum(machine.get("GPU", 0) for machine in machines)) if on_gpus else 0
    cores = [int(machine.get("CPU", 0)) for machine in machines]
    wanted, largest = study.plan.base.threads or 1, max(cores, default=0)
    if largest < wanted:
        raise InputError(
            f"no machine of the Ray cluster has {wanted} cores for a run; the largest offers "
            f"{largest} (`ray start --num-cpus`)."
        )
    crew = crew_for(study, processes, sum(cores), gpus)
    # What fits on the machines as they are: 3 workers on 8 + 8 cores have 4 each, not 5.
    fitting = [
        each for each in range(1, largest + 1) if sum(c // each for c in cores) >= crew.processes
    ]
    return replace(crew, cores=max(wanted, min(crew.cores, max(fitting, default=1))))


def _work(
    folder: str, files: list[str], told: str, here: str, version: str, together: int
) -> str | None:
    """On a machine of the cluster: train what is left. What keeps it from that, in words."""
    name = f"the machine {os.environ[HOST]}"
    missing = next((path for path in (folder, here, *files) if not Path(path).exists()), None)
    if missing is not None:
        return f"{name} does not see {missing}: it must be on a disk that all machines share."
    if simgrad.__version__ != version:
        return f"{name} has simgrad {simgrad.__version__}, and {version} began the study."
    os.environ[COMMAND] = told
    os.chdir(here)  # paths of a recipe begin there
    for file in files:
        import_file(Path(file))
    work_together(Study.open(folder), together)
    return None


def _problem(ray: Any, worker: Any) -> str | None:
    """Why a worker did not do its part: its machine is gone, or something failed there."""
    try:
        told: str | None = ray.get(worker)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None) or error
        last = (str(cause).strip().splitlines() or [type(error).__name__])[0]
        return f"a worker of the cluster ended early ({type(cause).__name__}: {last[:200]})."
    return told
