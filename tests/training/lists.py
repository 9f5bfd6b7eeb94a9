"""Candidate lists as mining would give them, drawn at random: never of the own pair."""

import numpy as np

from simgrad.data import Split
from simgrad.data.candidates import Candidates


def random_lists(split: Split, depth: int, seed: int = 0) -> Candidates:
    random = np.random.default_rng(seed)
    owner = split.image_of_caption
    i2t = np.stack(
        [
            random.choice(np.flatnonzero(owner != image), depth).astype(np.int32)
            for image in range(split.num_images)
        ]
    )
    step = random.integers(1, split.num_images, (split.num_captions, depth))
    t2i = ((owner[:, None] + step) % split.num_images).astype(np.int32)
    return Candidates(i2t, t2i, {})
