"""A study on several machines: raylets of one machine, which Ray takes for machines."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import simgrad
from simgrad.cli.program import main
from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.runs.environment import HOST
from simgrad.studies.check import check_study
from simgrad.studies.cluster import _crew, _work, run_ray
from simgrad.studies.engine import run_local, train_study
from simgrad.studies.plan import read_plan
from simgrad.studies.study import Study
from simgrad.studies.table import build_table, write_tables
from tests.studies.test_study import SMALL, plan


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head that computes nothing, and room for machines of one core each."""
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def several(folder: Path, seeds: int = 4, epochs: int = 6) -> Study:
    recipe = {**SMALL["recipe"], "epochs": epochs}
    return Study.create(plan(recipe=recipe, seeds=seeds), folder)


@pytest.mark.slow
def test_a_lost_machine_costs_no_run(
    machines: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The command of docs/scale.md: two machines share the runs, and one is killed at work."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    file, command, page = on_the_page()
    Path("small.yaml").write_text(file)
    lost = machines.add_node(num_cpus=1)
    kept = machines.add_node(num_cpus=1)
    training: list[str] = []

    def kill() -> None:
        """Once both machines have begun a run."""
        while not training:
            runs = [read_json(file) for file in Path("study/runs").glob("*/run.json")]
            hosts = {name for r in runs if r["status"] == "running" for name in r["hosts"]}
            if len(hosts) == 2:
                training.extend(hosts)
            time.sleep(0.1)
        machines.remove_node(lost, allow_graceful=False)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert not ended.value.code
    killer.join(10)
    said = capsys.readouterr()
    assert alike(f"{said.err}\n{said.out}") == alike(page)
    study = Study.open(Path("study"))
    assert [run.finished for run in study.runs] == [True] * 6
    hosts = [run.info["hosts"] for run in study.runs]
    assert {host for told in hosts for host in told} == set(training)
    survivor = next(host for host in training if kept.node_id.startswith(host.split()[-1]))
    assert sum(told[-1] == survivor for told in hosts) > 3
    assert [len(told) for told in hosts if len(told) > 1] == [2]  # one run changed machines
    assert check_study(study).problems == []
    alone = Study.create(read_plan("small.yaml"), tmp_path / "alone")
    train_study(alone, processes=1, quiet=True)
    for one, other in zip(study.runs, alone.runs, strict=True):
        assert one.test == other.test


def on_the_page() -> tuple[str, list[str], str]:
    """The study file and the command that docs/scale.md shows, and what it prints there."""
    page = Path(__file__).parents[2].joinpath("docs", "scale.md").read_text(encoding="utf-8")
    file = re.search(r"```yaml\n(.+?)```", page, re.DOTALL)
    block = re.search(r"```console\n\$ RAY_ADDRESS=\S+ simgrad (.+?)\n(.+?)```", page, re.DOTALL)
    assert file is not None
    assert block is not None
    return file[1], block[1].split(), block[2]


def alike(said: str) -> list[str]:
    """Which run ends first, where, and after how long, is luck; figures depend on the processor."""
    slow = re.compile(r"others compute on this machine|\d+ of \d+ trainings")  # on a busy machine
    lines = (re.sub(r" +", " ", line).strip() for line in said.splitlines() if not slow.match(line))
    lines = (re.sub(r"( on|then) [^,]+", r"\1 MACHINE", line) for line in lines if line)
    return sorted(re.sub(r"(nt-xent|triplet)|[-+]?\d[\d.]*", "N", line) for line in lines)


@pytest.mark.slow
def test_what_no_machine_can_do_is_refused(machines: Any, tmp_path: Path) -> None:
    """It would wait for ever."""
    study = several(tmp_path / "study", seeds=1)
    with pytest.raises(InputError, match=r"no machine of the Ray cluster.*offers 0"):
        run_ray(study, quiet=True)


def test_without_a_cluster_at_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")

    def fails(**_: Any) -> None:
        raise ConnectionError("nobody answers")

    monkeypatch.setattr(ray, "init", fails)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with pytest.raises(InputError, match=r"RAY_ADDRESS=10\.0\.0\.1:6379: nobody answers"):
        run_ray(several(tmp_path / "study"), quiet=True)


@pytest.mark.parametrize(
    ("cores", "processes", "each"),
    [((8, 8), 3, 4), ((8, 8), 2, 8), ((1, 1), 2, 1), ((2, 0), 5, 1), ((16, 1), 2, 8)],
)
def test_cores_of_a_worker_fit_on_a_machine(
    cores: tuple[int, ...],
    processes: int,
    each: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    crew = _crew(several(tmp_path / "study"), processes, [{"CPU": float(c)} for c in cores])
    assert (crew.processes, crew.cores) == (processes, each)


def test_a_machine_that_lacks_the_disk_or_the_version_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOST, "node-7")
    study = several(tmp_path / "study")
    here, version = str(tmp_path), simgrad.__version__
    told = _work(str(tmp_path / "elsewhere"), [], "", here, version, 1)
    assert told is not None
    assert told.startswith("the machine node-7 does not see")
    told = _work(str(study.path), [], "", here, "0.0.1", 1)
    assert told is not None
    assert "0.0.1 began the study" in told


def test_a_run_names_its_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOST, "node-1")
    study = several(tmp_path / "study", seeds=1, epochs=1)
    run_local(study, processes=1, quiet=True)
    assert [run.info["hosts"] for run in study.runs] == [["node-1"]] * 2


