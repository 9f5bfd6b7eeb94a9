"""Losses of others beside ours, on the same numbers: every row of docs/losses.md.

Each row gives (their loss, our loss) of the same leaves. Where a peer is not installed, or is no
package, its formula stands here as its code has it; the row says so.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, logsigmoid, normalize

import simgrad

IMAGES = torch.tensor([0, 0, 1, 2, 3, 3, 3, 4, 5, 6])  # each caption's image
Pair = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class Row(NamedTuple):
    """A row of the page; `check` takes two batches of vectors, (10, 8) each."""

    library: str
    theirs: str
    ours: str
    digits: int  # of value and gradients in float64
    check: Pair


def _cosines(x: Tensor, y: Tensor) -> Tensor:
    return normalize(x) @ normalize(y).T


def ours(spec: str, **given: Any) -> Callable[..., Tensor]:
    reduction = given.pop("reduction", None)
    made = simgrad.objective(spec, reduction=reduction)
    return lambda *vectors, **more: made(*vectors, **given, **more)


def within(spec: str, labels: Tensor, reduction: Any = None) -> Callable[[Tensor], Tensor]:
    made = simgrad.objective(spec, reduction=reduction)
    return lambda x: made.within(x, labels)


# -- pytorch-metric-learning


def _pml(name: str, **given: Any) -> Any:
    from pytorch_metric_learning import losses

    return getattr(losses, name)(**given)


def _sum_reduced(margin: float) -> Any:
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.reducers import SumReducer

    return _pml(
        "TripletMarginLoss", margin=margin, distance=CosineSimilarity(), reducer=SumReducer()
    )


ROWS_LABELS, GROUPS = torch.arange(10), torch.tensor([4, 7, 4, 4, 1, 7, 9, 1, 7, 9])
TWO = torch.arange(5).repeat(2)
FEW = torch.arange(7)  # images that the captions of IMAGES belong to


def _two_sides(loss: Any, x: Tensor, y: Tensor) -> Tensor:
    found: Tensor = loss(x, ROWS_LABELS, ref_emb=y, ref_labels=ROWS_LABELS.clone())
    return found


def _several(loss: Any, x: Tensor, y: Tensor) -> Tensor:
    found: Tensor = loss(x[:7], FEW, ref_emb=y, ref_labels=IMAGES)
    return found


def _self_supervised(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    from pytorch_metric_learning.losses import NTXentLoss, SelfSupervisedLoss

    theirs = SelfSupervisedLoss(NTXentLoss(temperature=0.1))(x, y)
    return theirs, within("nt-xent(tau=0.1)", ROWS_LABELS.repeat(2))(torch.cat([x, y]))


PML = [
    Row("pytorch-metric-learning", "NTXentLoss(temperature=0.1), row i beside row i",
        "nt-xent(tau=0.1, direction=i2t)", 12,
        lambda x, y: (_two_sides(_pml("NTXentLoss", temperature=0.1), x, y),
                      ours("nt-xent(tau=0.1, direction=i2t)")(x, y))),
    Row("pytorch-metric-learning", "NTXentLoss(temperature=0.1), one batch, two of a label",
        "nt-xent(tau=0.1), .within", 12,
        lambda x, y: (_pml("NTXentLoss", temperature=0.1)(x, TWO),
                      within("nt-xent(tau=0.1)", TWO)(x))),
    Row("pytorch-metric-learning", "SelfSupervisedLoss(NTXentLoss(temperature=0.1))",
        "nt-xent(tau=0.1), .within both views", 12, _self_supervised),
    Row("pytorch-metric-learning", "SupConLoss(temperature=0.1), one batch",
        "nt-xent(tau=0.1), .within", 12,
        lambda x, y: (_pml("SupConLoss", temperature=0.1)(x, GROUPS),
                      within("nt-xent(tau=0.1)", GROUPS)(x))),
    Row("pytorch-metric-learning", "SupConLoss(temperature=0.1), captions as ref_emb",
        "nt-xent(tau=0.1, direction=i2t)", 12,
        lambda x, y: (_several(_pml("SupConLoss", temperature=0.1), x, y),
                      ours("nt-xent(tau=0.1, direction=i2t)", positives=IMAGES)(x[:7], y))),
    Row("pytorch-metric-learning", "MultiSimilarityLoss(alpha=2, beta=50, base=0.5), one batch",
        "multi-similarity-loss(alpha=2, beta=50, lambda=0.5), .within", 12,
        lambda x, y: (_pml("MultiSimilarityLoss")(x, GROUPS),
                      within("multi-similarity-loss", GROUPS)(x))),
    Row("pytorch-metric-learning",
        "MultiSimilarityLoss(alpha=2, beta=10, base=0.3), captions as ref_emb",
        "multi-similarity-loss(beta=10, lambda=0.3, direction=i2t)", 12,
        lambda x, y: (_several(_pml("MultiSimilarityLoss", beta=10, base=0.3), x, y),
                      ours("multi-similarity-loss(beta=10, lambda=0.3, direction=i2t)",
                           positives=IMAGES)(x[:7], y))),
    Row("pytorch-metric-learning", "NCALoss(softmax_scale=5), captions as ref_emb",
        "nca-loss(tau=0.1, direction=i2t): tau is 1 / (2 softmax_scale)", 12,
        lambda x, y: (_several(_pml("NCALoss", softmax_scale=5), x, y),
                      ours("nca-loss(tau=0.1, direction=i2t)", positives=IMAGES)(x[:7], y))),
    Row("pytorch-metric-learning", "NCALoss(softmax_scale=5), one batch",
        "nca-loss(tau=0.1), .within", 12,
        lambda x, y: (_pml("NCALoss", softmax_scale=5)(x, GROUPS),
                      within("nca-loss(tau=0.1)", GROUPS)(x))),
    Row("pytorch-metric-learning",
        "TripletMarginLoss(margin=0.2, distance=CosineSimilarity(), reducer=SumReducer())",
        "triplet(margin=0.2, direction=i2t)", 12,
        lambda x, y: (_several(_sum_reduced(0.2), x, y),
                      ours("triplet(margin=0.2, direction=i2t)", positives=IMAGES)(x[:7], y))),
    Row("pytorch-metric-learning", "the same, one batch", "triplet(margin=0.2), .within", 12,
        lambda x, y: (_sum_reduced(0.2)(x, GROUPS), within("triplet(margin=0.2)", GROUPS)(x))),
]  # fmt: skip


# -- sentence-transformers


class Columns(nn.Module):
    """Stands for a SentenceTransformer: columns are vectors already."""

    def forward(self, column: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": column["input"]}

    def tokenize(self, texts: Any) -> Any:  # cached losses look for it
        return texts


def _st(name: str, *columns: Tensor, labels: Tensor | None = None, **given: Any) -> Tensor:
    from sentence_transformers import losses

    loss = getattr(losses, name)(model=Columns(), **given)
    found: Tensor = loss([{"input": c} for c in columns], labels)
    return found


def _negatives(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """A third column of hard negatives."""
    x, own, hard = x[:5], y[:5], y[5:]
    positives = torch.tensor([0, 1, 2, 3, 4] + [-1] * 5)
    theirs = _st("MultipleNegativesRankingLoss", x, own, hard)
    return theirs, ours("nt-xent(tau=0.05, direction=i2t)", positives=positives)(x, y)


def _batch_hard(name: str, x: Tensor, **given: Any) -> Tensor:
    from sentence_transformers.losses import BatchHardTripletLossDistanceFunction as Distance

    distance = Distance.cosine_distance
    return _st(name, x, labels=TWO, distance_metric=distance, **given)


ST = [
    Row("sentence-transformers", "MultipleNegativesRankingLoss(scale=20)",
        "nt-xent(tau=0.05, direction=i2t)", 12,
        lambda x, y: (_st("MultipleNegativesRankingLoss", x, y),
                      ours("nt-xent(tau=0.05, direction=i2t)")(x, y))),
    Row("sentence-transformers", "the same, with a column of hard negatives",
        "nt-xent(tau=0.05, direction=i2t), positives -1 for those", 12, _negatives),
    Row("sentence-transformers", "MultipleNegativesSymmetricRankingLoss(scale=20)",
        "nt-xent(tau=0.05)", 12,
        lambda x, y: (_st("MultipleNegativesSymmetricRankingLoss", x, y),
                      ours("nt-xent(tau=0.05)")(x, y))),
    Row("sentence-transformers", "MultipleNegativesRankingLoss(scale=50)",
        "nt-xent(tau=0.02, direction=i2t)", 12,
        lambda x, y: (_st("MultipleNegativesRankingLoss", x, y, scale=50.0),
                      ours("nt-xent(tau=0.02, direction=i2t)")(x, y))),
    Row("sentence-transformers",
        "BatchHardTripletLoss(margin=0.2, distance_metric=cosine_distance), two of a label",
        'triplet-sh(margin=0.2), reduction="mean", .within', 12,
        lambda x, y: (_batch_hard("BatchHardTripletLoss", x, margin=0.2),
                      within("triplet-sh(margin=0.2)", TWO, "mean")(x))),
    Row("sentence-transformers",
        "BatchHardSoftMarginTripletLoss(distance_metric=cosine_distance), two of a label",
        'nca(tau=1), reduction="mean", .within', 12,
        lambda x, y: (_batch_hard("BatchHardSoftMarginTripletLoss", x),
                      within("nca(tau=1)", TWO, "mean")(x))),
]  # fmt: skip


# -- transformers


def _siglip_model(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Its loss as SiglipModel.forward has it."""
    scale, bias = torch.tensor(2.0).double().exp(), torch.tensor(-3.0).double()
    logits = _cosines(y, x) * scale + bias
    eye = torch.eye(len(logits))
    theirs = -logsigmoid((-torch.ones_like(logits) + 2 * eye) * logits).sum(-1).mean()
    made = simgrad.objective("siglip", scale=float(scale), offset=-3.0, learned=False).double()
    return theirs, made(x, y)


