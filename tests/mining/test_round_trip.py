"""Mined triplets train a model of sentence-transformers, read back by its own trainer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from simgrad.data.candidates import Candidates
from simgrad.mining.mine import mine
from simgrad.mining.tuples import tuples_of, write_tuples

N, K = 12, 2


def world(folder: Path) -> tuple[list[str], list[str], np.ndarray, Candidates]:
    """Pictures of one colour each, captions that name it."""
    files, random = [], np.random.default_rng(0)
    for i in range(N):
        files.append(str(folder / f"{i}.png"))
        Image.new("RGB", (4, 4), tuple(random.integers(0, 255, 3).tolist())).save(files[-1])
    owner = np.arange(N * K) // K
    captions = [f"colour {image} seen {k % K}" for k, image in enumerate(owner)]
    vectors = torch.randn(N, 8, generator=torch.Generator().manual_seed(0))
    texts = vectors[torch.from_numpy(owner)] + 0.1
    return files, captions, owner, mine(vectors, texts, owner, depth=4)


@pytest.mark.parametrize("shape", ["triplet", "n-tuple"])
def test_sentence_transformers_trains_on_them(shape: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("sentence_transformers")
    datasets = pytest.importorskip("datasets")
    losses = pytest.importorskip("sentence_transformers.losses")
    modules = pytest.importorskip("sentence_transformers.models")

    class Both(modules.InputModule):  # type: ignore[misc, name-defined]
        """Words as bags of letters, pictures as their mean colour, into one space."""

        save_in_root = False

        def __init__(self) -> None:
            super().__init__()
            self.text, self.image = nn.Linear(128, 8), nn.Linear(3, 8)

        @property
        def modalities(self) -> list[str]:
            return ["text", "image"]

        def preprocess(self, inputs: list[Any], **_: Any) -> dict[str, Tensor]:
            if isinstance(inputs[0], str):
                return {"input_ids": torch.tensor([_letters(text) for text in inputs])}
            return {"pixel_values": torch.tensor([_colour(picture) for picture in inputs])}

        tokenize = preprocess

        def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
            if "input_ids" in features:
                features["sentence_embedding"] = self.text(features["input_ids"])
            else:
                features["sentence_embedding"] = self.image(features["pixel_values"])
            return features

        def get_embedding_dimension(self) -> int:
            return 8

        get_sentence_embedding_dimension = get_embedding_dimension

        def save(self, *_: Any, **__: Any) -> None: ...

    files, captions, owner, found = world(tmp_path)
    made = tuples_of(found, owner, "t2i", shape, num_negatives=2)
    write_tuples(tmp_path / "tuples", made, files, captions)
    data = datasets.load_from_disk(str(tmp_path / "tuples"))
    model = transformers.SentenceTransformer(modules=[Both()], device="cpu")
    before = model[0].image.weight.detach().clone()
    trainer = transformers.SentenceTransformerTrainer(
        model=model,
        args=transformers.SentenceTransformerTrainingArguments(
            output_dir=str(tmp_path / "out"),
            max_steps=3,
            per_device_train_batch_size=4,
            learning_rate=0.05,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=data,
        loss=losses.MultipleNegativesRankingLoss(model),
    )
    result = trainer.train()
    assert np.isfinite(result.training_loss)
    assert not torch.equal(before, model[0].image.weight)


def _letters(text: str) -> list[float]:
    return [float(text.count(chr(i))) for i in range(128)]


def _colour(picture: Any) -> list[float]:
    return (np.asarray(picture.convert("RGB")).reshape(-1, 3).mean(0) / 255).tolist()
