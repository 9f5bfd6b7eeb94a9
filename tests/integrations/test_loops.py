"""Other people's loops on two processes: the weights of one process on the whole batch.

The data are one batch, so that an epoch is a step and no loop's order of rows matters.
"""

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.parallel import DistributedDataParallel

import simgrad
from simgrad.integrations import (
    ClipLoss,
    MetricLearningLoss,
    SentenceTransformerLoss,
    from_metric_learning,
)
from tests.integrations.test_integrations import LEFT, RIGHT, _small_model
from tests.processes import LOADED, free_port, started

# Forked processes have them already.
PACKAGES = ("accelerate", "transformers.trainer", "sentence_transformers", "pytorch_lightning")
LOADED.extend(name for name in PACKAGES if find_spec(name.split(".")[0]))

SPEC, STEPS, RATE, PAIRS = "nt-xent(learned=true)", 3, 0.2, 12


class Towers(nn.Module):
    """Two encoders, and the loss of their share of the batch."""

    def __init__(self, loss: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.image, self.text = nn.Linear(8, 4), nn.Linear(6, 4)
        self.loss = simgrad.distributed(SPEC) if loss is None else loss

    def forward(self, images: Tensor, texts: Tensor) -> dict[str, Tensor]:
        return {"loss": self.loss(self.image(images), self.text(texts))}


class Rows(torch.utils.data.Dataset[dict[str, Tensor]]):
    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self.images = torch.randn(PAIRS, 8, generator=generator)
        self.texts = torch.randn(PAIRS, 6, generator=generator)

    def __len__(self) -> int:
        return PAIRS

    def __getitem__(self, k: int) -> dict[str, Tensor]:
        return {"images": self.images[k], "texts": self.texts[k]}


def alone(loss: nn.Module) -> list[Tensor]:
    """One process on the whole batch."""
    model, rows = Towers(loss), Rows()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(rows.images, rows.texts)["loss"].backward()
        optimizer.step()
    return list(model.parameters())


def shares(rank: int) -> slice:
    """Uneven."""
    return slice(0, 5) if rank == 0 else slice(5, PAIRS)


def plain(rank: int, folder: str) -> list[Tensor]:
    dist.init_process_group("gloo")
    model, rows = DistributedDataParallel(Towers()), Rows()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(rows.images[shares(rank)], rows.texts[shares(rank)])["loss"].backward()
        optimizer.step()
    return list(model.parameters())


def accelerate(rank: int, folder: str) -> list[Tensor]:
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    accelerator, model = Accelerator(cpu=True), Towers()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    model, optimizer, batches = accelerator.prepare(
        model, optimizer, DataLoader(Rows(), PAIRS // 2, shuffle=True)
    )
    for _ in range(STEPS):
        for batch in batches:
            optimizer.zero_grad()
            accelerator.backward(model(**batch)["loss"])
            optimizer.step()
    return list(accelerator.unwrap_model(model).parameters())


def trainer(rank: int, folder: str) -> list[Tensor]:
    from transformers import Trainer, TrainingArguments

    model = Towers()
    arguments = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=PAIRS // 2, num_train_epochs=STEPS,
        learning_rate=RATE, lr_scheduler_type="constant", optim="sgd", max_grad_norm=0.0,
        use_cpu=True, ddp_backend="gloo", report_to=[], save_strategy="no", disable_tqdm=True,
        remove_unused_columns=False,
    )  # fmt: skip
    Trainer(model=model, args=arguments, train_dataset=Rows()).train()
    return list(model.parameters())


def lightning(rank: int, folder: str) -> list[Tensor]:
    import pytorch_lightning
    from pytorch_lightning.plugins.environments import TorchElasticEnvironment
    from pytorch_lightning.strategies import DDPStrategy
    from torch.utils.data import DataLoader

    class Module(pytorch_lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.towers = Towers()

        def training_step(self, batch: dict[str, Tensor], place: int) -> Tensor:
            loss: Tensor = self.towers(**batch)["loss"]
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), RATE)

    module = Module()
    pytorch_lightning.Trainer(
        accelerator="cpu", devices=2, max_epochs=STEPS, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
        strategy=DDPStrategy(
            process_group_backend="gloo", cluster_environment=TorchElasticEnvironment()
        ),
    ).fit(module, DataLoader(Rows(), PAIRS // 2, shuffle=True))  # fmt: skip
    return list(module.towers.parameters())


class ByLabel(nn.Module):
    """As pytorch-metric-learning's losses are called; a label stands in both processes."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.inner, self.labels = loss, torch.arange(PAIRS) % 7

    def forward(self, images: Tensor, texts: Tensor) -> Tensor:
        there = dist.is_initialized() and len(images) < PAIRS
        labels = self.labels[shares(dist.get_rank())] if there else self.labels
        loss: Tensor = self.inner(images, labels, ref_emb=texts, ref_labels=labels.clone())
        return loss


def by_label(rank: int, folder: str) -> list[Tensor]:
    dist.init_process_group("gloo")
    model = Towers(ByLabel(MetricLearningLoss(SPEC, gather_across_devices=True)))
    return averaged(rank, model)


def their_loss(rank: int, folder: str) -> list[Tensor]:
    from pytorch_metric_learning.losses import MultiSimilarityLoss

    dist.init_process_group("gloo")
    return averaged(rank, Towers(simgrad.distributed(from_metric_learning(MultiSimilarityLoss()))))


def averaged(rank: int, model: Towers) -> list[Tensor]:
    """DDP on the encoders alone, as many loops have it: the loss stands beside."""
    towers, rows = DistributedDataParallel(Both(model)), Rows()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model.loss(*towers(rows.images[shares(rank)], rows.texts[shares(rank)])).backward()
        optimizer.step()
    return list(model.parameters())


class Both(nn.Module):
    def __init__(self, model: Towers) -> None:
        super().__init__()
        self.image, self.text = model.image, model.text

    def forward(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        return self.image(images), self.text(texts)


class Scaled(nn.Module):
    """open_clip's model has the scale, its loss takes it."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.log_scale, self.loss = nn.Parameter(torch.tensor(2.0)), loss

    def forward(self, images: Tensor, texts: Tensor) -> Tensor:
        found = self.loss(images, texts, self.log_scale.exp(), output_dict=True)
        assert isinstance(found, dict)
        return found["contrastive_loss"]


def open_clip(rank: int, folder: str) -> list[Tensor]:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Towers(Scaled(ClipLoss(SPEC, rank=rank, world_size=2))))
    rows, optimizer = Rows(), torch.optim.SGD(model.parameters(), RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(rows.images[shares(rank)], rows.texts[shares(rank)])["loss"].backward()
        optimizer.step()
    return list(model.parameters())


class Theirs(nn.Module):
    """open_clip's own loss, which gets normalised features."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        from open_clip.loss import ClipLoss

        self.loss = ClipLoss(local_loss=True, gather_with_grad=True, rank=rank, world_size=2)

    def forward(self, images: Tensor, texts: Tensor, scale: Tensor, **named: Any) -> Any:
        return self.loss(normalize(images), normalize(texts), scale, **named)


def open_clip_itself(rank: int, folder: str) -> list[Tensor]:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Towers(Scaled(Theirs(rank))))
    rows, optimizer = Rows(), torch.optim.SGD(model.parameters(), RATE)
    own = slice(0, PAIRS // 2) if rank == 0 else slice(PAIRS // 2, PAIRS)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(rows.images[own], rows.texts[own])["loss"].backward()
        optimizer.step()
    return list(model.parameters())


def sentences(rank: int, folder: str) -> list[Tensor]:
    """Their trainer, with a column of hard negatives."""
    import datasets
    from sentence_transformers import (
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )

    model = _small_model()
    loss = SentenceTransformerLoss(model, SPEC, gather_across_devices=True)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=folder, per_device_train_batch_size=3, num_train_epochs=STEPS,
        learning_rate=RATE, lr_scheduler_type="constant", optim="sgd", max_grad_norm=0.0,
        use_cpu=True, ddp_backend="gloo", report_to=[], save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    data = datasets.Dataset.from_dict({"image": LEFT, "caption": RIGHT, "hard": RIGHT[::-1]})
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=loss).train()
    return list(loss.parameters())


def sentences_alone() -> list[Tensor]:
    model = _small_model()
    loss = SentenceTransformerLoss(model, SPEC)
    optimizer = torch.optim.SGD(loss.parameters(), RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss([model.tokenize(LEFT), model.tokenize(RIGHT), model.tokenize(RIGHT[::-1])]).backward()
        optimizer.step()
    return list(loss.parameters())


def process(rank: int, port: int, folder: str, loop: Callable[[int, str], list[Tensor]]) -> None:
    """As torchrun starts it."""
    told = (rank, 2, rank, 2, "127.0.0.1", port, 0)
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GROUP_RANK"
    os.environ |= dict(zip(names.split(), map(str, told), strict=True))
    os.environ |= {"TORCHELASTIC_RUN_ID": "test", "ACCELERATE_USE_CPU": "true"}
    torch.set_num_threads(1)
    trained = [p.detach() for p in loop(rank, folder) if p.requires_grad]
    torch.save(trained, Path(folder, f"{rank}.pt"))


def _metric_learning() -> nn.Module:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    return from_metric_learning(losses.MultiSimilarityLoss())


LOOPS: dict[str, tuple[str, Callable[..., list[Tensor]], Callable[[], list[Tensor]]]] = {
    "DDP": ("torch", plain, lambda: alone(simgrad.objective(SPEC))),
    "Accelerate": ("accelerate", accelerate, lambda: alone(simgrad.objective(SPEC))),
    "Hugging Face Trainer": ("accelerate", trainer, lambda: alone(simgrad.objective(SPEC))),
    "Lightning": ("pytorch_lightning", lightning, lambda: alone(simgrad.objective(SPEC))),
    "labels": ("torch", by_label, lambda: alone(ByLabel(MetricLearningLoss(SPEC)))),
    "pytorch-metric-learning": (
        "pytorch_metric_learning", their_loss, lambda: alone(_metric_learning()),
    ),
    "open_clip's signature": ("torch", open_clip, lambda: alone(Scaled(ClipLoss(SPEC)))),
    "open_clip": ("open_clip", open_clip_itself, lambda: alone(Scaled(ClipLoss(SPEC)))),
    "sentence-transformers": ("sentence_transformers", sentences, sentences_alone),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", LOOPS)
def test_two_processes_train_as_one(name: str, tmp_path: Path) -> None:
    package, loop, one = LOOPS[name]
    pytest.importorskip(package, reason=f"no {package} (open_clip needs torchvision)")
    crew = started(process, 2, free_port(), str(tmp_path), loop)
    wanted = [p.detach() for p in one() if p.requires_grad]
    for each in crew:
        each.join(150)
        assert each.exitcode == 0
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for ours, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