def _clip_model(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    from transformers.models.clip import modeling_clip

    old = getattr(modeling_clip, "clip_loss", None)  # before transformers 5
    loss = old or modeling_clip.image_text_contrastive_loss
    return loss(_cosines(y, x) / 0.07), ours("nt-xent(tau=0.07)")(x, y)


def _one_way(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    from transformers.models.clip.modeling_clip import contrastive_loss

    one = simgrad.objective("nt-xent(tau=0.07, direction=i2t)")
    return contrastive_loss(_cosines(x, y) / 0.07), one.on(_cosines(x, y))


TRANSFORMERS = [
    Row("transformers", "CLIPModel(return_loss=True): image_text_contrastive_loss",
        "nt-xent(tau=0.07)", 12, _clip_model),
    Row("transformers", "contrastive_loss(logits)", "nt-xent(tau=0.07, direction=i2t), .on(S)", 12,
        _one_way),
    Row("transformers", "SiglipModel(return_loss=True) (its lines)",
        "siglip(scale=7.39, offset=-3, learned=false)", 12, _siglip_model),
]  # fmt: skip


# -- open_clip: its classes where it is installed, else its lines


def _open_clip(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    scale = torch.tensor(12.0).double()
    images, texts = normalize(x), normalize(y)
    try:
        from open_clip.loss import ClipLoss

        theirs = ClipLoss()(images, texts, scale)
    except ImportError:
        logits, rows = scale * images @ texts.T, torch.arange(len(x))
        theirs = (cross_entropy(logits, rows) + cross_entropy(logits.T, rows)) / 2
    loss = simgrad.integrations.ClipLoss("nt-xent(learned=true)")(x, y, scale)
    assert isinstance(loss, Tensor)
    return theirs, loss


def _open_siglip(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    scale, bias = torch.tensor(9.0).double(), torch.tensor(-8.0).double()
    images, texts = normalize(x), normalize(y)
    try:
        from open_clip.loss import SigLipLoss

        theirs = SigLipLoss()(images, texts, scale, bias)
    except ImportError:
        logits = scale * images @ texts.T + bias
        labels = 2 * torch.eye(len(x)).double() - 1
        theirs = -logsigmoid(labels * logits).sum() / len(x)
    loss = simgrad.integrations.ClipLoss("siglip")(x, y, scale, bias)
    assert isinstance(loss, Tensor)
    return theirs, loss


OPEN_CLIP = [
    Row("open_clip", "ClipLoss()(images, texts, logit_scale)",
        'integrations.ClipLoss("nt-xent(learned=true)"), same call', 12, _open_clip),
    Row("open_clip", "SigLipLoss()(images, texts, logit_scale, logit_bias)",
        'integrations.ClipLoss("siglip"), same call', 12, _open_siglip),
]  # fmt: skip


# -- code that is no package, by its lines


def _vsepp(x: Tensor, y: Tensor, max_violation: bool) -> Tensor:
    """ContrastiveLoss.forward of vsepp/model.py; SCAN's and VSE-infinity's are the same."""
    scores, margin = _cosines(x, y), 0.2
    diagonal = scores.diag().view(len(x), 1)
    cost_s = (margin + scores - diagonal.expand_as(scores)).clamp(min=0)
    cost_im = (margin + scores - diagonal.t().expand_as(scores)).clamp(min=0)
    eye = torch.eye(len(x)) > 0.5
    cost_s, cost_im = cost_s.masked_fill(eye, 0), cost_im.masked_fill(eye, 0)
    if max_violation:
        cost_s, cost_im = cost_s.max(1)[0], cost_im.max(0)[0]
    return cost_s.sum() + cost_im.sum()


def _supcon_code(x: Tensor, y: Tensor) -> Tensor:
    """SupConLoss of SupContrast/losses.py, contrast_mode all, base_temperature=temperature."""
    features = normalize(torch.cat([x, y]))
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 4]).repeat(2)
    mask, logits = labels[:, None] == labels[None], features @ features.T / 0.07
    others = ~torch.eye(len(labels), dtype=torch.bool)
    total = logits.masked_fill(~others, -torch.inf).logsumexp(1, keepdim=True)
    mask = mask & others
    return -((logits - total) * mask).sum(1).div(mask.sum(1)).mean()


def _moco(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """moco/builder.py: positive logits beside those of the queue."""
    q, k, queue = normalize(x[:4]), normalize(y[:4]), normalize(y[4:])
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], 1) / 0.07
    theirs = cross_entropy(logits, torch.zeros(4, dtype=torch.long))
    # MoCo has no negatives in the batch: pairs of a query with others' keys are ignored.
    others = ~torch.eye(4, 10, dtype=torch.bool) & (torch.arange(10) < 4)
    positives = torch.tensor([0, 1, 2, 3] + [-1] * 6)
    return theirs, ours("nt-xent(tau=0.07, direction=i2t)")(x[:4], y, positives, ignore=others)


def _mil_nce(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """MIL-NCE_HowTo100M/loss.py, of videos: a log of sums over a bag of sentences."""
    S = _cosines(x[:7], y) / 0.1
    mask = FEW[:, None] == IMAGES[None]
    theirs = (S.logsumexp(1) - S.masked_fill(~mask, -torch.inf).logsumexp(1)).mean()
    return theirs, ours("nca-loss(tau=0.1, direction=i2t)", positives=IMAGES)(x[:7], y)


def _soft(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Label smoothing over two captions of an image."""
    S, mask = _cosines(x[:7], y) / 0.1, FEW[:, None] == IMAGES[None]
    target = torch.rand(7, 10, generator=torch.Generator().manual_seed(3)).double() * mask
    target = target / target.sum(1, keepdim=True)
    weights = target * mask.sum(1, keepdim=True)
    made = ours("nt-xent(tau=0.1, direction=i2t)", positives=IMAGES, weights=weights)
    return cross_entropy(S, target), made(x[:7], y)


def _debiased(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """DCL/main.py: Ng of N negatives with a prior."""
    S, tau, prior, count = _cosines(x, y), 0.5, 0.1, 9
    own = (S.diagonal() / tau).exp()
    total = (S / tau).exp().sum(1) - own
    estimate = ((total - prior * count * own) / (1 - prior)).clamp(
        min=count * torch.tensor(-1 / tau).double().exp()
    )
    theirs = -(own / (own + estimate)).log().mean()
    return theirs, ours("debiased-nt-xent(tau=0.5, prior=0.1, direction=i2t)")(x, y)


CODE = [
    Row("PyTorch", "cross_entropy(S / 0.05, arange(n))", "nt-xent(tau=0.05, direction=i2t)", 12,
        lambda x, y: (cross_entropy(_cosines(x, y) / 0.05, ROWS_LABELS),
                      ours("nt-xent(tau=0.05, direction=i2t)")(x, y))),
    Row("PyTorch", "cross_entropy(S / 0.1, target) with soft targets on positives",
        "nt-xent(tau=0.1, direction=i2t), weights = target x number of positives", 12, _soft),
    Row("VSE++, SCAN, VSE-infinity (their lines)",
        "ContrastiveLoss(margin=0.2, max_violation=False)",
        "triplet(margin=0.2)", 12,
        lambda x, y: (_vsepp(x, y, False), ours("triplet(margin=0.2)")(x, y))),
    Row("VSE++, SCAN, VSE-infinity (their lines)",
        "ContrastiveLoss(margin=0.2, max_violation=True)",
        "triplet-sh(margin=0.2)", 12,
        lambda x, y: (_vsepp(x, y, True), ours("triplet-sh(margin=0.2)")(x, y))),
    Row("SupContrast (its lines)", "SupConLoss(temperature=0.07, base_temperature=0.07)",
        "nt-xent(tau=0.07), .within both views", 12,
        lambda x, y: (_supcon_code(x, y),
                      within("nt-xent(tau=0.07)",
                             torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 4]).repeat(2))(
                          torch.cat([x, y])))),
    Row("MoCo (its lines)", "InfoNCE against a queue",
        "nt-xent(tau=0.07, direction=i2t), queue as texts of -1", 12, _moco),
    Row("MIL-NCE (its lines)", "a bag of sentences for a video",
        "nca-loss(tau=0.1, direction=i2t), positives", 12, _mil_nce),
    Row("DCL (its lines)", "debiased, temperature=0.5, tau_plus=0.1",
        "debiased-nt-xent(tau=0.5, prior=0.1, direction=i2t)", 12, _debiased),
]  # fmt: skip

ROWS = [*PML, *ST, *TRANSFORMERS, *OPEN_CLIP, *CODE]
