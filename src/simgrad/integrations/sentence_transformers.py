"""An objective as a loss of sentence-transformers.

    loss = simgrad.integrations.SentenceTransformerLoss(model, "goal(triplet=cir, pair=sig-ms)")
    SentenceTransformerTrainer(model=model, train_dataset=pairs, loss=loss, ...).train()

The data set has two columns, (image or text, caption); row k of the batch is a positive pair. With
a third column `label` (an image's number), all rows of one label are positives of one another, so
that two captions of one picture never push each other away.
"""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.objectives import Objective, objective


class SentenceTransformerLoss(nn.Module):
    """Any objective over the two columns of a batch; learned temperatures are trained with it."""

    def __init__(self, model: nn.Module, objective_or_spec: "str | Objective") -> None:
        super().__init__()
        self.model = model
        self.objective = objective(objective_or_spec)

    def forward(
        self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Tensor:
        """`sentence_features`: the two tokenised columns, as the trainer passes them."""
        columns = list(sentence_features)
        if len(columns) != 2:
            raise InputError(
                f"the batch has {len(columns)} columns of inputs; simgrad's objectives take two, "
                "a pair: negatives come from the batch. Leave the others out of the data set."
            )
        left, right = (self.model(column)["sentence_embedding"] for column in columns)
        positives = None if labels is None else labels[:, None] == labels[None]
        loss: Tensor = self.objective(left, right, positives)
        return loss

    def get_config_dict(self) -> dict[str, Any]:
        """What sentence-transformers writes into a model card."""
        return {"objective": str(self.objective)}
