"""Forms of the published models that their options offer, against loops from the authors' formulas.

A checkpoint is made as their code would save it, of torch's own layers, and imported.
"""

import argparse
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from simgrad.models.networks.cross_attention import RAW_NORMS
from simgrad.models.networks.vsrn import Captioner
from simgrad.models.published.checkpoints import convert, read_published_checkpoint
from tests.models import reference as ref
from tests.models.reference import Array

WORDS, SIZE, WORD, WIDTH, REGIONS = 20, 6, 5, 7, 4
LENGTHS = [5, 1, 3]
Weights = dict[str, Tensor]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def text_encoder(layers: int, two_way: bool) -> nn.ModuleDict:
    rnn = nn.GRU(WORD, SIZE, layers, batch_first=True, bidirectional=two_way)
    return nn.ModuleDict({"embed": nn.Embedding(WORDS, WORD), "rnn": rnn})


def states(encoder: nn.ModuleDict, ids: Tensor) -> Array:
    """One caption: every state of the last layer; of a two-way GRU the mean of both ways."""
    found, _ = encoder["rnn"](encoder["embed"](ids[None]))
    both = found[0].chunk(2, dim=-1) if encoder["rnn"].bidirectional else (found[0],)
    return ref.array(sum(both) / len(both))


def batch() -> tuple[Tensor, Tensor]:
    """Word ids, more padding than any caption needs."""
    tokens = torch.randint(1, WORDS, (len(LENGTHS), max(LENGTHS) + 2))
    for row, length in enumerate(LENGTHS):
        tokens[row, length:] = 0
    return tokens, torch.tensor(LENGTHS)


def similarities(
    image: Weights, text: nn.Module, options: dict[str, Any], to: Path
) -> tuple[Array, Array, Tensor]:
    """What the imported model says, of which regions and captions."""
    content = {"model": [image, text.state_dict()], "opt": argparse.Namespace(**options)}
    torch.save(content, to / "model_best.pth.tar")
    model = convert(read_published_checkpoint(to / "model_best.pth.tar")).model
    images, (tokens, lengths) = torch.randn(3, REGIONS, WIDTH), batch()
    with torch.no_grad():
        return ref.array(model(images, tokens, lengths)), ref.array(images), tokens


def captions(text: nn.ModuleDict, tokens: Tensor) -> list[Array]:
    return [states(text, row[:n]) for row, n in zip(tokens, LENGTHS, strict=True)]


SCAN: list[dict[str, Any]] = [
    *(
        {"raw_feature_norm": norm, "cross_attn": way}
        for norm in RAW_NORMS
        for way in ("t2i", "i2t")
    ),
    {"no_txtnorm": True},
    {"no_txtnorm": True, "cross_attn": "i2t", "raw_feature_norm": "no_norm"},
    {"no_imgnorm": True, "no_txtnorm": True, "raw_feature_norm": "softmax"},
    {"num_layers": 2},
    {"num_layers": 2, "bi_gru": False},
]


@pytest.mark.parametrize("form", SCAN, ids=str)
def test_scan(form: dict[str, Any], tmp_path: Path) -> None:
    options = {
        "cross_attn": "t2i", "agg_func": "Mean", "lambda_softmax": 9.0, "num_layers": 1,
        "bi_gru": True, "raw_feature_norm": "clipped_l2norm", **form,
    }  # fmt: skip
    fc, text = nn.Linear(WIDTH, SIZE), text_encoder(options["num_layers"], options["bi_gru"])
    weights = {f"fc.{name}": weight for name, weight in fc.state_dict().items()}
    found, images, tokens = similarities(weights, text, options, tmp_path)
    for j, words in enumerate(captions(text, tokens)):
        for i, regions in enumerate(images @ ref.array(fc.weight).T + ref.array(fc.bias)):
            a = regions if options.get("no_imgnorm") else ref.unit(regions)
            b = words if options.get("no_txtnorm") else ref.unit(words)
            queries, context = (b, a) if options["cross_attn"] == "t2i" else (a, b)
            norm = options["raw_feature_norm"]
            expected = np.mean(ref.attention_cosines(queries, context, 9.0, norm=norm))
            assert found[i, j] == pytest.approx(expected, abs=1e-5)


