"""Makes this folder's tables and figure: python results/flickr8k/make.py FOLDER [COMMIT]

FOLDER holds finished studies made by the recipes/flickr8k-*.yaml, each in a folder of its recipe's
name without `flickr8k-` (`objectives`, `goal`, `models`), and, where there are such, cocos.json
(`simgrad cocos`), judgments.csv (judge.py) and gpu.txt (one `nvidia-smi` line every two seconds).
COMMIT is what was run, for runs that could not know. Only finished runs count.
"""

import csv
import json
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean

from writing import (
    HERE,
    OBJECTIVES,
    PUBLISHED,
    Rows,
    figure,
    markdown,
    plan,
    published,
    spread,
    write_csv,
    write_md,
)

from simgrad.studies.study import Study
from simgrad.studies.table import build_table, comma_separated
from simgrad.studies.table import markdown as study_markdown


def main() -> None:
    folder, commit = Path(sys.argv[1]), (sys.argv[2:] or ["not recorded"])[0]
    studies = {
        path.name: Study.open(path)
        for path in sorted(folder.iterdir())
        if (path / "study.yaml").is_file()
    }
    write_csv("runs.csv", [row for name, s in studies.items() for row in run_rows(name, s, commit)])
    for name, study in studies.items():
        table = build_table(study)
        text = study_markdown(table).removeprefix("### ")
        (HERE / f"table-{name}.md").write_text(f"# {text}")
        (HERE / f"table-{name}.csv").write_text(comma_separated(table))
    keep_ranks(studies)
    figure(studies)
    if (folder / "cocos.json").is_file():
        counts(folder / "cocos.json")
    if (folder / "judgments.csv").is_file():
        judgments(folder / "judgments.csv")
    times(studies, folder / "gpu.txt")


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


def keep_ranks(studies: dict[str, Study]) -> None:
    """The per-query ranks of each row's best run, chosen on validation."""
    shutil.rmtree(HERE / "ranks", ignore_errors=True)
    for name, study in studies.items():
        (HERE / "ranks" / name).mkdir(parents=True)
        for runs in study.groups.values():
            if runs:
                best = max(runs, key=lambda run: run.info["best"]["rsum"])
                target = HERE / "ranks" / name / f"{best.name}.parquet"
                shutil.copyfile(best.path / "ranks.parquet", target)


def counts(path: Path) -> None:
    found = json.loads(path.read_text())
    (HERE / "cocos.json").write_text(json.dumps(found, indent=1) + "\n")
    paper = [
        row
        for file in sorted(PUBLISHED.glob("bleeker_table[234]*.csv"))
        for row in published(file.name, dataset="f30k", method="VSE++")
    ]
    values = {
        (e["objective"].partition("(")[0], e["direction"], e["figure"], e["counting"]): (
            f"{e['mean']:.2f} ± {e['std']:.2f}"
        )
        for e in found
    }
    rows: Rows = [
        {
            "objective": label,
            "direction": way,
            "count": row["metric"],
            "as defined": values[label, way, row["metric"], "corrected"],
            "as released": values[label, way, row["metric"], "released"],
            "paper, Flickr30k": f"{row['mean']} ± {row['std']}",
        }
        for label, loss in OBJECTIVES.items()
        for way in ("i2t", "t2i")
        for row in paper
        if (row["loss"], row["direction"]) == (loss, way)
    ]
    write_md(
        "table-cocos.md",
        "What contributes to the gradient (COCOS), VSE++ on Flickr8k, seed 0, best checkpoint",
        "Mean ± standard deviation over training batches of 128 captions (SmoothAP: 128 images "
        "with 640 captions). *As defined* in the paper's text; *as released* by its code.",
        markdown(rows, list(rows[0])),
    )


def judgments(path: Path) -> None:
    shutil.copyfile(path, HERE / "judgments.csv")
    groups: dict[str, list[dict[str, str]]] = defaultdict(list)
    with path.open() as file:
        for row in csv.DictReader(file):
            groups[row["label"]].append(row)
    columns = {
        "expert_kendall_c": "Kendall's tau-c, experts",
        "expert_kendall_c_others": "... own captions left out",
        "i2t_r1 of approved": "i2t R@1, approved captions count",
        "t2i_r1 of approved": "t2i R@1, approved captions count",
        "crowd_correct_top1": "hardest caption: crowd says correct",
        "crowd_correct_top10": "... of the 10 hardest",
        "crowd_correct_top50": "... of the 50 hardest",
        "expert_correct_top10": "... of the 10 hardest, experts",
    }
    source = {"i2t_r1 of approved": "i2t_crowd_r1", "t2i_r1 of approved": "t2i_crowd_r1"}
    rows: Rows = []
    for label, found in groups.items():
        row: dict[str, object] = {"objective": label, "seeds": len(found)}
        for key, title in columns.items():
            values = [float(f[source.get(key, key)]) for f in found]
            if "correct" in key:
                row[title] = f"{spread([100 * v for v in values], 0)} %"
            else:
                row[title] = spread(values, 1 if "r1" in key else 3)
        rows.append(row)
    judged = mean(float(f["crowd_judged_top10"]) for found in groups.values() for f in found)
    write_md(
        "table-judgments.md",
        "What people say, VSE++ on Flickr8k's test split",
        "Mean ± standard deviation over seeds. Shares are of the pairs that were judged: of 10,000 "
        f"pairs of an image and one of its 10 hardest captions of other images, {judged:.0f} were "
        "shown to the crowd. Correct: at least half of the crowd said yes, or the experts' "
        "mean was 3 of 4 or more.",
        markdown(rows, list(rows[0])),
    )


def times(studies: dict[str, Study], gpu: Path) -> None:
    rows: Rows = []
    for name, study in studies.items():
        for label, runs in study.groups.items():
            took = [run.info["seconds"] for run in runs]
            if took:
                steps = runs[0].info["steps"]
                rows.append(
                    {
                        "study": name,
                        "label": label,
                        "runs": len(runs),
                        "steps": steps,
                        "seconds": f"{min(took):.0f} to {max(took):.0f}",
                        "ms a step": f"{1000 * mean(took) / steps:.1f}",
                    }
                )
    text = markdown(rows, list(rows[0]))
    if gpu.is_file():
        samples = [[float(cell.split()[0]) for cell in row] for row in csv.reader(gpu.open())]
        full = [sample for sample in samples if sample[0] == 100]
        text += (
            f"\n\nGPU during `objectives` and `goal`: {len(samples)} samples; {len(full)} of them "
            f"at 100 % utilisation (mean power then {mean(s[2] for s in full):.0f} W), mean of all "
            f"{mean(s[0] for s in samples):.0f} %; most memory {max(s[1] for s in samples):.0f} "
            "MiB."
        )
    expected = plan(studies)
    text += "\n\nExtrapolated by steps, as many runs at once on one GPU; a lower bound, as wider "
    text += f"features and more words cost more:\n\n{markdown(expected, list(expected[0]))}"
    note = "Seconds of a run with evaluation and checkpoints, while others shared the GPU."
    write_md("times.md", "Run times", note, text)


if __name__ == "__main__":
    main()
