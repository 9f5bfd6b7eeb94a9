"""One batch over several processes, with plain PyTorch and DistributedDataParallel.

    torchrun --nproc-per-node 2 examples/ddp_loop.py

Each process encodes its share of the pairs. `simgrad.distributed` takes the shares of all as one
batch, so the negatives of a picture are those of every process, and the gradient is exact.
What to see: the loss is the same with one process and with two.
"""

import os

import torch
import torch.distributed as dist
from tiny_data import PAIRS, Towers, features, words
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import simgrad

STEPS = 20


class Model(nn.Module):
    """The objective is part of the module that DDP wraps: its temperature is trained too."""

    def __init__(self) -> None:
        super().__init__()
        self.towers = Towers()
        self.objective = simgrad.distributed("nt-xent(learned=true)")

    def forward(self, images: Tensor, texts: Tensor) -> Tensor:
        loss: Tensor = self.objective(*self.towers(images, texts))
        return loss


def main() -> tuple[float, float]:
    many = "RANK" in os.environ  # torchrun says so
    if many:
        dist.init_process_group("gloo")  # "nccl" on GPUs
    rank, world = (dist.get_rank(), dist.get_world_size()) if many else (0, 1)
    own = slice(rank, PAIRS, world)
    model: nn.Module = DistributedDataParallel(Model()) if many else Model()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    losses = []
    for step in range(STEPS):
        loss = model(features[own], words[own])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if rank == 0 and step % 5 == 0:
            print(f"step {step:2d}  loss {losses[-1]:.4f}  ({world} processes)")
    if rank == 0:
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    if many:
        dist.destroy_process_group()
    return losses[0], losses[-1]


if __name__ == "__main__":
    main()