class Relations(nn.Module):
    """VSRN's layers by the names of its file; weights only."""

    def __init__(self) -> None:
        super().__init__()
        self.theta, self.phi, self.g = (nn.Conv1d(SIZE, SIZE, 1) for _ in range(3))
        self.W = nn.Sequential(nn.Conv1d(SIZE, SIZE, 1), nn.BatchNorm1d(SIZE))
        for part in (self.W[1].weight, self.W[1].bias, self.W[1].running_mean):
            part.data.normal_()

    def slowly(self, regions: Array) -> Array:
        """(regions, d): v + BN(W sum_j theta_i.phi_j / N g_j)"""
        theta, phi, g = (_convolved(part, regions) for part in (self.theta, self.phi, self.g))
        seen = np.zeros_like(regions)
        for i in range(len(regions)):
            for j in range(len(regions)):
                seen[i] += theta[i] @ phi[j] / len(regions) * g[j]
        norm = self.W[1]
        made = _convolved(self.W[0], seen) - ref.array(norm.running_mean)
        made = made / np.sqrt(ref.array(norm.running_var) + norm.eps)
        return regions + made * ref.array(norm.weight) + ref.array(norm.bias)


def _convolved(part: Any, x: Array) -> Array:
    return x @ ref.array(part.weight)[:, :, 0].T + ref.array(part.bias)


VSRN: list[dict[str, Any]] = [
    {},
    {"use_abs": True},
    {"measure": "order"},
    {"measure": "order", "use_abs": True, "no_imgnorm": True},
    {"num_layers": 2},
]


@pytest.mark.parametrize("form", VSRN, ids=str)
def test_vsrn(form: dict[str, Any], tmp_path: Path) -> None:
    options = {"measure": "cosine", "num_layers": 1, "data_name": "coco_precomp", **form}
    parts = {f"Rs_GCN_{i + 1}": Relations() for i in range(4)}
    rnn = nn.GRU(SIZE, SIZE, batch_first=True)
    image = nn.ModuleDict({"fc": nn.Linear(WIDTH, SIZE), "img_rnn": rnn, **parts})
    text = text_encoder(options["num_layers"], two_way=False)
    found, images, tokens = similarities(image.state_dict(), text, options, tmp_path)
    fc = image["fc"]
    for i, regions in enumerate(images @ ref.array(fc.weight).T + ref.array(fc.bias)):
        regions = ref.unit(regions, axis=0)  # over the regions, as its code does
        for part in parts.values():
            regions = part.slowly(regions)
        vector = ref.gru(ref.unit(regions, axis=0), rnn)[-1]
        vector = vector if options.get("no_imgnorm") else ref.unit(vector)
        for j, words in enumerate(captions(text, tokens)):
            a, b = vector, ref.unit(words[-1])
            if options.get("use_abs"):
                a, b = np.abs(a), np.abs(b)
            above = np.maximum(b - a, 0)
            expected = -np.linalg.norm(above) if options["measure"] == "order" else a @ b
            assert found[i, j] == pytest.approx(expected, abs=1e-5)


def test_the_captioner_learns_one_pad_after_the_end() -> None:
    """VSRN's mask covers the first zero: so many words as a caption has tokens are learnt, the
    last of them <pad>; then nothing."""
    captioner = Captioner(WIDTH, WORDS, hidden=SIZE, word_dimension=WORD, dropout=0.0)
    regions, (tokens, lengths) = torch.randn(len(LENGTHS), REGIONS, WIDTH), batch()
    total = 0.0
    for row, length in enumerate(LENGTHS):
        read = ref.gru(ref.array(captioner.project(regions[row])), captioner.reader)
        state = read[-1]
        written = [*tokens[row, :length].tolist(), 0]
        for word, following in itertools.pairwise(written):
            asked = ref.array(captioner.of_state(torch.from_numpy(state).float()))
            keys = ref.array(captioner.of_region(torch.from_numpy(read).float()))
            focus = ref.softmax(np.tanh(keys + asked) @ ref.array(captioner.score.weight)[0])
            seen = ref.array(captioner.embed.weight)[word], focus @ read
            given = torch.from_numpy(np.concatenate(seen)).float()[None]
            state = ref.array(captioner.writer(given, torch.from_numpy(state).float()[None]))[0]
            logits = ref.array(captioner.out.weight) @ state + ref.array(captioner.out.bias)
            total -= float(np.log(ref.softmax(logits)[following]))
    found = captioner(regions, tokens, lengths).item()
    assert found == pytest.approx(total / len(LENGTHS), rel=1e-5)
    longer = torch.nn.functional.pad(tokens, (0, 4))
    assert captioner(regions, longer, lengths).item() == pytest.approx(found, rel=1e-6)
