"""Small batches on a GPU: what is asked for again and again is recorded, and replayed as one.

Up to some thousand pairs a GPU is done before the host has started its operations one by one. The
third time an objective sees a square batch of one shape, its whole calculation is recorded as a
CUDA graph. From then on the vectors are copied to where the graph reads them, it is replayed, and
its results are copied out: the same kernels, the same numbers, a fraction of the waiting.

A graph keeps its memory (at most about a GiB for 8,192 pairs), so an objective has few of them.
`objective.replays = False` does without. Only the package's own rules are recorded, and only if
their parameters are numbers and words: nobody knows what a function reads besides its arguments.
"""

import threading
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from simgrad.core import gpu
from simgrad.objectives.engine.forms import Rule
from simgrad.objectives.engine.tensors import exact_type

_PLAIN = 2  # calls before the recording: kernels are compiled, libraries set up
_GRAPHS = 4  # of an objective
_CALLS = 64  # of an objective that are counted: with other parameters each time they never end
_WORDS = (str, float, int, type(None))  # parameters that say all there is to them
_MOST = 2**26  # similarities: a larger batch keeps a GPU busy by itself

Results = tuple[Tensor, Tensor, Tensor | None, Tensor | None]  # value; by vectors, scale, bias
Calculate = Callable[[Rule, Tensor, Tensor | None, Tensor | None, torch.dtype], Results]


class RecordedAnswer(NamedTuple):
    """The loss of a batch, its gradients, and a sum that is finite if all vectors are."""

    value: Tensor
    gradients: tuple[Tensor | None, ...]  # by images, texts, scale and bias
    total: float


@dataclass
class _Recorded:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, Tensor | None, Tensor | None]  # vectors, scale, bias
    results: Results
    # Captured on a stream of its own, which nothing else uses: libraries have memory per stream.
    stream: torch.cuda.Stream
    total: Tensor  # of all entries of the vectors, on the host
    arrived: torch.cuda.Event
    busy: threading.Lock


_known: WeakKeyDictionary[Rule, dict[Hashable, "int | _Recorded"]] = WeakKeyDictionary()


def replay(
    rule: Rule,
    images: Tensor,
    texts: Tensor,
    affine: tuple[Tensor | None, Tensor | None],
    kind: torch.dtype,
    calculate: Calculate,
) -> RecordedAnswer | None:
    """The loss and its gradients; None: not recorded, or not yet."""
    if not images.is_cuda or not _suits(rule, images, texts, affine):
        return None
    wanted = tuple(x is not None and x.requires_grad for x in affine)
    known = _known.setdefault(rule, {})
    call = _call(rule, images, affine, wanted, kind)
    found = known.get(call, 0)
    if isinstance(found, int):
        graphs = {key: x for key, x in list(known.items()) if isinstance(x, _Recorded)}
        if found < _PLAIN or len(graphs) >= _GRAPHS:
            if len(known) >= _CALLS:
                known = _known[rule] = {**graphs}
            known[call] = min(found + 1, _PLAIN)
            return None
        recorded = _record(rule, (images, texts), affine, wanted, kind, calculate)
        if recorded is None:
            return None
        found = known[call] = recorded
    with found.busy:
        return _replayed(found, images, texts, affine)


def _suits(
    rule: Rule, images: Tensor, texts: Tensor, affine: tuple[Tensor | None, Tensor | None]
) -> bool:
    return (
        rule.replays
        and len(images) * len(texts) <= _MOST
        and type(rule).__module__.startswith("simgrad.")
        and rule.elementwise() is not None
        and not rule.needs_offline
        and all(isinstance(x, _WORDS) for x in rule.settings())
        and (images.shape, images.dtype, images.device) == (texts.shape, texts.dtype, texts.device)
        and all(_fixed(x) or x.device == images.device for x in affine if x is not None)
        and not torch.compiler.is_compiling()
        and not gpu.is_capturing()
    )


def _fixed(x: Tensor) -> bool:
    """A number that is known to the host, and part of what is recorded."""
    return x.device.type == "cpu" and not x.requires_grad


def _call(
    rule: Rule,
    images: Tensor,
    affine: tuple[Tensor | None, Tensor | None],
    wanted: tuple[bool, ...],
    kind: torch.dtype,
) -> Hashable:
    """Everything that decides what a graph does."""
    numbers = tuple(float(x) if x is not None and _fixed(x) else None for x in affine)
    stream = torch.cuda.current_stream(images.device).cuda_stream
    return (
        (rule.settings(), rule.mean, rule.direction, numbers, wanted),
        (images.shape, images.dtype, kind, images.device, stream),
        (torch.backends.cuda.matmul.fp32_precision, torch.are_deterministic_algorithms_enabled()),
        torch.is_inference_mode_enabled(),  # what is made in it cannot be written to outside
    )


def _record(
    rule: Rule,
    vectors: tuple[Tensor, Tensor],
    affine: tuple[Tensor | None, Tensor | None],
    wanted: tuple[bool, ...],
    kind: torch.dtype,
    calculate: Calculate,
) -> _Recorded | None:
    """A graph of the calculation; None, said once, where it cannot be captured."""
    own = [
        x if x is None or _fixed(x) else x.detach().clone().requires_grad_(w)
        for x, w in zip(affine, wanted, strict=True)
    ]
    inputs = torch.cat([x.detach() for x in vectors]), own[0], own[1]
    device, graph = inputs[0].device, torch.cuda.CUDAGraph()
    try:
        with gpu.capturing, torch.cuda.device(device):
            torch.cuda.synchronize(device)
            aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            with torch.cuda.stream(aside):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    results = calculate(rule, *inputs, kind)
                finally:
                    graph.capture_end()
    except RuntimeError as error:  # out of memory, or something that no graph can hold
        rule.replays = False  # before the warning, which may be made an error
        warnings.warn(
            f"{rule}: its steps cannot be recorded here ({str(error)[:200]}); operations are "
            "started one by one, more slowly.",
            stacklevel=6,
        )
        return None
    total = torch.empty((), dtype=exact_type(inputs[0]), pin_memory=True)
    arrived: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    return _Recorded(graph, inputs, results, aside, total, arrived, threading.Lock())


def _replayed(
    found: _Recorded, images: Tensor, texts: Tensor, affine: tuple[Tensor | None, Tensor | None]
) -> RecordedAnswer:
    vectors, *own = found.inputs
    torch.cat((images.detach(), texts.detach()), out=vectors)
    for to, x in zip(own, affine, strict=True):
        if to is not None and x is not None and not _fixed(to):
            to.copy_(x)
    # On its way before the graph, so that nobody waits for that.
    found.total.copy_(vectors.sum(dtype=exact_type(vectors)), non_blocking=True)
    found.arrived.record(torch.cuda.current_stream(vectors.device))
    found.graph.replay()
    # The next replay writes over these.
    value, by_vectors, by_scale, by_bias = (None if x is None else x.clone() for x in found.results)
    assert value is not None
    assert by_vectors is not None
    found.arrived.synchronize()
    gradients = (*by_vectors.tensor_split(2), by_scale, by_bias)
    return RecordedAnswer(value, gradients, float(found.total))
