"""Makes this folder's tables and figure: python results/flickr8k/make.py FOLDER [COMMIT]

FOLDER holds finished studies made by the recipes/flickr8k-*.yaml, each in a folder of its recipe's
name without `flickr8k-` (`objectives`, `goal`, `models`), and, where there are such, cocos.json and
cocos-vsrn.json (`simgrad cocos`), judgments.csv (judge.py), mined.json (mined.py) and gpu.txt (one
`nvidia-smi` line every two seconds). COMMIT is what was run, for runs that could not know. Only
finished runs count; what is here of studies that are not in FOLDER stays.
"""

import csv
import json
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

from writing import (
    HERE,
    OBJECTIVES,
    PUBLISHED,
    Rows,
    by_label,
    figure,
    markdown,
    plan,
    published,
    read_csv,
    spread,
    write_csv,
    write_md,
)

from simgrad.studies.study import Study
from simgrad.studies.table import build_table, comma_separated
from simgrad.studies.table import markdown as study_markdown
from simgrad.training.schedule import total_epochs

COCOS = {"cocos.json": "VSE++", "cocos-vsrn.json": "VSRN"}


def main() -> None:
    folder, commit = Path(sys.argv[1]), (sys.argv[2:] or ["not recorded"])[0]
    found = {
        p.name: Study.open(p) for p in sorted(folder.iterdir()) if (p / "study.yaml").is_file()
    }
    studies = {name: study for name, study in found.items() if any(study.groups.values())}
    rows = [row for row in read_csv(HERE / "runs.csv") if row["study"] not in studies]
    rows += [row for name, study in studies.items() for row in run_rows(name, study, commit)]
    write_csv("runs.csv", sorted(rows, key=lambda row: str(row["study"])))
    for name, study in studies.items():
        table = build_table(study)
        text = study_markdown(table).removeprefix("### ")
        (HERE / f"table-{name}.md").write_text(f"# {text}")
        (HERE / f"table-{name}.csv").write_text(comma_separated(table))
    rows = [row for row in read_csv(HERE / "stopped.csv") if row["study"] not in found]
    rows += [row for name, study in found.items() for row in stopped_rows(name, study)]
    if rows:
        write_csv("stopped.csv", rows)
    else:  # all have come to their end
        (HERE / "stopped.csv").unlink(missing_ok=True)
    keep_ranks(studies)
    runs = by_label(read_csv(HERE / "runs.csv"))
    figure(runs)
    times(runs, folder / "gpu.txt")
    if (folder / "judgments.csv").is_file():
        judgments(folder / "judgments.csv")
    if (folder / "mined.json").is_file():
        mined(folder / "mined.json")
    for file in COCOS:
        if (folder / file).is_file():
            told = json.loads((folder / file).read_text())
            (HERE / file).write_text(json.dumps(told, indent=1) + "\n")
    counts({model: HERE / file for file, model in COCOS.items() if (HERE / file).is_file()})


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


def counts(files: dict[str, Path]) -> None:
    """COCOS of each model beside the paper's."""
    parts = []
    for model, path in files.items():
        rows = count_rows(model, json.loads(path.read_text()))
        parts += [f"## {model}", markdown(rows, list(rows[0]))] if rows else []
    write_md(
        "table-cocos.md",
        "What contributes to the gradient (COCOS) on Flickr8k, seed 0, best checkpoint",
        "Mean ± standard deviation over training batches of 128 captions (SmoothAP: 128 images "
        "with 640 captions). *As defined* in the paper's text; *as released* by its code.",
        "\n\n".join(parts),
    )


def count_rows(model: str, found: list[dict[str, object]]) -> Rows:
    values = {
        (str(e["objective"]).partition("(")[0], e["direction"], e["figure"], e["counting"]): (
            f"{e['mean']:.2f} ± {e['std']:.2f}"
        )
        for e in found
    }
    paper = [
        row
        for file in sorted(PUBLISHED.glob("bleeker_table[234]*.csv"))
        for row in published(file.name, dataset="f30k", method=model)
    ]
    return [
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
        if (label, way, row["metric"], "corrected") in values
    ]


