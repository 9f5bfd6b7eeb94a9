"""BERT inside published checkpoints: its sizes from the shapes, its weights by our names."""

import re
from typing import Any

from simgrad.models.networks.bert import from_transformers
from simgrad.models.published.file import PublishedPart, State


def bert_sizes(part: PublishedPart, start: str) -> tuple[dict[str, Any], int]:
    """Width, layers and heads as our settings call them, and the number of word pieces."""
    name = f"{start}embeddings.word_embeddings.weight"
    hidden = part.size(name, 1)
    numbers = re.findall(rf"{re.escape(start)}encoder\.layer\.(\d+)\.", " ".join(part.names()))
    layers = 1 + max(map(int, numbers), default=-1)
    # Shapes do not tell how many heads there are; published BERTs have one for 64 numbers.
    heads = max(1, hidden // 64)
    return {"bert_hidden": hidden, "bert_layers": layers, "bert_heads": heads}, part.size(name)


def bert_weights(part: PublishedPart, start: str, ours: str) -> State:
    """The weights of a BERT under `start`, as weights of ours."""
    # Constants, and a layer above [CLS] that none of these models runs.
    part.pass_over(rf"{re.escape(start)}(embeddings\.position_ids|pooler\..*)")
    given = {name.removeprefix(start): name for name in part.names() if name.startswith(start)}
    found, read = from_transformers({short: part.peek(name) for short, name in given.items()})
    for short in read:
        part.take(given[short])
    return {f"{ours}.{name}": weight for name, weight in found.items()}
