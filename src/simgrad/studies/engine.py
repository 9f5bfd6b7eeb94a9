"""Running a study: as many workers as help, side by side on one GPU where there is one."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from simgrad.core.children import python
from simgrad.core.console import say
from simgrad.core.threads import cores as available
from simgrad.core.threads import free, pinned, settle
from simgrad.models import models
from simgrad.runs.environment import COMMAND, command
from simgrad.runs.outcome import has_diverged
from simgrad.runs.run import Run
from simgrad.studies.forked_workers import CAN_FORK
from simgrad.studies.journal import optuna_or_say
from simgrad.studies.study import Study
from simgrad.studies.table import build_table, write_tables
from simgrad.studies.tuned import Tuning
from simgrad.studies.watching import watch


@contextmanager
def shared_gpu(wanted: bool) -> Iterator[dict[str, str]]:
    """Start the service for the workers of a study; yields their environment, empty without it."""
    control = shutil.which("nvidia-cuda-mps-control")
    if not wanted or control is None or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="simgrad-mps-", ignore_cleanup_errors=True) as folder:
        settings = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **settings}
        try:
            started = subprocess.run(
                [control, "-d"], env=environment, timeout=30, capture_output=True
            )
        except (OSError, subprocess.SubprocessError):
            started = None
        if started is None or started.returncode:
            yield {}
            return
        try:
            yield settings
        finally:
            with suppress(OSError, subprocess.SubprocessError):
                subprocess.run(
                    [control], input=b"quit\n", env=environment, timeout=30, capture_output=True
                )


# On one GPU, if runs can be trained together: processes, and runs that each trains at once. On an
# H200, with captions as long as Flickr8k's, a step of one model takes 0.34 ms where all have one
# objective, 0.36 with six (benchmarks/grouped.py); 4 x 12, with more memory, 0.32. With sixteen
# processes of one run each it takes 0.77.
_GROUPS, _TOGETHER = 4, 8


@dataclass(frozen=True)
class Crew:
    """How a study is worked on."""

    processes: int
    cores: int  # for each process: its runs compute with so many threads
    gpus: int
    together: int = 1  # runs of a process that are trained at a time


def crew_here(study: Study, processes: int | None) -> Crew:
    """As many workers as help on this machine."""
    import torch

    gpus = torch.cuda.device_count() if study.plan.base.device != "cpu" else 0
    return crew_for(study, processes, available(), gpus, free())


def crew_for(
    study: Study,
    processes: int | None,
    cores: int,
    gpus: int,
    free: int | None = None,
) -> Crew:
    """As many workers as help with these cores and GPUs; `free`: cores that nobody else uses."""
    left = max(1, sum(not Run(path).finished for path, _ in study.jobs()))
    if any(tuning.record is None for tuning in study.tunings):
        left = study.plan.trainings
    each = study.plan.base.threads or pinned()
    if gpus and processes is None and _grouped(study):
        # So many at a time that all turns are equally full.
        turns = -(-left // (_GROUPS * _TOGETHER * gpus))
        processes = max(1, min(left, cores, _GROUPS * gpus))
        together = min(3 * _TOGETHER, -(-left // (turns * processes)))  # each run has a CUDA stream
        return Crew(processes, max(1, cores // processes), gpus, together)
    if gpus:
        # At batch 128 one run leaves a GPU idle most of the time; it needs about one core.
        processes = processes or max(1, min(left, cores, 16 * gpus))
    else:
        processes = processes or max(1, min(left, cores // (each or 1)))
    return Crew(processes, each or max(1, (free or cores) // processes), gpus)


def require_search(study: Study) -> None:
    """A search that learns from its trials needs Optuna; others do not."""
    if any(tuning.tune.search == "tpe" for tuning in study.tunings):
        optuna_or_say()


def _grouped(study: Study) -> bool:
    """Whether the runs of a study can take their steps together."""
    recipes = [recipe for _, _, recipe in study.plan.runs()]
    plain = all(
        r.graphs and not (r.micro_batch or r.found_pairs or r.candidates) and r.precision != "fp16"
        for r in recipes
    )
    return plain and all(models.parse(model).groups for model in {r.model for r in recipes})


def run_local(study: Study, processes: int | None = None, quiet: bool = False) -> None:
    """Train every run of a study that is not finished."""
    if study.complete:
        return
    require_search(study)  # before workers are started
    crew = crew_here(study, processes)
    if not crew.gpus:
        study = study.with_threads(crew.cores)
        crew = replace(crew, cores=study.plan.base.threads or crew.cores)
        if not quiet and free() < available():
            say("others compute on this machine: the study will take longer.", stderr=True)
    with _ended_as_interrupted(), shared_gpu(crew.gpus > 0 and crew.processes > 1) as service:
        workers = _start(study, crew, service)
        try:
            watch(study, lambda: any(worker.poll() is None for worker in workers), quiet)
        except BaseException:
            for worker in workers:
                worker.terminate()  # each run writes a checkpoint and stops
            raise
        finally:
            for worker in workers:
                worker.wait()


def train_study(study: Study, processes: int | None = None, quiet: bool = False) -> None:
    """Train what is missing of a study, and write its tables."""
    run_local(study, processes, quiet)
    done = Study(study.path)
    write_tables(build_table(done), done.path)


def _start(study: Study, crew: Crew, service: dict[str, str]) -> list[subprocess.Popen[bytes]]:
    """Workers, or the one process that forks them. All stop when this command is gone."""
    environment = {**os.environ, **service, COMMAND: command()}
    settle(environment, crew.cores)
    logs = study.path / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    own = [
        (str(logs / f"worker-{os.getpid()}-{number}.txt"), _one_gpu(number, crew.gpus))
        for number in range(crew.processes)
    ]
    if CAN_FORK and crew.processes > 1:
        words = [
            "simgrad.studies.forked_workers",
            str(study.path),
            json.dumps(own),
            str(crew.together),
        ]
        return [_popen(words, str(logs / f"workers-{os.getpid()}.txt"), environment)]
    words = ["simgrad.studies.worker", str(study.path), "attended", str(crew.together)]
    return [_popen(words, log, {**environment, **more}) for log, more in own]


def _popen(words: list[str], log: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with open(log, "ab") as file:
        return subprocess.Popen(
            python(*words), env=environment, stdin=subprocess.PIPE, stdout=file, stderr=file
        )


@contextmanager
def _ended_as_interrupted() -> Iterator[None]:
    """A SIGTERM, as batch systems send it, does what Ctrl-C does: workers are told, and awaited."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _one_gpu(number: int, gpus: int) -> dict[str, str]:
    """Spread the workers over the GPUs of the machine."""
    return {"CUDA_VISIBLE_DEVICES": str(number % gpus)} if gpus > 1 else {}


