"""VSRN's captioner: generate a caption from regions, attending to them at each word.

A GRU reads the regions; a second GRU writes the caption, fed with the true previous word and
with regions weighed by additive attention against its state. As in VSRN's code it also learns that
one <pad> follows <end>. It is trained alongside and never used for retrieval.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simgrad.models.networks.layers import valid
from simgrad.models.networks.recurrent import gru_states

_PAD = 0  # what every tokenizer fills captions up with


class Captioner(nn.Module):
    """Regions (m, k, d) and captions (m, L) -> the loss of writing them."""

    def __init__(
        self, dimension: int, words: int, *, hidden: int, word_dimension: int, dropout: float
    ) -> None:
        super().__init__()
        self.project = nn.Linear(dimension, hidden)
        nn.init.xavier_normal_(self.project.weight)
        self.dropout = nn.Dropout(dropout)
        self.reader = nn.GRU(hidden, hidden, batch_first=True)
        self.embed = nn.Embedding(words, word_dimension)
        # Additive attention: tanh(W [region, state]) · u, with W split over its two inputs.
        self.of_region = nn.Linear(hidden, hidden)
        self.of_state = nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)
        self.writer = nn.GRUCell(hidden + word_dimension, hidden)
        self.out = nn.Linear(hidden, words)
        nn.init.xavier_normal_(self.out.weight)

    def forward(self, regions: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
        read = gru_states(self.reader, self.dropout(self.project(regions)))
        state = read[:, -1]
        words = self.embed(tokens)
        keys = self.of_region(read)  # the same for every word
        states = []
        for step in range(words.shape[1]):
            focus = self.score(torch.tanh(keys + self.of_state(state)[:, None])).softmax(dim=1)
            seen = (focus * read).sum(1)
            state = self.writer(self.dropout(torch.cat([words[:, step], seen], dim=1)), state)
            states.append(state)
        logits = self.out(torch.stack(states, dim=1))  # (m, L, words)
        real = valid(lengths, tokens.shape[1])
        following = valid(lengths - 1, tokens.shape[1])
        target = torch.where(following, F.pad(tokens[:, 1:], (0, 1)), _PAD)
        losses = F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), reduction="none")
        return (losses * real.flatten()).sum() / len(tokens)
