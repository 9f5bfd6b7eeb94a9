"""GradCache: the exact gradient of a large batch in the memory of a small one.

Gao, Zhang, Han, Callan: Scaling deep contrastive learning batch size under memory limited setup,
RepL4NLP 2021.
1. Encode the batch piece by piece without keeping what the encoders computed.
2. Take the loss of all pieces together, and its gradient for what was encoded.
3. Encode each piece again, this time keeping it, and send that gradient back through it.

Each piece is encoded with the same random numbers and in the same precision both times, so dropout
and autocast do not change between. `Remembered` is what simgrad's own trainer has in common with
`GradCache`, which is for a loop of one's own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from simgrad.core.devices import random_state, set_random_state
from simgrad.core.errors import InputError

T = TypeVar("T")


class Remembered(Generic[T]):
    """Pieces that were encoded without a graph, and the random numbers before each of them."""

    def __init__(
        self, encode: Callable[[slice], T], count: int, size: int, device: torch.device
    ) -> None:
        self.encode, self.device = encode, device
        self.pieces = [slice(k, min(k + size, count)) for k in range(0, count, size)]
        self.parts: list[T] = []
        self._random: list[list[Tensor]] = []
        for piece in self.pieces:
            self._random.append(random_state(device))
            with torch.no_grad():
                self.parts.append(encode(piece))

    def again(self, number: int) -> T:
        """A piece once more, with a graph."""
        with _same_random(self._random[number], self.device):
            return self.encode(self.pieces[number])


@contextmanager
def _same_random(state: list[Tensor], device: torch.device) -> Iterator[None]:
    """As it was when the piece was encoded first; afterwards as if nothing had been drawn."""
    before = random_state(device)
    set_random_state(state, device)
    try:
        yield
    finally:
        set_random_state(before, device)


class GradCache:
    """Encoders that take a batch in pieces of at most `piece` rows.

    An encoder is a module or function from a batch (a tensor, a list of items, or a dict or tuple
    of these) to vectors (n, d). Modules that DistributedDataParallel wraps exchange their gradients
    once. Layers that mix the rows of a batch (batch norm) see pieces, and do so twice.

    Examples:
        >>> network = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout())
        >>> cache = simgrad.integrations.GradCache([network, network], piece=3)
        >>> images, texts = cache.encode(torch.randn(10, 8), torch.randn(10, 8))
        >>> loss = simgrad.objective("nt-xent")(images, texts)  # of all ten
        >>> cache.backward(loss)  # or cache.backward(scaler.scale(loss))
        >>> network[0].weight.grad.shape
        torch.Size([4, 8])
    """

    def __init__(self, encoders: Sequence[Callable[..., Tensor]], piece: int) -> None:
        if not isinstance(piece, int) or piece < 1:
            raise InputError(
                f"GradCache: piece is a whole number of rows from 1 on, not {piece!r}."
            )
        self.encoders, self.piece = list(encoders), piece
        self._sides: list[tuple[Remembered[Tensor], Tensor]] = []  # of the batch in work

    def encode(self, *batches: Any) -> list[Tensor]:
        """What each encoder makes of its batch; take your loss of these, then call `backward`."""
        if len(batches) != len(self.encoders):
            raise InputError(
                f"GradCache has {len(self.encoders)} encoders, and was given {len(batches)} parts."
            )
        self._sides = []
        for encoder, batch in zip(self.encoders, batches, strict=True):
            side = Remembered(_encoding(encoder, batch), _rows(batch), self.piece, _device(batch))
            for part in side.parts:
                if not isinstance(part, Tensor):
                    raise InputError(
                        f"GradCache: an encoder returns a tensor, not a {type(part).__name__}."
                    )
            self._sides.append((side, torch.cat(side.parts).requires_grad_()))
        return [leaf for _, leaf in self._sides]

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of the loss to the encoders' parameters."""
        if not self._sides:
            raise InputError("GradCache: there is no batch: call `encode` first, once for each.")
        loss.backward()  # type: ignore[no-untyped-call]
        sides, self._sides = self._sides, []
        jobs = [
            (k, number) for k, (side, _) in enumerate(sides) for number in range(len(side.pieces))
        ]
        last = {id(self.encoders[k]): (k, number) for k, number in jobs}
        for k, number in jobs:
            encoder, (side, leaf) = self.encoders[k], sides[k]
            if leaf.grad is None:  # the loss does not know it
                continue
            with _no_sync(encoder) if last[id(encoder)] != (k, number) else nullcontext():
                vectors = side.again(number)
                if vectors.requires_grad:  # else nothing of it is trained
                    torch.autograd.backward([vectors], [leaf.grad[side.pieces[number]]])


def _encoding(encoder: Callable[..., Tensor], batch: Any) -> Callable[[slice], Tensor]:
    """Some rows of a batch, encoded in the precision that autocast has now."""
    kinds = {_device(batch).type, "cpu"}
    told = [
        (kind, torch.get_autocast_dtype(kind)) for kind in kinds if torch.is_autocast_enabled(kind)
    ]

    def encode(rows: slice) -> Tensor:
        with ExitStack() as stack:
            for kind, dtype in told:
                # What autocast keeps of the weights has no graph, or one that was used up.
                stack.enter_context(torch.autocast(kind, dtype=dtype, cache_enabled=False))
            return encoder(_cut(batch, rows))

    return encode


def _no_sync(encoder: Any) -> AbstractContextManager[Any]:
    """Gradients stay here until the last piece, where processes exchange them."""
    wait = getattr(encoder, "no_sync", None)
    return wait() if callable(wait) else nullcontext()


def _cut(batch: Any, rows: slice) -> Any:
    if isinstance(batch, Mapping):
        return {key: _cut(part, rows) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_cut(part, rows) for part in batch)
    return batch[rows]


def _leaves(batch: Any) -> list[Any]:
    if isinstance(batch, (Mapping, tuple)):
        parts = batch.values() if isinstance(batch, Mapping) else batch
        return [leaf for part in parts for leaf in _leaves(part)]
    return [batch]


def _rows(batch: Any) -> int:
    counts = {len(leaf) for leaf in _leaves(batch)}
    if len(counts) != 1 or counts == {0}:
        raise InputError(
            f"GradCache: the parts of a batch must have one number of rows, not {sorted(counts)}."
        )
    return counts.pop()


def _device(batch: Any) -> torch.device:
    """Where random numbers are drawn."""
    tensors = [leaf for leaf in _leaves(batch) if isinstance(leaf, Tensor)]
    on_gpu = next((x.device for x in tensors if x.device.type != "cpu"), None)
    if on_gpu is not None:
        return on_gpu
    return (
        torch.device("cuda", torch.cuda.current_device())
        if torch.cuda.is_available()
        else torch.device("cpu")
    )