def test_parts_of_a_study_are_put_together(tmp_path: Path) -> None:
    """Without a shared disk: each machine trains some rows; the folders of runs are copied."""
    rows = [{"label": name, "set": {"objective": name}} for name in ("triplet", "nt-xent")]
    whole = plan(grid={}, rows=rows, seeds=1)
    for row in rows:
        part = plan(grid={}, rows=[row], seeds=1, baseline=row["label"])
        made = Study.create(part, tmp_path / f"part-{row['label']}")
        run_local(made, processes=1, quiet=True)
    study = Study.create(whole, tmp_path / "whole")
    for row in rows:
        shutil.copytree(tmp_path / f"part-{row['label']}" / "runs", study.path / "runs",
                        dirs_exist_ok=True)  # fmt: skip
    done = Study.open(study.path)
    assert done.complete
    write_tables(build_table(done), done.path)
    assert check_study(done).problems == []


SRUN = f"""#!{sys.executable}
import os, subprocess, sys
count = int(os.environ["SLURM_NTASKS"])
own = [dict(os.environ, SIMGRAD_HOST=f"n{{number}}") for number in range(count)]
ones = [subprocess.Popen(sys.argv[2:], env=each) for each in own]
sys.exit(max(one.wait() for one in ones))
"""


@pytest.mark.long
def test_the_slurm_script(tmp_path: Path) -> None:
    """With an srun that starts its command twice, as Slurm does on two machines."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "srun").write_text(SRUN)
    command = f'#!/bin/sh\nexec {sys.executable} -m simgrad.cli "$@"\n'
    (tools / "simgrad").write_text(command)
    for tool in tools.iterdir():
        tool.chmod(0o755)
    file, folder = tmp_path / "small.yaml", tmp_path / "study"
    recipe = {**SMALL["recipe"], "epochs": 10}
    file.write_text(json.dumps({**SMALL, "recipe": recipe, "seeds": 4}))
    script = Path(__file__).parents[2] / "examples" / "slurm.sh"
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "SLURM_NTASKS": "2"}
    done = subprocess.run(
        ["bash", str(script), str(file), "--output", str(folder)], env=environment,
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    study = Study.open(folder)
    assert [run.finished for run in study.runs] == [True] * 8
    hosts = [host for run in study.runs for host in run.info["hosts"]]
    assert set(hosts) == {"n0", "n1"}
    assert (study.path / "table.md").is_file()
    refused = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=False)
    assert "sbatch" in refused.stderr
