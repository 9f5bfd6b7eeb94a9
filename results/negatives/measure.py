"""How well are false negatives found? Human judgments of Flickr8k, exact semantics of `scenes`.

    python results/negatives/measure.py flickr8k RUN... --data FLICKR8K --features FEATURES --write
    python results/negatives/measure.py scenes RUN...

Flickr8k: pairs that people judged, own pairs left out. The judgments are all on test images: what
is learned is learned on the first 500 of the 1,000, and reported on the other 500. `scenes`: the
candidates of the test split, first and second half of the images. Right: half of the crowd said
yes; experts' mean at least 3 of 4; exact semantics. Intervals: 95 %, images drawn 200 times.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

import simgrad
from simgrad.data.judgments import read_judgments
from simgrad.evaluation.judgments import pair_similarities
from simgrad.mining.evidence import DEPTH, NAMES, Probable, candidates, evidence
from simgrad.retriever.false_negatives import views_of

HERE = Path(__file__).parent
DRAWS = 200
RIGHT = {"crowd": 0.5, "expert": 2 / 3}


def average_precision(right, score):
    ordered = right[np.argsort(-score, kind="stable")]
    return float((np.cumsum(ordered) / np.arange(1, len(ordered) + 1))[ordered].mean())


def area(right, score):
    ranks, n = rankdata(score), right.sum()
    return float((ranks[right].sum() - n * (n + 1) / 2) / (n * (len(right) - n)))


def precision(k):
    return lambda right, score: float(right[np.argsort(-score, kind="stable")[:k]].mean())


def calibration_error(right, probability):
    """Mean distance of probability and share of right pairs over ten bins of equal size."""
    order = np.array_split(np.argsort(probability), 10)
    gaps = [abs(probability[b].mean() - right[b].mean()) * len(b) for b in order]
    return float(sum(gaps) / len(right))


def measures(largest):
    found = {"AP": average_precision, "AUC": area}
    found |= {f"P@{k:,}": precision(k) for k in (100, 1000, 10_000) if k <= largest}
    return found


def interval(measure, right, score, images):
    """Images are drawn, each with all its pairs."""
    random = np.random.default_rng(0)
    order = np.argsort(images, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(images[order])) + 1)
    values = []
    for _ in range(DRAWS):
        rows = np.concatenate([groups[g] for g in random.integers(0, len(groups), len(groups))])
        if 0 < right[rows].sum() < len(rows):
            values.append(measure(right[rows], score[rows]))
    return np.quantile(values, [0.025, 0.975]).tolist()


def rivals(view, split, pairs):
    """What others do: a threshold on one model's similarity; sentence-transformers' margins."""
    images, captions = pairs.T
    score = pair_similarities(view.scores, images, captions)
    weakest = np.full(split.num_images, np.inf)
    np.minimum.at(weakest, split.image_of_caption, view.own)

    def relative(own):  # a pair is dropped where this is above -relative_margin
        return (score - own) / np.maximum(np.abs(own), 1e-6)

    return {
        "similarity, one model": score,
        "absolute margin, caption's own pair": score - view.own[captions],
        "relative margin, caption's own pair": relative(view.own[captions]),
        "relative margin, image's weakest pair": relative(weakest[images]),
    }


def report(name, learn, show, views, split):
    """`learn` and `show`: (pairs, right); the table of the second."""
    one, every = views[:1], views
    (first, known), (pairs, right) = learn, show
    lines, fitted = [], None
    ways = {f"ours, {len(every)} models": every, "ours, one model": one}
    scores, chances = {}, {}
    for label, used in ways.items():
        if label in scores or (len(every) == 1 and "models" in label):
            continue
        shown = evidence(used, split, first)
        probable = Probable.learned(tuple(NAMES), shown, known, name)
        fitted = fitted or probable
        scores[label] = chances[label] = probable(evidence(used, split, pairs))
    before, after = rivals(views[0], split, first), rivals(views[0], split, pairs)
    for label, score in after.items():
        scores[label] = score
        alone = Probable.learned(("score",), before[label][:, None], known, name)
        chances[label] = alone(score[:, None])
    for label, score in scores.items():
        line = {"on": name, "method": label, "pairs": len(right), "right": float(right.mean())}
        for measure, compute in measures(len(right)).items():
            line[measure] = [compute(right, score), *interval(compute, right, score, pairs[:, 0])]
        line["calibration error"] = calibration_error(right, chances[label])
        lines.append(line)
    return lines, fitted


def judged(kind, found, split):
    images, captions, rows = found.rows(split)
    others = split.image_of_caption[captions] != images
    right = found.relevance()[rows] >= RIGHT[kind] - 1e-9
    return np.stack([images, captions], 1)[others], right[others]


def flickr8k(systems, data):
    split = systems[0].split
    views = views_of(systems, split)
    known = {kind: judged(kind, j, split) for kind, j in read_judgments(data).items()}
    half = split.num_images // 2
    learn = [
        (pairs[pairs[:, 0] < half], right[pairs[:, 0] < half]) for pairs, right in known.values()
    ]
    learn = tuple(np.concatenate(parts) for parts in zip(*learn, strict=True))
    lines = []
    for kind, (pairs, right) in known.items():
        later = pairs[:, 0] >= half
        made, fitted = report(
            f"Flickr8k, {kind}", learn, (pairs[later], right[later]), views, split
        )
        lines += made
    return lines, fitted


def scenes(systems):
    split = systems[0].split
    views = views_of(systems, split)
    pairs = candidates(views, split, DEPTH)
    right = np.zeros(len(pairs), dtype=bool)
    for image in np.unique(pairs[:, 0]):
        rows = np.flatnonzero(pairs[:, 0] == image)
        right[rows] = split.truth(np.array([image]), pairs[rows, 1])[0]
    early = pairs[:, 0] < split.num_images // 2
    return report(
        "scenes", (pairs[early], right[early]), (pairs[~early], right[~early]), views, split
    )


def markdown(lines):
    columns = ("AP", "AUC", "P@100", "P@1,000", "P@10,000")
    text = []
    for on in dict.fromkeys(line["on"] for line in lines):
        part = [line for line in lines if line["on"] == on]
        shown = [c for c in columns if c in part[0]]
        text.append(f"**{on}**: {part[0]['pairs']:,} pairs, {100 * part[0]['right']:.1f} % right\n")
        text.append("| method | " + " | ".join(shown) + " | calibration error |")
        text.append("|---|" + "---|" * (len(shown) + 1))
        for line in part:
            cells = [f"{line[c][0]:.3f} ({line[c][1]:.3f}–{line[c][2]:.3f})" for c in shown]
            error = f"{line['calibration error']:.3f}"
            text.append(f"| {line['method']} | " + " | ".join([*cells, error]) + " |")
        text.append("")
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["flickr8k", "scenes"])
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--data")
    parser.add_argument("--features")
    parser.add_argument("--write", action="store_true", help="keep the weights in the package")
    asked = parser.parse_args()
    systems = [
        simgrad.open(run, data=asked.data, features=asked.features).similarities("test")
        for run in asked.runs
    ]
    if asked.what == "flickr8k":
        lines, fitted = flickr8k(systems, asked.data)
    else:
        lines, fitted = scenes(systems)
    (HERE / f"{asked.what}.json").write_text(json.dumps(lines, indent=1) + "\n")
    (HERE / f"table-{asked.what}.md").write_text(markdown(lines))
    print(markdown(lines))
    print({k: round(v, 2) for k, v in zip(fitted.names, fitted.weights, strict=True)})
    if asked.write:
        place = HERE.parents[1] / "src/simgrad/mining/probable.json"
        told = asdict(fitted) | {"learned_from": "judgments of 500 of Flickr8k's test images"}
        place.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
