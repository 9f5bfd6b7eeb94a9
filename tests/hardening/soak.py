"""Everything of this folder for as long as it takes, with one summary at the end: `make soak`.

python -m tests.hardening.soak [--kills 200] [--minutes 10] [--flips 300] [--load-minutes 5]
    [--jobs 2]

--kills 0, --minutes 0 and --load-minutes 0 leave out kills, fuzzing and load. Fuzzing takes its
minutes whatever else is done: so kills, bad input and flipped bits go on beside it, and only the
load, whose response times are measured, has the machine for itself.
"""

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from simgrad.cli.program import main as simgrad_command
from simgrad.core.errors import InputError
from simgrad.runs.environment import environment
from tests.data.damages_of_tables import DAMAGES
from tests.hardening.bad_inputs import attempts
from tests.hardening.bad_requests import REQUESTS
from tests.hardening.bad_texts import COMMANDS
from tests.hardening.commands import Commands
from tests.hardening.flips import Flips
from tests.hardening.fuzzing import TARGETS, fuzz_for
from tests.hardening.fuzzing_requests import lab_page
from tests.hardening.jobs import clock_job, other_jobs, run_job, study_job
from tests.hardening.kills import Torment
from tests.hardening.load import serve_under_load
from tests.hardening.test_timing import compare_timings

# Share of all kills; the rest are of whole commands.
SHARES = {"run": 0.2, "clock": 0.05, "study": 0.2, "features": 0.1, "mining": 0.1, "index": 0.1,
          "import": 0.05, "report": 0.05}  # fmt: skip


