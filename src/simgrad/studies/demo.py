"""The demo: six objectives, two seeds each, on the embedded world, in a few minutes."""

from typing import Any

DEMO: dict[str, Any] = {
    "title": "Which objective? Six of them on the embedded world",
    "recipe": {
        "data": "scenes(features=global)",
        "model": "vse++(dimension=128, word_dimension=64)",
        "epochs": 6,
        "lr": 1e-3,
        "decay_every": 4,
        "first_objective": "triplet",
        "first_epochs": 1,
    },
    "grid": {
        "objective": [
            "triplet",
            "triplet-sh",
            "nt-xent",
            "goal(triplet=con, pair=sig)",
            "goal(triplet=cir, pair=sig-ms)",
        ]
    },
    "rows": [
        {  # as published: images with all their captions, about as many captions in a batch
            "label": "smooth-ap",
            "set": {
                "objective": "smooth-ap",
                "sampler": "images",
                "captions_per_image": 5,
                "batch": 26,
            },
        }
    ],
    "seeds": 2,
    "baseline": "triplet-sh",
}