def judgments(path: Path) -> None:
    groups: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    new = read_csv(path)
    judged = {line["study"] for line in new}
    lines = [line for line in read_csv(HERE / "judgments.csv") if line["study"] not in judged] + new
    write_csv("judgments.csv", lines)
    for line in lines:
        groups[line["study"], line["label"]].append(line)
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
    for (study, label), found in groups.items():
        row: dict[str, object] = {"study": study, "objective": label, "seeds": len(found)}
        for key, title in columns.items():
            values = [float(f[source.get(key, key)]) for f in found]
            if "correct" in key:
                row[title] = f"{spread([100 * v for v in values], 0)} %"
            else:
                row[title] = spread(values, 1 if "r1" in key else 3)
        rows.append(row)
    shown = mean(float(f["crowd_judged_top10"]) for found in groups.values() for f in found)
    write_md(
        "table-judgments.md",
        "What people say, Flickr8k's test split",
        "Mean ± standard deviation over seeds. Shares are of the pairs that were judged: of 10,000 "
        f"pairs of an image and one of its 10 hardest captions of other images, {shown:.0f} were "
        "shown to the crowd. Correct: at least half of the crowd said yes, or the experts' "
        "mean was 3 of 4 or more.",
        markdown(rows, list(rows[0])),
    )


def mined(path: Path) -> None:
    """Mean over the seeds of each row: ranks of true pairs, and negatives that are none."""
    shutil.copyfile(path, HERE / "mined.json")
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for entry in json.loads(path.read_text()):
        groups[entry["study"], entry["run"]].append(entry)
    ranks: Rows = []
    shares: Rows = []
    for (study, run), found in groups.items():
        who: dict[str, object] = {"study": study, "run": run, "seeds": len(found)}
        intervals = {
            name: spread([entry["cross_ranks"][name] for entry in found], 0)
            for name in found[0]["cross_ranks"]
        }
        ranks.append({**who, **intervals})
        row = dict(who)
        for way, kind, depth in (
            *(("i2t", "crowd", depth) for depth in (1, 10, 60)),
            *(("t2i", "crowd", depth) for depth in (1, 10, 60)),
            *(("i2t", "expert", depth) for depth in (10, 60)),
        ):
            told = [e[way][f"{kind}_correct_top{depth}"] for e in found]
            values = [100 * float(value) for value in told if value != ""]
            row[f"{way} {kind} {depth}"] = f"{spread(values, 0)} %" if values else "none judged"
        alike = [1000 * entry["train"]["same_words_top300"] for entry in found]
        row["same words, of 1,000"] = spread(alike, 2)
        shares.append(row)
    write_md(
        "table-mined.md",
        "What mining finds on Flickr8k",
        "Mean ± standard deviation over seeds.",
        "## True pairs by cross-retrieval rank, test split\n\n"
        "The worse of a pair's two ranks, max(5 r_i - 4, r_t), as AOQ counts it.\n\n"
        f"{markdown(ranks, list(ranks[0]))}\n\n"
        "## Mined negatives that are correct\n\n"
        "Of the 1, 10 and 60 hardest negatives of each test image (i2t) or caption (t2i) that "
        "people judged, the share they call correct: at least half of the crowd, or a mean of 3 of "
        "4 from the experts. Last: of the 300 mined for a training image, those that read word for "
        f"word like one of its own.\n\n{markdown(shares, list(shares[0]))}",
    )


def times(runs: dict[str, dict[str, Rows]], gpu: Path) -> None:
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
        line = (
            f"GPU during {gpu.parent.name}: {len(samples)} samples; {len(full)} of them at 100 % "
            f"utilisation, mean of all {mean(s[0] for s in samples):.0f} % and "
            f"{mean(s[2] for s in samples):.0f} W; most memory "
            f"{max(s[1] for s in samples):.0f} MiB."
        )
        told = [t for t in told if not t.startswith(f"GPU during {gpu.parent.name}:")] + [line]
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