def _unsearched(tuning: Tuning) -> tuple[str, str] | None:
    """A row without a setting, and why."""
    record = tuning.record
    if record is not None:
        return None if record["chosen"] else (tuning.name, "every trial of it diverged")
    trials = tuning.search.trials()
    running = [tuning.run_of(trial) for trial in trials if trial.state == "running"]
    for folder, _ in [*running, *tuning.to_repeat(trials)]:
        info = Run(folder).info
        if info.get("status") == "failed":
            return tuning.name, f"a trial failed: {str(info.get('error')).strip().splitlines()[-1]}"
    return tuning.name, "its search was stopped"


def failures(study: Study) -> list[tuple[str, str]]:
    """(run, reason) of every run that is not finished; to have diverged is an end, too."""
    found = [unfinished for tuning in study.tunings if (unfinished := _unsearched(tuning))]
    for path, _ in study.jobs():
        info = Run(path).info
        status = info.get("status", "not begun")
        if has_diverged(Run(path)):
            continue
        if status == "failed":
            found.append((path.name, str(info.get("error", "see logs")).strip().splitlines()[-1]))
        elif status != "finished":
            found.append((path.name, f"{status}, but nobody works on it: its worker was stopped"))
    return found


def only_diverged(study: Study) -> bool:
    """Whether all that is missing is runs that diverged, as they would again."""
    missing = [run for path, _ in study.jobs() if not (run := Run(path)).finished]
    return all(tuning.record for tuning in study.tunings) and all(map(has_diverged, missing))
