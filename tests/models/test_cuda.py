"""On a GPU: the same similarities as on a CPU, and steps that can be captured as CUDA graphs."""

import pytest
import torch

import simgrad
from simgrad.models import build
from tests.models.small import SMALL, CaptionBatch, captions, images, small

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def on_gpu(batch: CaptionBatch) -> CaptionBatch:
    parts = (batch.tokens, batch.lengths, batch.image_of_caption)
    return CaptionBatch(*(part.cuda() for part in parts))


@pytest.mark.parametrize("name", SMALL)
def test_similarities_agree_with_the_cpu(name: str) -> None:
    # To a single word BFAN finds all regions equally relevant, so that rounding chooses among them.
    model, batch = small(name), captions(shortest=2 if name.startswith("bfan") else 1)
    x = images(model.inputs)
    # cuDNN's GRUs round to TF32 unless told: BFAN leaves out regions by a threshold, and a region
    # at the threshold would be in on one device and out on the other.
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        expected = model(x, batch.tokens, batch.lengths)
        moved = on_gpu(batch)
        found = model.cuda()(x.cuda(), moved.tokens, moved.lengths).cpu()
    assert (found - expected).abs().max() < 1e-4


@pytest.mark.parametrize("name", SMALL)
def test_a_step_can_be_captured(name: str) -> None:
    """A captured step reads new data from the same place, and changes weights as a plain one."""
    spec, inputs = SMALL[name]
    torch.manual_seed(0)
    model = build(spec, inputs).cuda().train()
    rule = simgrad.objective("triplet-sh")
    x, batch = images(inputs, n=5).cuda(), on_gpu(captions())
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-2)

    def step() -> torch.Tensor:
        optimiser.zero_grad(set_to_none=False)
        image = model.encode_images(x)
        caption = model.encode_captions(batch.tokens, batch.lengths)
        value = rule.on(model.similarities(image, caption), batch.image_of_caption)
        own = model.auxiliary_loss(image, caption, batch)
        (value if own is None else value + own).backward()
        optimiser.step()
        return value.detach()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = step()
    first = []
    for seed in (5, 6):
        x.copy_(images(inputs, n=5, seed=seed))
        before = [p.clone() for p in model.parameters() if p.requires_grad]
        graph.replay()
        first.append(float(value))
        after = [p for p in model.parameters() if p.requires_grad]
        assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
        assert all(torch.isfinite(p).all() for p in after)
    assert first[0] != first[1]
