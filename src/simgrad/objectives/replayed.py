"""Small batches on a GPU: what is asked for again and again is recorded, and replayed as one.

Up to some thousand pairs a GPU is done before the host has started its 30 to 90 operations one by
one. The third time an objective sees the same shapes, its whole calculation is recorded as a CUDA
graph. From then on the vectors are copied to where the graph reads them, it is replayed, and its
results are copied out: the same kernels, the same numbers, a fraction of the waiting.

A graph keeps its memory (at most about a GiB for 8,192 pairs), so an objective has few of them.
`objective.replays = False` does without. Only the package's own rules are recorded, and only if
their parameters are numbers and words: nobody knows what a function reads besides its arguments.
"""

import threading
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from simgrad.core.gpu import capturing
from simgrad.objectives import fused
from simgrad.objectives.base import Objective
from simgrad.objectives.tensors import exact_type, product_type

_PLAIN = 2  # calls before the recording: kernels are compiled, libraries set up
_GRAPHS = 4  # of an objective
_PLAINLY = (str, float, int, type(None))  # parameters that say all there is to them
_CALLS = 64  # of an objective that are counted: with other parameters each time they never end
# Similarities of a batch that is recorded. A larger one keeps a GPU busy by itself; and a graph
# would keep several matrices of that size, with fused kernels one.
_MOST, _MOST_FUSED = 2**24, 2**26


class Answer(NamedTuple):
    """The loss of a batch, and its derivatives, both still to be multiplied by `share`."""

    share: float
    value: Tensor
    vectors: Tensor  # by the images and texts
    scale: Tensor | None
    bias: Tensor | None


Given = tuple[Tensor, Tensor, Tensor | None, Tensor | None]  # images, texts, scale, bias
Inputs = tuple[Tensor, Tensor | None, Tensor | None]  # the same, images and texts as one
Calculate = Callable[[Tensor, Tensor | None, Tensor | None], Answer]


@dataclass
class _Recorded:
    graph: torch.cuda.CUDAGraph
    inputs: Inputs
    answer: Answer
    # Captured on a stream of its own, which nothing else uses: libraries have memory per stream.
    stream: torch.cuda.Stream
    total: Tensor  # of all entries of the vectors, on the host
    arrived: torch.cuda.Event
    busy: threading.Lock


_known: WeakKeyDictionary[Objective, dict[Hashable, "int | _Recorded"]] = WeakKeyDictionary()


def suits(
    objective: Objective, images: Tensor, texts: Tensor, scale: Tensor | None, bias: Tensor | None
) -> bool:
    """Whether a square batch without anything special may be recorded."""
    return (
        images.is_cuda
        and objective.replays
        and _small(objective, images, len(images) * len(texts))
        and type(objective).__module__.startswith("simgrad.")
        and objective.stream() is not None
        and not objective.needs_offline
        and all(isinstance(x, _PLAINLY) for x in _parameters(objective))
        and (images.shape, images.dtype, images.device) == (texts.shape, texts.dtype, texts.device)
        and all(_fixed(x) or x.device == images.device for x in (scale, bias) if x is not None)
        and not torch.compiler.is_compiling()
        and not torch.cuda.is_current_stream_capturing()
    )


def _small(objective: Objective, images: Tensor, similarities: int) -> bool:
    if similarities <= _MOST:
        return True
    stream = objective.stream()
    return (
        similarities <= _MOST_FUSED
        and stream is not None
        and fused.has_kernels(stream, product_type(images), images.device, similarities)
    )


def _parameters(objective: Objective) -> tuple[object, ...]:
    return tuple(getattr(objective, f.name) for f in fields(objective))  # type: ignore[arg-type]


def _fixed(x: Tensor) -> bool:
    """A number that is known to the host, and part of what is recorded."""
    return x.device.type == "cpu" and not x.requires_grad


def replay(
    objective: Objective, given: Given, kind: torch.dtype, calculate: Calculate
) -> tuple[Answer, float] | None:
    """The answer, and the sum of all vectors' entries; None: not recorded (yet)."""
    known = _known.setdefault(objective, {})
    call = _call(objective, given, kind)
    found = known.get(call, 0)
    if isinstance(found, int):
        graphs = {key: x for key, x in list(known.items()) if isinstance(x, _Recorded)}
        if found < _PLAIN or len(graphs) >= _GRAPHS:
            if len(known) >= _CALLS:
                known = _known[objective] = {**graphs}
            known[call] = min(found + 1, _PLAIN)
            return None
        recorded = _record(objective, given, calculate)
        if recorded is None:
            return None
        found = known[call] = recorded
    with found.busy:
        return _replayed(found, given)


def _call(objective: Objective, given: Given, kind: torch.dtype) -> Hashable:
    """Everything that decides what a graph does."""
    images, _, *affine = given
    stream = torch.cuda.current_stream(images.device).cuda_stream
    return (
        _parameters(objective),
        tuple(x if x is None else _decides(x) for x in affine),
        (images.shape, images.dtype, kind, images.device, stream),
        (torch.backends.cuda.matmul.fp32_precision, torch.are_deterministic_algorithms_enabled()),
        torch.is_inference_mode_enabled(),  # what is made in it cannot be written to outside
    )


def _decides(x: Tensor) -> Hashable:
    return float(x) if _fixed(x) else (x.dtype, x.requires_grad)


def _record(objective: Objective, given: Given, calculate: Calculate) -> _Recorded | None:
    """A graph of the calculation; None, said once, where it cannot be captured."""
    images, texts, scale, bias = given
    inputs = torch.cat((images, texts)), _own(scale), _own(bias)
    device, graph = images.device, torch.cuda.CUDAGraph()
    try:
        with capturing, torch.cuda.device(device):
            torch.cuda.synchronize(device)
            aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            with torch.cuda.stream(aside):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    answer = calculate(*inputs)
                finally:
                    graph.capture_end()
    except RuntimeError as error:  # out of memory, or something that no graph can hold
        objective.replays = False  # before the warning, which may be made an error
        warnings.warn(
            f"{objective}: its steps cannot be recorded here ({str(error)[:200]}); operations are "
            "started one by one, more slowly.",
            stacklevel=6,
        )
        return None
    total = torch.empty((), dtype=exact_type(images), pin_memory=True)
    arrived: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    return _Recorded(graph, inputs, answer, aside, total, arrived, threading.Lock())


def _own(x: Tensor | None) -> Tensor | None:
    """Where a graph reads what may change."""
    if x is None or _fixed(x):
        return x
    return x.detach().clone().requires_grad_(x.requires_grad)


def _replayed(found: _Recorded, given: Given) -> tuple[Answer, float]:
    vectors, *affine = found.inputs
    torch.cat(given[:2], out=vectors)
    for own, x in zip(affine, given[2:], strict=True):
        if own is not None and x is not None and own is not x:
            own.copy_(x)
    # On its way before the graph, so that nobody waits for that.
    found.total.copy_(vectors.sum(dtype=exact_type(vectors)), non_blocking=True)
    found.arrived.record(torch.cuda.current_stream(vectors.device))
    found.graph.replay()
    share, results = found.answer.share, found.answer[1:]
    value, by_vectors, by_scale, by_bias = (None if x is None else x * share for x in results)
    assert value is not None
    assert by_vectors is not None
    found.arrived.synchronize()
    return Answer(1.0, value, by_vectors, by_scale, by_bias), float(found.total)
