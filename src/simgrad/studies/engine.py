"""Running a study: as many workers as help, and what a person sees meanwhile."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simgrad.core.console import progress, say
from simgrad.core.cores import cores as available
from simgrad.core.errors import InputError
from simgrad.core.extras import import_file, imported
from simgrad.core.threads import settle
from simgrad.runs.recipe import from_dict
from simgrad.runs.run import Run
from simgrad.studies.journal import optuna_or_say
from simgrad.studies.sharing import shared_gpu
from simgrad.studies.space import printed
from simgrad.studies.study import Study
from simgrad.studies.tuned import TRIALS, Tuning
from simgrad.studies.worker import _train, work
from simgrad.training.schedule import total_epochs


@dataclass(frozen=True)
class Crew:
    """How a study is worked on."""

    processes: int
    threads: int  # runs side by side within a process, on one GPU
    cores: int  # for each process
    gpus: int


def crew_for(study: Study, processes: int | None, threads: int | None) -> Crew:
    """As many workers as help on this machine."""
    import torch

    cores = available()
    left = max(1, sum(not Run(path).finished for path, _ in study.jobs()))
    if any(tuning.record is None for tuning in study.tunings):
        left = len(study.tunings) * study.tunings[0].tune.trials
    gpus = torch.cuda.device_count() if study.plan.base.device != "cpu" else 0
    if gpus:
        # At batch 128 one run leaves a GPU idle most of the time; it needs about one core.
        processes = processes or max(1, min(left, cores, 16 * gpus))
    else:
        processes = processes or min(left, cores)
    return Crew(processes, threads or 1, max(1, cores // processes), gpus)


def run_local(
    study: Study, processes: int | None = None, threads: int | None = None, quiet: bool = False
) -> None:
    """Train every run of a study that is not finished."""
    if study.complete:
        return
    if study.tunings:
        optuna_or_say()  # before workers are started
    crew = crew_for(study, processes, threads)
    environment = dict(os.environ)
    settle(environment, crew.cores)
    command = [sys.executable, "-m", "simgrad.studies.worker", str(study.path), str(crew.threads)]
    logs = study.path / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with shared_gpu(crew.gpus > 0 and crew.processes > 1) as service:
        workers = []
        for number in range(crew.processes):
            own = {**environment, **service, **_one_gpu(number, crew.gpus)}
            with open(logs / f"worker-{os.getpid()}-{number}.txt", "ab") as log:
                workers.append(subprocess.Popen(command, env=own, stdout=log, stderr=log))
        try:
            watch(study, lambda: any(worker.poll() is None for worker in workers), quiet)
        except BaseException:
            for worker in workers:
                worker.terminate()  # each run writes a checkpoint and stops
            raise
        finally:
            for worker in workers:
                worker.wait()


def _one_gpu(number: int, gpus: int) -> dict[str, str]:
    """Spread the workers over the GPUs of the machine."""
    return {"CUDA_VISIBLE_DEVICES": str(number % gpus)} if gpus > 1 else {}


def run_ray(study: Study, processes: int | None = None, quiet: bool = False) -> None:
    """Train a study on a Ray cluster, one task per run; folders must be on a shared disk."""
    try:
        import ray
    except ImportError:
        raise InputError("the ray engine needs the extra: pip install 'simgrad[ray]'.") from None
    if not ray.is_initialized():
        ray.init(ignore_reinit_error=True, log_to_driver=False, include_dashboard=False)
    gpus = 1 if ray.cluster_resources().get("GPU") else 0

    @ray.remote(num_cpus=1, num_gpus=gpus, max_retries=3)  # type: ignore[untyped-decorator]
    def one(folder: str, recipe: dict[str, Any], files: list[str]) -> str | None:
        for file in files:
            import_file(Path(file))
        problem = _train(Path(folder), from_dict(recipe, folder), {})
        return None if problem is None else str(problem)

    @ray.remote(num_cpus=1, num_gpus=gpus, max_retries=3)  # type: ignore[untyped-decorator]
    def some(folder: str, files: list[str]) -> str | None:
        for file in files:
            import_file(Path(file))
        work(Study.open(folder))
        return None

    jobs = [(p, r) for p, r in study.jobs() if not Run(p).finished]
    files = [file["path"] for file in imported()]
    if study.tunings:  # which trials there will be is not known yet: workers ask for them
        room = int(ray.cluster_resources().get("GPU" if gpus else "CPU", 1))
        count = processes or min(room, len(study.tunings) * study.tunings[0].tune.trials)
        waiting = [some.remote(str(study.path.resolve()), files) for _ in range(max(1, count))]
    else:
        waiting = [one.remote(str(p.resolve()), r.to_dict(), files) for p, r in jobs]

    def busy() -> bool:
        nonlocal waiting
        if waiting:
            _, waiting = ray.wait(waiting, num_returns=1, timeout=0.2)
        return bool(waiting)

    watch(study, busy, quiet)


def watch(study: Study, busy: Callable[[], bool], quiet: bool) -> None:
    """Show progress until nobody works any more."""
    finished: set[str] = set()
    chosen: set[str] = set()  # rows whose setting was said
    show = not quiet and sys.stderr.isatty()
    bar = progress()
    task = bar.add_task(study.title[:40], total=None)
    if show:
        bar.start()
    try:
        while True:
            working = busy()
            done, jobs = 0.0, study.jobs()  # of a tuned study, more come when settings are chosen
            epochs = sum(total_epochs(recipe) for _, recipe in jobs)
            for path, recipe in jobs:
                run = Run(path)
                if run.finished:
                    done += total_epochs(recipe)
                    if path.name not in finished:
                        finished.add(path.name)
                        if not quiet and not show:
                            _say(len(finished), len(study.plan.runs()), run)
                elif show and run.history:
                    done += float(run.history[-1]["epoch"])
            text = f"{len(finished)}/{len(study.plan.rows) * len(study.plan.seeds)} runs"
            if study.tunings and show:
                text = f"{_trials(study)}, {text}"
            elif not quiet:
                chosen = _say_chosen(study, chosen)
            bar.update(task, completed=done, total=epochs or None, description=text)
            if not working:
                return
            time.sleep(0.5)
    finally:
        if show:
            bar.stop()


def _trials(study: Study) -> str:
    """How many trials are finished, of how many."""
    planned = sum(tuning.tune.trials for tuning in study.tunings)
    folders = [path.parent for path in (study.path / TRIALS).glob("*/run.json")]
    full = [folder for folder in folders if not folder.name.endswith("-short")]
    return f"{sum(Run(folder).finished for folder in full)}/{planned} trials"


def _say_chosen(study: Study, said: set[str]) -> set[str]:
    """Say which setting was chosen, for each row once."""
    for tuning in study.tunings:
        record = None if tuning.name in said else tuning.record
        if record is not None and record["chosen"]:
            best, budget = record["chosen"], record["budget"]
            told = f"{printed(best['setting'])}  validation {best['score']:.1f}"
            say(f"{tuning.name}: {budget['trials']} trials, {told}", stderr=True)
            said = {*said, tuning.name}
    return said


def _say(count: int, total: int, run: Run) -> None:
    value = run.test.get("rsum")
    score = "" if value is None else f"  test rsum {value:.1f}"
    seconds = run.info.get("seconds", 0)
    say(f"[{count}/{total}] {run.name}{score}  {seconds:.0f} s", stderr=True)


def _unsearched(tuning: Tuning) -> tuple[str, str] | None:
    """A row without a setting, and why."""
    record = tuning.record
    if record is not None:
        return None if record["chosen"] else (tuning.name, "every trial of it diverged")
    for trial in tuning.search.trials():
        info = Run(tuning.run_of(trial, "full")[0]).info
        if trial.state == "running" and info.get("status") == "failed":
            return tuning.name, f"a trial failed: {str(info.get('error')).strip().splitlines()[-1]}"
    return tuning.name, "its search was stopped"


def failures(study: Study) -> list[tuple[str, str]]:
    """(run, reason) of every run that is not finished."""
    found = [unfinished for tuning in study.tunings if (unfinished := _unsearched(tuning))]
    for path, _ in study.jobs():
        info = Run(path).info
        status = info.get("status", "not begun")
        if status == "failed":
            found.append((path.name, str(info.get("error", "see logs")).strip().splitlines()[-1]))
        elif status != "finished":
            found.append((path.name, f"{status}, but nobody works on it: its worker was stopped"))
    return found
