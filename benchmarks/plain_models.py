"""The models as anybody would write them in PyTorch: packed GRUs, loops over captions, float32.

Helpers of `models.py` and `training.py`: `PLAIN[name]` is a module of `forward(images, tokens,
lengths) -> S`. Padding is packed away on the host, relations are convolutions, GPO and attention
follow the equations step by step.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

WORDS, REGIONS, WIDTH = 10_000, 36, 2048


class Gru(nn.Module):
    """Words to the last state."""

    def __init__(self, hidden: int, each: int = 300) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, each)
        self.rnn = nn.GRU(each, hidden, batch_first=True)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        x = self.embed(tokens)
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        last = (lengths - 1).view(-1, 1, 1).expand(-1, 1, states.shape[-1])
        return normalize(states.gather(1, last).squeeze(1), dim=-1)


class TwoWay(nn.Module):
    """Sequences to states, both directions averaged."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.rnn = nn.GRU(inputs, hidden, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(
            self.rnn(packed)[0], batch_first=True, total_length=x.shape[1]
        )
        half = states.shape[-1] // 2
        return (states[..., :half] + states[..., half:]) / 2


class VsePlusPlus(nn.Module):
    def __init__(self, width: int = WIDTH, dimension: int = 1024, each: int = 300) -> None:
        super().__init__()
        self.fc, self.text = nn.Linear(width, dimension), Gru(dimension, each)

    def forward(self, images: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
        return normalize(self.fc(images), dim=-1) @ self.text(tokens, lengths).T


class Relation(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.theta, self.phi, self.g, self.out = (nn.Conv1d(d, d, 1) for _ in range(4))
        self.norm = nn.BatchNorm1d(d)

    def forward(self, v: Tensor) -> Tensor:
        relations = self.theta(v).transpose(1, 2) @ self.phi(v) / v.shape[2]
        told = (relations @ self.g(v).transpose(1, 2)).transpose(1, 2).contiguous()
        return v + self.norm(self.out(told))


class Vsrn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, 2048)
        self.relations = nn.Sequential(*(Relation(2048) for _ in range(4)))
        self.rnn = nn.GRU(2048, 2048, batch_first=True)
        self.text = Gru(2048)

    def forward(self, images: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
        v = normalize(self.fc(images), dim=-1).transpose(1, 2)
        v = normalize(self.relations(v).transpose(1, 2), dim=-1)
        return normalize(self.rnn(v)[1][0], dim=-1) @ self.text(tokens, lengths).T


class Gpo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru, self.linear = TwoWay(32, 32), nn.Linear(32, 1, bias=False)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        from simgrad.models.networks.vse_infinity import rank_code

        n, k, _ = features.shape
        mask = torch.arange(k, device=features.device) < lengths[:, None]
        codes = rank_code(k, 32).to(features.device).repeat(n, 1, 1) * mask[..., None]
        scores = self.linear(self.gru(codes, lengths)).masked_fill(~mask[..., None], -10000)
        weights = torch.softmax(scores / 0.1, dim=1)
        ordered = features.masked_fill(~mask[..., None], -10000).sort(dim=1, descending=True)[0]
        return (ordered.masked_fill(~mask[..., None], 0) * weights).sum(1)


class VseInfinity(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, 1024)
        self.first, self.norm, self.second = (
            nn.Linear(WIDTH, 512), nn.BatchNorm1d(512), nn.Linear(512, 1024)
        )  # fmt: skip
        self.embed, self.words = nn.Embedding(WORDS, 300), TwoWay(300, 1024)
        self.image_pool, self.text_pool = Gpo(), Gpo()

    def forward(self, images: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
        n, k, _ = images.shape
        kept, sizes = [], []
        for image in images:  # size augmentation, one image at a time
            left = image[torch.rand(k, device=image.device) > 0.2]
            sizes.append(len(left))
            kept.append(torch.cat([left, image.new_zeros(k - len(left), WIDTH)]))
        images = torch.stack(kept)
        hidden = torch.relu(self.norm(self.first(images).flatten(0, 1)))
        features = self.fc(images) + self.second(hidden).view(n, k, -1)
        v = normalize(self.image_pool(features, torch.tensor(sizes, device=images.device)), dim=-1)
        t = self.text_pool(self.words(self.embed(tokens), lengths), lengths)
        return v @ normalize(t, dim=-1).T


def seen(queries: Tensor, context: Tensor, smooth: float, focal: bool) -> Tensor:
    """What each query sees of its context, for a batch of pairs."""
    products = nn.functional.leaky_relu(context @ queries.transpose(1, 2), 0.1)
    scores = normalize(products, dim=2).transpose(1, 2)
    weights = torch.softmax(scores * smooth, dim=-1)
    if focal:
        above = weights * weights.shape[-1] - weights.sum(-1, keepdim=True) > 0
        weights = weights * above
        weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-12)
    return weights @ context


class Sets(nn.Module):
    """SCAN (t-i, LSE) and BFAN (equal): a loop over captions, as published."""

    def __init__(self, focal: bool) -> None:
        super().__init__()
        self.focal = focal
        self.fc = nn.Linear(WIDTH, 1024)
        self.embed, self.words = nn.Embedding(WORDS, 300), TwoWay(300, 1024)

    def forward(self, images: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
        regions = normalize(self.fc(images), dim=-1)
        words = normalize(self.words(self.embed(tokens), lengths), dim=-1)
        return loop_over_captions(regions, words, lengths.tolist(), focal=self.focal)


def loop_over_captions(
    regions: Tensor, words: Tensor, lengths: list[int], *, focal: bool = False
) -> Tensor:
    columns = []
    for caption, length in zip(words, lengths, strict=True):
        query = caption[:length].expand(len(regions), -1, -1)
        look = torch.cosine_similarity
        if focal:
            one = look(query, seen(query, regions, 20.0, True), dim=-1).mean(1)
            columns.append(one + look(regions, seen(regions, query, 20.0, True), dim=-1).mean(1))
        else:
            cosines = look(query, seen(query, regions, 9.0, False), dim=-1)
            columns.append((6.0 * cosines).logsumexp(1) / 6.0)
    return torch.stack(columns, dim=1)


PLAIN: dict[str, Callable[[], nn.Module]] = {
    "vse++": VsePlusPlus,
    "vsrn": Vsrn,
    "vse-infinity": VseInfinity,
    "scan": lambda: Sets(focal=False),
    "bfan": lambda: Sets(focal=True),
}


def triplet_sh(S: Tensor) -> Tensor:
    """The hardest-negative triplet loss of a square batch."""
    own = torch.eye(len(S), dtype=torch.bool, device=S.device)
    diagonal = S.diag()
    rows = (0.2 + S - diagonal[:, None]).clamp_min(0).masked_fill(own, 0)
    columns = (0.2 + S - diagonal).clamp_min(0).masked_fill(own, 0)
    return rows.max(1)[0].sum() + columns.max(0)[0].sum()


def adap_off_quin(S: Tensor) -> Tensor:
    """AOQ's adaptive quintuplets: of images and captions, a third is the batch, a third was drawn
    for it, a third are the partners of what was drawn."""
    n = len(S) // 3
    batch, own, pair, partner = S[:n, :n], *S.diag().split(n)
    others = batch.masked_fill(torch.eye(n, dtype=torch.bool, device=S.device), -10.0)
    total = (pair - own).clamp_min(0) + (partner - own).clamp_min(0)
    for online, offline in (
        (others.max(1)[0], S[:n, n : 2 * n].diag()),
        (others.max(0)[0], S[n : 2 * n, :n].diag()),
    ):
        weight = 1.5 - (offline - online) / 0.3
        total = total + weight * (0.2 - own + online).clamp_min(0) + (offline - own).clamp_min(0)
    return total.sum()


def operations(model: nn.Module, *batch: Tensor) -> float:
    """Of a training step's large products: forward, and twice that backward."""
    total = 0.0

    def count(module: Any, given: tuple[Any, ...], _: Any) -> None:
        nonlocal total
        x = given[0].data if hasattr(given[0], "batch_sizes") else given[0]  # packed: words alone
        # A convolution of length one has its channels in the middle.
        wide = x.shape[1] if isinstance(module, nn.Conv1d) else x.shape[-1]
        weights = sum(p.numel() for name, p in module.named_parameters() if "weight" in name)
        total += 3 * 2 * weights * x.numel() / wide

    kinds = (nn.Linear, nn.Conv1d, nn.GRU)
    hooks = [m.register_forward_hook(count) for m in model.modules() if isinstance(m, kinds)]
    with torch.no_grad():
        model(*batch)
    for hook in hooks:
        hook.remove()
    return total
