"""From evidence to a calibrated probability: logistic regression, learned from answers.

The weights that come with simgrad were learned on human judgments of half of Flickr8k's test
images (results/negatives). On other data they order pairs well, but their probabilities are a
guess: answer some pairs and give the file as --calibrate.
"""

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError

Floats = npt.NDArray[np.float64]
_RIDGE = 1.0  # against extreme weights where answers are few
LEAST = 20  # answers of each kind to learn from


@dataclass(frozen=True)
class Probable:
    """P(right) = 1 / (1 + exp(-(bias + weights · (evidence - mean) / deviation)))"""

    names: tuple[str, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float
    learned_from: str = ""

    def __call__(self, evidence: Floats) -> Floats:
        """(pairs,) probabilities."""
        from scipy.special import expit

        if evidence.shape[1] != len(self.weights):
            raise InputError(
                f"{evidence.shape[1]} kinds of evidence, but weights for {len(self.weights)}."
            )
        z = (evidence - np.array(self.mean)) / np.array(self.deviation) @ np.array(self.weights)
        return np.asarray(expit(z + self.bias), dtype=np.float64)

    @staticmethod
    def learned(
        names: tuple[str, ...], evidence: Floats, right: npt.NDArray[Any], source: str = ""
    ) -> "Probable":
        """Fit to pairs of which somebody said whether they are right."""
        from scipy.optimize import minimize
        from scipy.special import expit

        y = right.astype(np.float64)
        if min(y.sum(), (1 - y).sum()) < LEAST:
            raise InputError(
                f"{source or 'the answers'}: {int(y.sum())} yes and {int((1 - y).sum())} no; at "
                f"least {LEAST} of each are needed to calibrate."
            )
        mean, deviation = evidence.mean(0), np.maximum(evidence.std(0), 1e-6)
        x = (evidence - mean) / deviation

        def loss(theta: Floats) -> tuple[float, Floats]:
            z = x @ theta[1:] + theta[0]
            error = expit(z) - y
            value = np.logaddexp(0, z) - y * z
            slope = np.concatenate([[error.sum()], x.T @ error + _RIDGE * theta[1:]])
            return float(value.sum() + 0.5 * _RIDGE * theta[1:] @ theta[1:]), slope

        # All evidence speaks for a pair: a weight below 0 would only fit how kinds overlap here.
        bounds = [(None, None)] + [(0.0, None)] * x.shape[1]
        start = np.zeros(x.shape[1] + 1)
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        return Probable(
            names,
            tuple(mean.tolist()),
            tuple(deviation.tolist()),
            tuple(found[1:].tolist()),
            float(found[0]),
            source,
        )


def shipped() -> Probable:
    """What was learned on Flickr8k."""
    told = json.loads(files("simgrad.mining").joinpath("probable.json").read_text("utf-8"))
    lists = {key: tuple(value) for key, value in told.items() if isinstance(value, list)}
    return Probable(**{**told, **lists})
