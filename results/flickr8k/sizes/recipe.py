"""recipes/flickr8k-sizes.yaml from what was chosen with all photos.

`python results/flickr8k/sizes/recipe.py results/flickr8k/study/tuned > recipes/flickr8k-sizes.yaml`
"""

import json
import sys
from pathlib import Path

from simgrad.runs.recipe import Recipe
from simgrad.studies.space import apply

# The row's name in the study, its objective, and its short label here.
OBJECTIVES = (
    ("triplet-sh", "triplet-sh", "triplet-sh"),
    ("goal-triplet=cir-pair=sig-ms", "goal(triplet=cir, pair=sig-ms)", "goal cir, sig-ms"),
    ("focused-deviance", "focused-deviance", "focused-deviance"),
    ("nt-xent", "nt-xent", "nt-xent"),
    ("siglip", "siglip", "siglip"),
)
# Photos: epochs, epochs before the rate falls, epochs of all negatives in place of one. About as
# many steps as 12, 8 and 1 of 6,000 photos: 2,820, 1,880 and 235.
SIZES = {1000: (71, 47, 6), 2000: (36, 24, 3), 4000: (18, 12, 2)}
HEAD = """\
# Five objectives on VSE++, Flickr8k, trained on 1,000, 2,000 and 4,000 photos
#
#   simgrad features FLICKR8K --transform plain --size 288 --half --output features/global
#   simgrad study recipes/flickr8k-sizes.yaml --data FLICKR8K --features features/global
#
# Settings are those that results/flickr8k/study chose with all 6,000 photos; recipe.py in
# results/flickr8k/sizes writes this file from them. They are not searched again for each size.
# About as many steps at each size (2,826 to 2,844; the rate falls after two thirds), evaluated
# every 235. Where one epoch of all negatives came first, about as many steps of them. The photos of
# a smaller set are among those of a larger one, the same for all; the vocabulary comes from them.
#
# Published: nothing; these are ours
# Ours: results/flickr8k/sizes: with few photos the order is not certain
# Time: 45 runs in 118 s on an H200
title: "Five objectives over the size of the training set, VSE++, Flickr8k"
claim: ""
recipe:
  {batch: 128, clip: 2.0, reduction: sum, positives: images, precision: bf16, model: vse++,
   evaluate_every: 235, first_objective: triplet}
"""


def main() -> None:
    tuned = Path(sys.argv[1])
    lines = [HEAD + "groups:"]
    for photos, (epochs, decay, _) in SIZES.items():
        group = f"train_images: {photos}, epochs: {epochs}, decay_every: {decay}"
        lines.append(f'  "{photos:,} photos": {{set: {{{group}}}}}')
    lines.append("rows:")
    for photos, (_, _, first) in SIZES.items():
        for row, spec, label in OBJECTIVES:
            chosen = json.loads((tuned / f"{row}.json").read_text())["chosen"]["setting"]
            recipe = apply(Recipe(objective=spec, first_objective="triplet"), chosen)
            told = f'objective: "{recipe.objective}", lr: {recipe.lr}'
            told += f", first_epochs: {first if recipe.first_epochs else 0}"
            base = ", baseline: true" if row == OBJECTIVES[0][0] else ""
            where = f'label: "{label}, {photos:,}", group: "{photos:,} photos"{base}'
            lines.append(f"  - {{{where}, set: {{{told}}}}}")
    print("\n".join([*lines, "seeds: 3"]))


if __name__ == "__main__":
    main()
