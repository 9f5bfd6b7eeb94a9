"""What the scripts train on: features and captions of drawn scenes, made on the fly."""

import torch
from torch import Tensor

import simgrad

_SPLIT = simgrad.data.open_dataset("scenes(train=128, val=1, test=1, features=global)")
train = _SPLIT.split("train")
PAIRS = train.num_images
captions = [train.captions[int(train.captions_of(i)[0])] for i in range(PAIRS)]  # one of each
features = torch.as_tensor(train.features.rows(range(PAIRS)))
vocabulary = simgrad.data.Vocabulary.build(captions, min_count=1)


def _words() -> Tensor:
    rows = [torch.tensor(vocabulary.encode(caption)) for caption in captions]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


words = _words()


class Towers(torch.nn.Module):
    """As small as can be: a linear map of the features, the mean of the word vectors."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.image = torch.nn.Linear(features.shape[1], width)
        self.text = torch.nn.EmbeddingBag(len(vocabulary), width)

    def forward(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        return self.image(images), self.text(texts)