class Soak:
    """Counts, and what was lost."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts: Counter[str] = Counter()
        self.lines: list[str] = []
        self.losses: list[str] = []
        self.finished = folder / "finished"
        run_job().work(self.finished)

    def part(self, name: str, work: Callable[[], object]) -> None:
        """One part; a failure is a loss, and the others go on."""
        started = time.monotonic()
        try:
            work()
            told = "ok"
        except Exception as error:
            traceback.print_exc()
            said = " ".join(str(error).split())[:300]
            self.losses.append(f"{name}: {type(error).__name__}: {said}")
            told = "LOST"
        print(f"{name}: {told}, {time.monotonic() - started:.0f} s", flush=True)

    def kills(self, total: int) -> None:
        left = total
        for job in (run_job(), clock_job(), study_job(), *other_jobs(self.finished)):
            wanted = max(1, round(SHARES[job.name] * total))
            torment: list[Torment] = []

            def work(job=job, wanted=wanted, torment=torment) -> None:  # type: ignore[no-untyped-def]
                torment.append(Torment(job, self.folder / f"kill-{job.name}"))
                torment[0](wanted)

            self.part(f"kill {job.name}, {wanted} times", work)
            self.counts["kills"] += sum(t.kills for t in torment)
            left -= wanted
        self.part("kill a run at every rename", self._renames)
        self.part("kill a tuned study with 1, 2 and 3 workers, 5 times each", self._tuned)
        for kind, wanted in (("train", left - left // 2), ("study", left // 2)):
            if wanted > 0:
                self.part(f"kill `simgrad {kind}`, {wanted} times", self._commands(kind, wanted))

    def _renames(self) -> None:
        torment = Torment(run_job(epochs=1), self.folder / "renames")
        torment.at_every_rename()
        self.counts["kills"] += torment.kills

    def _tuned(self) -> None:
        self.counts["kills"] += compare_timings("tpe", self.folder / "tuned", 1)

    def _commands(self, kind: str, wanted: int) -> Callable[[], None]:
        def work() -> None:
            commands = Commands(kind, self.folder / f"command-{kind}")
            commands(wanted)
            self.counts["kills"] += commands.kills

        return work

    def inputs(self) -> None:
        for number, (name, attempt) in enumerate(attempts().items()):
            place = self.folder / f"input-{number}"
            place.mkdir()
            self._refused(name, lambda a=attempt, p=place: a(p, self.finished))
        for number, damage in enumerate(DAMAGES):
            place = self.folder / f"damage-{number}"
            place.mkdir()
            self._refused(damage.name, lambda d=damage, p=place: d.make(p))
        for name, words in COMMANDS.items():
            silent, code = io.StringIO(), None
            with contextlib.redirect_stderr(silent), contextlib.redirect_stdout(silent):
                try:
                    simgrad_command(words)
                except SystemExit as left:
                    code = left.code
            assert code == 2, f"{name}: exit code {code}"
            self.counts["inputs"] += 1
        for name, bad in REQUESTS.items():
            answer = lab_page().request(bad.method, bad.path, content=bad.body, headers=bad.headers)
            assert 400 <= answer.status_code < 500, f"{name}: {answer.status_code}"
            self.counts["inputs"] += 1

    def _refused(self, name: str, attempt: Callable[[], object]) -> None:
        try:
            attempt()
        except InputError:
            self.counts["inputs"] += 1
            return
        raise AssertionError(f"{name}: was not refused")

    def fuzz(self, fuzzing: subprocess.Popen[str]) -> None:
        """What came of every parser; a line each, as it was written."""
        assert fuzzing.stdout is not None
        told = dict(json.loads(line) for line in fuzzing.stdout)
        fuzzing.wait()
        for name in TARGETS:

            def work(name=name) -> None:  # type: ignore[no-untyped-def]
                count = told.get(name, "its process ended without a word")
                assert isinstance(count, int), count
                self.counts["fuzz"] += count
                self.lines.append(f"  {name}: {count:,} executions")

            self.part(f"fuzz {name}", work)

    def flips(self, count: int) -> None:
        with contextlib.redirect_stdout(io.StringIO()):  # what computing features prints
            flips = Flips(self.folder / "flips")
        flips(count)
        self.counts["flips"] += count
        self.lines.append(f"flipped bits: {flips.noticed} noticed, {flips.harmless} harmless")

    def load(self, minutes: float) -> None:
        served = serve_under_load(60 * minutes)
        attacks = ", ".join(f"{name} {count:,}" for name, count in sorted(served.attacks.items()))
        self.counts["requests"] += served.requests
        self.counts["kills"] += served.decoders_killed + 1
        before, most = served.mebibytes
        self.lines += [
            f"server with 64 clients: p50 {served.p50:.2f} s, p99 {served.p99:.2f} s",
            f"  its memory: {before:.0f} MiB before, {most:.0f} MiB at most",
            f"  attacks on it: {attacks}; decoders killed: {served.decoders_killed}",
            f"  uploads given up because their decoder was killed twice: {served.declined}",
        ]
        assert not served.failures, served.failures
        assert most < before + 500, f"{most:.0f} MiB"

    def summary(self) -> str:
        lines = [
            f"commit:           {environment()['git']}",
            f"kills survived:   {self.counts['kills']:,}",
            f"inputs tried:     {self.counts['inputs']:,}",
            f"fuzz executions:  {self.counts['fuzz']:,}",
            f"requests served:  {self.counts['requests']:,}",
            *self.lines,
            f"losses: {len(self.losses)}",
            *(f"  {loss}" for loss in self.losses),
        ]
        return "\n".join(lines)


def start_fuzzing(folder: str, minutes: float, jobs: int) -> subprocess.Popen[str]:
    """Every parser for so long, in a process of its own: forks want one without threads here."""
    words = [sys.executable, "-m", "tests.hardening.soak", "--fuzz-only", "--minutes", str(minutes)]
    places = filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")))
    return subprocess.Popen(
        [*words, "--jobs", str(jobs)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        stdout=subprocess.PIPE,
        text=True,
    )


def fuzz_all(minutes: float, jobs: int) -> None:
    """A few parsers side by side; prints what came of each, as [name, count or fault]."""
    warnings.simplefilter("ignore")
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
        futures = {name: pool.submit(fuzz_for, name, 60 * minutes) for name in TARGETS}
        for name, future in futures.items():
            fault = future.exception()
            print(json.dumps([name, str(fault) if fault else future.result()]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=10.0, help="of fuzzing, for each parser")
    parser.add_argument("--flips", type=int, default=300)
    parser.add_argument("--load-minutes", type=float, default=5.0)
    parser.add_argument("--jobs", type=int, default=2, help="parsers fuzzed side by side")
    parser.add_argument("--fuzz-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fuzz_only:
        fuzz_all(options.minutes, options.jobs)
        return
    started = time.monotonic()
    warnings.simplefilter("ignore")  # of bad input there are many
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        fuzzing = None
        if options.minutes > 0:
            fuzzing = start_fuzzing(folder, options.minutes, options.jobs)
        soak = Soak(Path(folder))
        if options.kills > 0:
            soak.kills(options.kills)  # first: forks want a process without threads here too
        soak.part("bad input", soak.inputs)
        soak.part(f"{options.flips} flipped bits", lambda: soak.flips(options.flips))
        if fuzzing is not None:
            soak.fuzz(fuzzing)
        if options.load_minutes > 0:
            soak.part("server under load", lambda: soak.load(options.load_minutes))
        os.chdir("/")
    print(f"\n{soak.summary()}\n{(time.monotonic() - started) / 60:.1f} minutes")
    sys.exit(1 if soak.losses else 0)


if __name__ == "__main__":
    main()
