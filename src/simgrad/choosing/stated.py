"""Rates and deviations that a plan assumes before anything is measured here, with their sources.

`choose --dry-run` estimates with these rates. The smallest gap that a plan can tell is computed
from how much seeds, searches and images differed in our own study; on other data they may differ
more or less.
"""

from simgrad.choosing.probe import Pace
from simgrad.evaluation.decision import detectable

# Steps a second of one process for each core, all cores busy, batches of 128; seconds of one look
# at 500 validation images. Measured on two cores of a shared server (the probe of `choose`).
_ON_CPU = {"light": Pace(1 / 120, 0.07, 8.0), "vse++": Pace(1 / 0.6, 4.5, 30.0)}
_NARROW = Pace(1 / 11, 0.5, 9.0)  # vse++(dimension=256, word_dimension=128)
# The same for one of sixteen processes on one NVIDIA H200 (runs.csv of results/flickr8k/study and
# results/light/first, evaluations included).
_ON_GPU = {"vse++": Pace(1 / 83, 0.1, 10.0), "light": Pace(1 / 505, 0.1, 10.0)}
# Pictures a second through efficientnet-lite0: of each core (between 8 and 33 were seen, by load),
# and of a GPU (a guess).
_PICTURES, _PICTURES_ON_GPU = 15.0, 500.0
SOURCE = "results/flickr8k"
# Standard deviations of rsum: of an objective between searches and between seeds; of a pair and one
# test image, of both together and of its seeds. By results/flickr8k/spread.py (study/spread.md).
_SEARCH, _SEED, _IMAGE, _IMAGE_AND_SEED = 2.7, 2.2, 47.9, 113.9


def pace_of(model: str, on_gpu: bool) -> Pace | None:
    """How quickly a model trains, as far as somebody has measured it."""
    name, _, settings = model.partition("(")
    if not on_gpu and name == "vse++" and "dimension=256" in settings:
        return _NARROW
    return (_ON_GPU if on_gpu else _ON_CPU).get(name)


def pictures_per_second(on_gpu: bool, cores: int) -> float:
    """How quickly features are computed."""
    return _PICTURES_ON_GPU if on_gpu else _PICTURES * cores


def smallest_gap(objectives: int, draws: int, images: int, searches: int = 1) -> float:
    """The difference in rsum that is told apart in four of five studies.

    `draws` seeds of each objective, from so many `searches` of settings of each.
    """
    runs = 2 * (_SEARCH**2 / searches + _SEED**2 / draws)
    runs += _IMAGE_AND_SEED**2 / draws / max(1, images)
    return detectable(runs, 2 * (draws - 1), _IMAGE**2 / max(1, images), objectives)
