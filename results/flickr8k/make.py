"""Makes the tables and the figure of this folder from runs: python results/flickr8k/make.py FOLDER

FOLDER holds the studies `objectives` and `goal` (recipes/flickr8k-objectives.yaml, -goal.yaml)
and, where there are such, cocos.json (`simgrad cocos`), gpu.txt (one `nvidia-smi` line every two
seconds) and runs in `checks/`. Only finished runs count.
"""

import argparse
import csv
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from statistics import mean

from writing import (
    HERE,
    PAIR,
    PUBLISHED,
    TRIPLET,
    Groups,
    Rows,
    figure,
    markdown,
    one,
    plan,
    published,
    spread,
    write_csv,
    write_md,
)

from simgrad.evaluation import Difference, Ranks, compare_many
from simgrad.studies.study import Study
from simgrad.training import Run

OBJECTIVES = {
    "triplet": "Triplet",
    "triplet-sh": "TripletSH",
    "nt-xent": "NT-Xent",
    "smooth-ap": "SmoothAP",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    studies = {name: finished(folder / name) for name in ("objectives", "goal")}
    write_csv("runs.csv", list(run_rows(studies)))
    keep_ranks(studies["objectives"])
    table_a(studies["objectives"])
    table_c(studies["goal"])
    figure(studies)
    if (folder / "cocos.json").is_file():
        table_b(folder / "cocos.json")
    times(studies, folder / "gpu.txt")
    if (folder / "checks").is_dir():
        checks(folder / "checks")


def finished(folder: Path) -> Groups:
    """Label -> its finished runs, by seed."""
    labels = {
        row.label.lower().replace(" ", "-"): row.label for row in Study.open(folder).plan.rows
    }
    groups: Groups = {label: [] for label in labels.values()}
    for path in sorted((folder / "runs").iterdir()):
        run = Run.open(path)
        if run.finished:
            groups[labels[path.name.rpartition("-s")[0]]].append(run)
    return groups


def run_rows(studies: dict[str, Groups]) -> Iterable[dict[str, object]]:
    for study, groups in studies.items():
        for label, runs in groups.items():
            for run in runs:
                info = run.info
                yield {
                    "study": study,
                    "label": label,
                    "objective": info["objective"],
                    "seed": info["seed"],
                    **{name: f"{value:.6g}" for name, value in run.test.items()},
                    "best_step": info["best"]["step"],
                    "steps": info["steps"],
                    "seconds": info["seconds"],
                    "commit": info["git"] or "not recorded",
                    "data_fingerprint": info["data_fingerprint"][:12],
                }


def keep_ranks(groups: Groups) -> None:
    """The ranks of each objective's best run, chosen on validation."""
    (HERE / "ranks").mkdir(exist_ok=True)
    for runs in groups.values():
        best = max(runs, key=lambda run: run.info["best"]["rsum"])
        shutil.copyfile(best.path / "ranks.parquet", HERE / "ranks" / f"{best.name}.parquet")


def table_a(groups: Groups) -> None:
    metrics = {
        "i2t_r1": ("i2t", "R@1"),
        "i2t_r5": ("i2t", "R@5"),
        "i2t_r10": ("i2t", "R@10"),
        "i2t_map5_hits": ("i2t", "mAP@5"),
        "t2i_r1": ("t2i", "R@1"),
        "t2i_r5": ("t2i", "R@5"),
        "t2i_r10": ("t2i", "R@10"),
        "rsum": ("both", "rsum"),
    }
    compared = compare_many(ranks_of(groups), "triplet-sh")
    paper = published("bleeker_table1.csv", dataset="f30k", method="VSE++")
    rows: Rows = []
    for label, runs in groups.items():
        theirs = {
            f"paper {name}": one(paper, loss=OBJECTIVES[label], direction=way, metric=metric)
            for name, (way, metric) in metrics.items()
        }
        ours = {
            name: spread([run.test[name] for run in runs], 3 if "map" in name else 1)
            for name in metrics
        }
        rows.append(
            {
                "objective": label,
                "seeds": len(runs),
                **ours,
                **versus(compared.get(label)),
                **theirs,
            }
        )
    write_csv("table-a.csv", rows)
    columns = ["objective", "seeds", *metrics, "rsum - baseline", "p (Holm)"]
    shown = ["objective", "paper i2t_r1", "paper t2i_r1", "paper rsum"]
    write_md(
        "table-a.md",
        "Table A: four objectives, VSE++ on Flickr8k",
        "Mean ± standard deviation over seeds, test split (1,000 images). Difference to triplet-sh "
        "with its 95 % interval over seeds and images, p by Holm for three comparisons.",
        markdown(rows, columns)
        + "\n\nPublished (Bleeker & de Rijke, table 1: Flickr30k, ResNet-152; for orientation):\n\n"
        + markdown(rows, shown),
    )


def table_c(groups: Groups) -> None:
    base = "T=con P=con"
    ranks = ranks_of(groups)
    first = {label: runs[:1] for label, runs in ranks.items()}
    several = {label: runs for label, runs in ranks.items() if len(runs) > 1}
    assert all(runs[0].info["seed"] == 0 for runs in groups.values())
    alone = {m: compare_many(first, base, m) for m in ("rsum", "i2t_r1", "t2i_r1")}
    seeds = {m: compare_many(several, base, m) for m in ("rsum", "i2t_r1", "t2i_r1")}
    paper = published("goal_table3.csv", dataset="coco", method="VSE++(R152) frozen")
    rows: Rows = []
    for pair in PAIR:
        for triplet in TRIPLET:
            label = f"T={triplet} P={pair}"
            runs = groups[label]
            row: dict[str, object] = {"T": triplet, "P": pair, "seeds": len(runs)}
            for name in ("i2t_r1", "t2i_r1", "rsum"):
                row[name] = spread([run.test[name] for run in runs], 1)
            row["best epoch"] = ", ".join(f"{r.info['best']['step'] / 235:.0f}" for r in runs)
            for name, table in alone.items():
                row |= versus(table.get(label), name, ", seed 0")
            for name, table in seeds.items():
                row |= versus(table.get(label), name, ", seeds 0-1")
            for way in ("i2t", "t2i"):
                row[f"paper {way}_r1"] = one(paper, T=triplet, P=pair, direction=way, metric="R@1")
            rows.append(row)
    write_csv("table-c.csv", rows)
    columns = ["T", "P", "seeds", "i2t_r1", "t2i_r1", "rsum", "best epoch"]
    for part in (", seed 0", ", seeds 0-1"):
        columns += [f"rsum - baseline{part}", f"p (Holm){part}"]
    write_md(
        "table-c.md",
        "Table C: GOAL's fifteen cells, VSE++ on Flickr8k",
        "T: triplet weight, P: pair weights; baseline (con, con). Mean ± standard deviation over "
        "seeds. *Seed 0*: all cells, paired over images only, 14 comparisons; it does not know how "
        "far a second seed would be off. *Seeds 0-1*: the nine cells with both, over seeds and "
        "images, 8 comparisons; with two seeds a test has little power. Beside them the published "
        "R@1 (GOAL, table 3, frozen ResNet-152, COCO 5K; for orientation).",
        markdown(rows, [*columns, "paper i2t_r1", "paper t2i_r1"]),
    )


def table_b(path: Path) -> None:
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
    rows: Rows = []
    for label, loss in OBJECTIVES.items():
        for way in ("i2t", "t2i"):
            for row in paper:
                if (row["loss"], row["direction"]) == (loss, way):
                    key = (label, way, row["metric"])
                    rows.append(
                        {
                            "objective": label,
                            "direction": way,
                            "count": row["metric"],
                            "as defined": values[*key, "corrected"],
                            "as released": values[*key, "released"],
                            "paper, Flickr30k": f"{row['mean']} ± {row['std']}",
                        }
                    )
    write_md(
        "table-b.md",
        "Table B: what contributes (COCOS), VSE++ on Flickr8k, seed 0, best checkpoint",
        "Mean ± standard deviation over training batches of 128 captions (SmoothAP: 128 images "
        "with 640 captions). *As defined* in the paper's text; *as released* by its code.",
        markdown(rows, list(rows[0])),
    )


def times(studies: dict[str, Groups], gpu: Path) -> None:
    rows: Rows = []
    for study, groups in studies.items():
        for label, runs in groups.items():
            took = [run.info["seconds"] for run in runs]
            rows.append(
                {
                    "study": study,
                    "label": label,
                    "runs": len(runs),
                    "steps": runs[0].info["steps"],
                    "seconds": f"{min(took):.0f} to {max(took):.0f}",
                    "ms a step": f"{1000 * mean(took) / runs[0].info['steps']:.1f}",
                }
            )
    text = markdown(rows, list(rows[0]))
    if gpu.is_file():
        samples = [[float(cell.split()[0]) for cell in row] for row in csv.reader(gpu.open())]
        full = [sample for sample in samples if sample[0] == 100]
        text += (
            f"\n\nGPU: {len(samples)} samples; {len(full)} of them at 100 % utilisation "
            f"(mean power then {mean(s[2] for s in full):.0f} W), mean utilisation of all "
            f"{mean(s[0] for s in samples):.0f} %; "
            f"most memory {max(s[1] for s in samples):.0f} MiB."
        )
    expected = plan(studies)
    text += "\n\nExtrapolated by steps, twelve runs at once on one GPU; a lower bound, as wider "
    text += f"features and more words cost more:\n\n{markdown(expected, list(expected[0]))}"
    note = "Seconds of a run with evaluation and checkpoints, while others shared the GPU."
    write_md("times.md", "Run times", note, text)


def checks(folder: Path) -> None:
    rows: Rows = []
    runs = [run for run in map(Run.open, sorted(folder.iterdir())) if run.finished]
    for run in runs:
        rows.append(
            {
                "features": {"raw": "as they are", "norm": "unit length"}[run.name.split("-")[0]],
                "objective": str(run.info["objective"]),
                "seed": run.info["seed"],
                "val rsum by epoch": ", ".join(f"{e['val']['rsum']:.1f}" for e in run.history),
                "test rsum": f"{run.test['rsum']:.1f}",
                "commit": run.info["git"],
            }
        )
    recipe = runs[0].recipe
    note = (
        f"{recipe.model}, {recipe.epochs} epochs, lr {recipe.lr}, on a CPU: small and short, one "
        "seed; it tells how fast a run starts, not where it ends. *As they are*: VSE++ patched to "
        "leave features alone. A + after a commit: with changes not committed then."
    )
    write_md("checks.md", "Checks", note, markdown(rows, list(rows[0])))


def ranks_of(groups: Groups) -> dict[str, list[Ranks]]:
    return {
        label: [Ranks.load(run.path / "ranks.parquet") for run in runs]
        for label, runs in groups.items()
    }


def versus(found: Difference | None, metric: str = "rsum", part: str = "") -> dict[str, object]:
    p = f"p (Holm){part}" if metric == "rsum" else f"{metric} p (Holm){part}"
    if found is None:
        return {f"{metric} - baseline{part}": "", p: ""}
    gap = f"{found.difference:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"
    return {f"{metric} - baseline{part}": gap, p: f"{found.p_holm:.2g}"}


if __name__ == "__main__":
    main()
