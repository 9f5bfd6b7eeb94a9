"""The triplet loss over the k hardest negatives of each query.

For `simgrad --with recipes/top_k.py study recipes/flickr8k-negatives.yaml ...`. The k triplets of a
query are averaged, so that its weights add up to at most 1 for every k. With k = 1 it is
triplet-sh; with every negative of the batch (127 of 128), triplet divided by their number.
"""

import torch

import simgrad


@simgrad.objectives.declare("triplet-k", description="pushes the k hardest negatives, 1/k each")
def triplet_k(similarities, positives, pairs, k: int = 1, margin: float = 0.2):
    negatives = similarities.masked_fill(positives, -torch.inf)
    hardest, place = negatives.topk(min(k, negatives.shape[1]), dim=1)  # (queries, k)
    cost = torch.relu(margin + pairs.per_pair(hardest) - pairs.similarity[:, None])  # (pairs, k)
    weight = (cost > 0).to(cost.dtype) / k
    weights = torch.zeros_like(similarities).scatter_(1, place, pairs.per_query(weight))
    own = (pairs.query, pairs.candidate)
    weights.index_put_(own, -weight.sum(1), accumulate=True)
    return pairs.per_query(cost.sum(1)) / k, weights
