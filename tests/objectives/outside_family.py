"""Debiased NT-Xent (Chuang et al., NeurIPS 2020), one positive a query: a family from outside."""

import math
from dataclasses import dataclass

from simgrad.objectives import NTXent, Verdict, objectives, setting


@objectives.declare("test-debiased", paper="Chuang et al., 2020", description="debiased softmax")
@dataclass(eq=False, repr=False)
class Debiased(NTXent):
    totals = ("logsumexp", "count")
    prior: float = setting(0.1, "how likely a negative is a positive")

    def terms(self, s):
        return s, s > -math.inf

    def judge(self, totals, pairs):
        own, count, prior = pairs.similarity.exp(), totals[1], self.prior
        estimate = (totals[0].exp() - count * prior * own) / (1 - prior)
        least = count * math.exp(-1 / self.tau)
        is_open, whole = estimate > least, own + estimate.maximum(least)
        on_own = own * (1 - is_open * count * prior / (1 - prior)) / whole - 1
        given = (whole * (1 - prior)).log() + 1e4 * ~is_open  # exp(s - given) is the push
        return Verdict(whole.log() - pairs.similarity, on_own, (given,))
