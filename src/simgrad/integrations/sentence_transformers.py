"""An objective as a loss of sentence-transformers.

examples/sentence_transformers_loop.py gives one to their trainer.

The data set has two columns, (image or text, caption); row k of the batch is a positive pair.
Further columns are hard negatives: captions that are nobody's, which every image pushes away. With
a column `label` (an image's number), all rows of one label are positives of one another, so that
two captions of one picture never push each other away.

On several GPUs `gather_across_devices=True`, as their own losses call it, takes the batches of all
of them as one: texts go round, and no GPU holds all similarities.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.integrations.across import Across
from simgrad.objectives import Objective


class SentenceTransformerLoss(nn.Module):
    """Any objective over the columns of a batch; learned temperatures are trained with it.

    Examples:
        >>> class Bag(torch.nn.EmbeddingBag):  # stands for a SentenceTransformer
        ...     def forward(self, column):
        ...         return {"sentence_embedding": super().forward(column["input_ids"])}
        ...
        >>> loss = simgrad.integrations.SentenceTransformerLoss(Bag(50, 8), "nt-xent")
        >>> columns = [{"input_ids": torch.randint(50, (4, 6))} for _ in range(2)]
        >>> loss(columns).shape
        torch.Size([])
    """

    def __init__(
        self,
        model: nn.Module,
        objective_or_spec: "str | Objective",
        *,
        gather_across_devices: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.weighing = Across(objective_or_spec, gather_across_devices)

    def forward(
        self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Tensor:
        """`sentence_features`: the tokenised columns, as the trainer passes them."""
        columns = list(sentence_features)
        if len(columns) < 2:
            raise InputError(
                f"the batch has {len(columns)} column of inputs; simgrad's objectives take two, "
                "a pair, and hard negatives in further ones."
            )
        if labels is not None and (labels.ndim != 1 or labels.is_floating_point()):
            raise InputError(
                "the column `label` has the number of each row's image, one whole number a row, "
                f"not {str(labels.dtype).removeprefix('torch.')} of shape {tuple(labels.shape)}. "
                "Scores are no such numbers: remove the column."
            )
        if labels is not None and len(labels) > 2 and _are_answers(labels):
            raise InputError(
                "the column `label` has 0 and 1 alone: that looks like yes or no for each pair, "
                "and would train as two groups. It has the number of each row's image: remove the "
                "column, or, if these are two images, number them 2 and 3."
            )
        left, *right = (self.model(column)["sentence_embedding"] for column in columns)
        loss: Tensor = self.weighing(left, torch.cat(right), labels, labels)
        return loss

    def get_config_dict(self) -> dict[str, Any]:
        """What sentence-transformers writes into a model card."""
        told = {"objective": str(self.weighing.objective)}
        return told | ({"gather_across_devices": True} if self.weighing.across else {})


def _are_answers(labels: Tensor) -> bool:
    """Whether labels are yes or no, as losses of pairs have them: both, and nothing else."""
    if labels.dtype == torch.bool:
        return True
    return set(labels.tolist()) == {0, 1}
