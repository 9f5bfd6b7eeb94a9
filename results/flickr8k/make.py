"""Makes this folder's tables and figure: python results/flickr8k/make.py FOLDER [COMMIT]

FOLDER holds finished studies made by the recipes/flickr8k-*.yaml, each in a folder of its recipe's
name without `flickr8k-` (`objectives`, `goal`, `models`), and, where there are such, cocos.json and
cocos-vsrn.json (`simgrad cocos`), judgments.csv (judge.py), mined.json (mined.py) and gpu.txt (one
`nvidia-smi` line every two seconds). No weights are needed. COMMIT is what was run, for runs that
could not know. Only finished runs count. What is here of a study in FOLDER is replaced whole,
unless FOLDER has fewer of the same rows, seeds and steps (a part run again, to be judged); what is
here of other studies stays.
"""

import csv
import json
import re
import shutil
import sys
from pathlib import Path
from statistics import mean

from tables import COCOS, counts, judgments, mined
from writing import HERE, Rows, by_label, figure, markdown, plan, read_csv, write_csv, write_md

from simgrad.core.tables import csv_text
from simgrad.core.tables import markdown as table_markdown
from simgrad.studies.study import Study
from simgrad.studies.table import build_table, printed, records
from simgrad.training.schedule import total_epochs


def main() -> None:
    folder, commit = Path(sys.argv[1]), (sys.argv[2:] or ["not recorded"])[0]
    found = whole_studies(folder)
    studies = {name: study for name, study in found.items() if any(study.groups.values())}
    rows = [row for row in read_csv(HERE / "runs.csv") if row["study"] not in studies]
    rows += [row for name, study in studies.items() for row in run_rows(name, study, commit)]
    write_csv("runs.csv", sorted(rows, key=lambda row: str(row["study"])))
    for name, study in studies.items():
        table = build_table(study)
        text = table_markdown([printed(table)]).removeprefix("### ")
        (HERE / f"table-{name}.md").write_text(f"# {text}")
        (HERE / f"table-{name}.csv").write_text(csv_text(records(table)))
    rows = [row for row in read_csv(HERE / "stopped.csv") if row["study"] not in found]
    rows += [row for name, study in found.items() for row in stopped_rows(name, study)]
    if rows:
        write_csv("stopped.csv", rows)
    else:  # all have come to their end
        (HERE / "stopped.csv").unlink(missing_ok=True)
    keep_ranks(studies)
    runs = by_label(read_csv(HERE / "runs.csv"))
    figure(runs)
    times(runs, folder / "gpu.txt", set(studies))
    if (folder / "judgments.csv").is_file():
        judgments(folder / "judgments.csv")
    if (folder / "mined.json").is_file():
        mined(folder / "mined.json")
    for file in COCOS:
        if (folder / file).is_file():
            told = json.loads((folder / file).read_text())
            (HERE / file).write_text(json.dumps(told, indent=1) + "\n")
    counts({model: HERE / file for file, model in COCOS.items() if (HERE / file).is_file()})


def whole_studies(folder: Path) -> dict[str, Study]:
    """The studies of a folder, by name, but for those of which this one has more of the same."""
    recorded: dict[str, set[tuple[str, str, int]]] = {}
    for row in read_csv(HERE / "runs.csv"):
        run = row["label"], row["seed"], int(row["steps"])
        recorded.setdefault(row["study"], set()).add(run)
    found = {}
    for path in sorted(folder.iterdir()):
        if not (path / "study.yaml").is_file():
            continue
        study = Study.open(path)
        there = {
            (label, str(run.info["seed"]), int(run.info["steps"]))
            for label, runs in study.groups.items()
            for run in runs
        }
        here = recorded.get(path.name, set())
        # Rows may have other names by now: seeds and steps alone tell a part, too.
        if there < here or {run[1:] for run in there} < {run[1:] for run in here}:
            print(f"{path}: left out, it is a part of what runs.csv has", file=sys.stderr)
            continue
        found[path.name] = study
    return found


