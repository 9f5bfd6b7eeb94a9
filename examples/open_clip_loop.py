"""An objective in open_clip's training loop: pip install open_clip_torch

    python examples/open_clip_loop.py

`simgrad.integrations.ClipLoss` is called as open_clip's own loss is. With `rank` and `world_size`
the batches of all processes are one batch. What to see: the loss falls, and the model's own
`logit_scale` is trained by an objective that learns a scale.
"""

import open_clip
import torch
from open_clip.tokenizer import SimpleTokenizer
from tiny_data import PAIRS, captions, train

from simgrad.integrations import ClipLoss

STEPS, SIZE, LONGEST = 20, 32, 24


def small_model(words: int) -> torch.nn.Module:
    """Tiny, with random weights. Put open_clip.create_model_and_transforms(...) in its place."""
    torch.manual_seed(0)
    tower = {"layers": 1, "width": 32}
    return open_clip.CLIP(
        embed_dim=32,
        vision_cfg={**tower, "head_width": 16, "patch_size": 8, "image_size": SIZE},
        text_cfg={**tower, "heads": 2, "context_length": LONGEST, "vocab_size": words},
        output_dict=True,
    )


def main() -> tuple[float, float]:
    tokenizer = SimpleTokenizer(context_length=LONGEST)
    model = small_model(tokenizer.vocab_size)
    transform = open_clip.image_transform(SIZE, is_train=False)
    images = torch.stack([transform(train.pictures.picture(i)) for i in range(PAIRS)])
    texts = tokenizer(captions)
    loss = ClipLoss("nt-xent(learned=true)")  # in place of open_clip.ClipLoss()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    values = []
    for step in range(STEPS):
        found = loss(**model(images, texts), output_dict=True)["contrastive_loss"]
        optimizer.zero_grad()
        found.backward()
        optimizer.step()
        values.append(found.item())
        if step % 5 == 0:
            print(f"step {step:2d}  loss {values[-1]:.4f}")
    print(f"loss {values[0]:.4f} -> {values[-1]:.4f}, scale {model.logit_scale.exp().item():.2f}")
    return values[0], values[-1]


if __name__ == "__main__":
    main()
