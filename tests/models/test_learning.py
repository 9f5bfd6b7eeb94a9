"""Every model learns scenes of the embedded world, with a loss and with written-down weights."""

import numpy as np
import pytest
import torch

import simgrad
from simgrad.data import open_dataset
from simgrad.data.vocabulary import Vocabulary
from simgrad.models import Inputs, build

IMAGES, BATCH = 64, 32
_BERT = "bert_hidden=32, bert_heads=2"
_SWIN = "size=32, swin_width=32, bert_dropout=0, swin_depths=1-1, swin_heads=1-2, swin_window=4"
_CLIP = "size=32, width=32, layers=1, heads=2, patch=8, positions=40"

# spec, what it sees, learning rate, steps
MODELS = {
    "vse++": ("vse++(dimension=64, word_dimension=32)", "global", 5e-3, 30),
    "vse++ order": (
        "vse++(dimension=64, word_dimension=32, measure=order, absolute=true)",
        "global",
        5e-3,
        30,
    ),
    "vsrn": (
        "vsrn(dimension=48, word_dimension=32, layers=2, captioner=true, captioner_dimension=16)",
        "regions",
        3e-3,
        30,
    ),
    "scan": ("scan(aggregate=mean, dimension=32, word_dimension=32)", "regions", 5e-3, 30),
    "bfan": ("bfan(dimension=32, word_dimension=32)", "regions", 5e-3, 30),
    "vse-infinity": (
        "vse-infinity(dimension=64, text=bigru, word_dimension=32)",
        "regions",
        5e-3,
        30,
    ),
    "vse-infinity bert": (
        f"vse-infinity(dimension=64, bert=none, bert_layers=1, bert_lr=1, {_BERT})",
        "regions",
        3e-3,
        30,
    ),
    "x-vlm": (
        f"x-vlm(dimension=32, text_layers=1, fusion_layers=1, {_BERT}, {_SWIN})",
        "pixels",
        2e-3,
        150,
    ),
    "clip": (f"clip(source=none, dimension=32, {_CLIP})", "pixels", 3e-3, 70),
}


class World:
    """A few scenes with one caption each, as tensors."""

    def __init__(self, features: str) -> None:
        split = open_dataset(
            f"scenes(train={IMAGES}, val=8, test=8, size=32, features={features})"
        ).split("train")
        rows = np.arange(IMAGES)
        if split.features is not None:
            self.images = torch.from_numpy(split.features.rows(rows))
            if features == "regions":
                self.images = self.images[:, ::3].contiguous()  # enough to learn from, and faster
        else:
            assert split.pictures is not None
            pictures = [np.asarray(split.pictures.picture(i)) for i in rows]
            self.images = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()
        texts = [split.captions[split.captions_of(i)[0]] for i in rows]
        tokenizer = Vocabulary.build(texts, min_count=1)
        encoded = [tokenizer.encode(text) for text in texts]
        self.lengths = torch.tensor([len(tokens) for tokens in encoded])
        self.tokens = torch.zeros(IMAGES, int(self.lengths.max()), dtype=torch.long)
        for row, tokens in zip(self.tokens, encoded, strict=True):
            row[: len(tokens)] = torch.tensor(tokens)
        kind = {"global": "features"}.get(features, features)
        self.inputs = Inputs(kind, tuple(self.images.shape[1:]), len(tokenizer))


class Batch:
    def __init__(self, world: World, rows: torch.Tensor) -> None:
        self.images, self.tokens = world.images[rows], world.tokens[rows]
        self.lengths = world.lengths[rows]
        self.image_of_caption = torch.arange(len(rows))


def learn(spec: str, features: str, lr: float, steps: int, objective: str) -> float:
    """Train, then count how many images rank their caption first among all."""
    torch.manual_seed(0)
    world = World(features)
    model = build(spec, world.inputs)
    # All negatives first: starting with the hardest alone, most models collapse.
    first, then = simgrad.objective("triplet"), simgrad.objective(objective)
    optimiser = torch.optim.Adam(model.parameter_groups(lr))
    for step in range(steps):
        rule = first if step < steps // 2 else then
        batch = Batch(world, torch.randperm(IMAGES)[:BATCH])
        image = model.encode_images(batch.images)
        caption = model.encode_captions(batch.tokens, batch.lengths)
        loss = rule.on(model.similarities(image, caption))
        own = model.auxiliary_loss(image, caption, batch)
        optimiser.zero_grad()
        (loss if own is None else loss + own).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimiser.step()
    model.eval()
    with torch.no_grad():
        found = model(world.images, world.tokens, world.lengths)
    return float((found.argmax(1) == torch.arange(IMAGES)).float().mean())


# Models see similarities' gradients alone: one shows that both kinds of objective reach it.
OBJECTIVES = ("triplet-sh", "goal(triplet=cir, pair=sig-ms)")
CASES = [("vse++", OBJECTIVES[1]), *((name, OBJECTIVES[i % 2]) for i, name in enumerate(MODELS))]


@pytest.mark.long
@pytest.mark.parametrize(("name", "objective"), CASES)
def test_every_model_learns(name: str, objective: str) -> None:
    """Chance is 1 in 64."""
    assert learn(*MODELS[name], objective) > 0.2
