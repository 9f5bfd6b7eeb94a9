"""An objective in a LightningModule: pip install pytorch-lightning

    python examples/lightning_loop.py

`simgrad.distributed` also works in one process; with `devices=N` the batches of all are one batch.
What to see: the loss falls, and the learned scale of the similarities moves away from its start.
"""

import pytorch_lightning as lightning
import torch
from tiny_data import Towers, features, words
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import simgrad


class Retrieval(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.towers = Towers()
        self.objective = simgrad.distributed("nt-xent(learned=true)")
        self.losses: list[float] = []

    def training_step(self, batch: tuple[Tensor, Tensor], place: int) -> Tensor:
        loss: Tensor = self.objective(*self.towers(*batch))
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 0.01)


def main() -> tuple[float, float]:
    model = Retrieval()
    trainer = lightning.Trainer(
        max_epochs=10,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(TensorDataset(features, words), batch_size=64, shuffle=True))
    print(f"loss {model.losses[0]:.4f} -> {model.losses[-1]:.4f}")
    for name, value in model.objective.named_parameters():
        print(f"learned {name}: {value.item():.3f}")
    return model.losses[0], model.losses[-1]


if __name__ == "__main__":
    main()