def run_rows(name: str, study: Study, commit: str) -> Rows:
    return [
        {
            "study": name,
            "label": label,
            "model": run.recipe.model,
            "objective": run.recipe.objective,
            "seed": run.info["seed"],
            **{metric: f"{value:.6g}" for metric, value in run.test.items()},
            "best_step": run.info["best"]["step"],
            "val_rsum": run.info["best"]["rsum"],
            "steps": run.info["steps"],
            "seconds": run.info["seconds"],
            "commit": run.info["git"] or commit,
            "data_fingerprint": run.info["data_fingerprint"][:12],
        }
        for label, runs in study.groups.items()
        for run in runs
    ]


def stopped_rows(name: str, study: Study) -> Rows:
    """Runs that were stopped on the way: what they were worth on validation until then."""
    rows: Rows = []
    for run in study.runs:
        if run.finished or not run.history:
            continue
        best = max(run.history, key=lambda entry: entry["val"]["rsum"])
        rows.append(
            {
                "study": name,
                "run": run.name,
                "objective": run.recipe.objective,
                "epochs": f"{run.history[-1]['epoch']:g} of {total_epochs(run.recipe)}",
                "best_val_rsum": f"{best['val']['rsum']:.1f}",
                "best_epoch": f"{best['epoch']:g}",
                "val_rsum": " ".join(f"{entry['val']['rsum']:.1f}" for entry in run.history),
                "commit": run.info.get("git") or "",
            }
        )
    return rows


def keep_ranks(studies: dict[str, Study]) -> None:
    """The per-query ranks of each row's best run, chosen on validation."""
    for name, study in studies.items():
        shutil.rmtree(HERE / "ranks" / name, ignore_errors=True)
        (HERE / "ranks" / name).mkdir(parents=True)
        for runs in study.groups.values():
            if runs:
                best = max(runs, key=lambda run: run.info["best"]["rsum"])
                target = HERE / "ranks" / name / f"{best.name}.parquet"
                shutil.copyfile(best.path / "ranks.parquet", target)


def times(runs: dict[str, dict[str, Rows]], gpu: Path, studies: set[str]) -> None:
    rows: Rows = []
    for name, labels in runs.items():
        for label, found in labels.items():
            took = [float(run["seconds"]) for run in found]
            steps = int(found[0]["steps"])
            rows.append(
                {
                    "study": name,
                    "label": label,
                    "runs": len(found),
                    "steps": steps,
                    "seconds": f"{min(took):.0f} to {max(took):.0f}",
                    "ms a step": f"{1000 * mean(took) / steps:.1f}",
                }
            )
    text = markdown(rows, list(rows[0]))
    before = HERE / "times.md"
    told = [t for t in before.read_text().splitlines() if t.startswith("GPU ")]  # of other studies
    if gpu.is_file():
        samples = [[float(cell.split()[0]) for cell in row] for row in csv.reader(gpu.open())]
        full = [sample for sample in samples if sample[0] == 100]
        names = " and ".join(f"`{name}`" for name in sorted(studies))
        line = (
            f"GPU during {names}: {len(samples)} samples; {len(full)} of them at 100 % "
            f"utilisation, mean of all {mean(s[0] for s in samples):.0f} % and "
            f"{mean(s[2] for s in samples):.0f} W; most memory "
            f"{max(s[1] for s in samples):.0f} MiB."
        )
        # A line goes when all that it names was run again.
        told = [t for t in told if not set(re.findall("`(.+?)`", t)) <= studies] + [line]
    text += "".join(f"\n\n{line}" for line in told)
    expected = plan(runs)
    text += (
        "\n\nExtrapolated by steps, each study with the epochs of its recipe and as many runs at "
        "once on one GPU; a lower bound, as wider features and more words cost more:\n\n"
    )
    text += markdown(expected, list(expected[0]))
    note = "Seconds of a run with evaluation and checkpoints, while others shared the GPU."
    write_md("times.md", "Run times", note, text)


if __name__ == "__main__":
    main()
