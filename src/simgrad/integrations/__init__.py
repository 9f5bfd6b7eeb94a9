"""simgrad's objectives in other people's training loops, and theirs in ours.

Each module needs its library only where its objects are used; importing this package needs none.

Examples:
    >>> criterion = simgrad.integrations.ClipLoss("nt-xent(learned=true)")  # open_clip's signature
    >>> images, texts = torch.randn(4, 8), torch.randn(4, 8)
    >>> loss = criterion(images, texts, logit_scale=torch.tensor(10.0))
    >>> loss.shape
    torch.Size([])
"""

from simgrad.integrations.gradcache import GradCache
from simgrad.integrations.metric_learning import MetricLearningLoss, from_metric_learning
from simgrad.integrations.open_clip import ClipLoss
from simgrad.integrations.sentence_transformers import SentenceTransformerLoss

__all__ = [
    "ClipLoss",
    "GradCache",
    "MetricLearningLoss",
    "SentenceTransformerLoss",
    "from_metric_learning",
]
