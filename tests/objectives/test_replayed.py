"""Batches that are recorded and replayed: the same results, whatever changes between two calls."""

import threading
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.objectives import Goal, Objective, TripletSH, embeddings, objective, replayed

from .cases import everything, names

on_gpu = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
STREAMED = [o for o in everything() if o.stream() is not None and not o.needs_offline]
each_objective = pytest.mark.parametrize("o", STREAMED, ids=names(STREAMED))
anywhere = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_gpu)])


class _AnswersAgain:
    """What stands for a graph on a CPU: replayed, it calculates once more."""

    def __init__(self, inputs: Any, answer: replayed.Answer, calculate: Any) -> None:
        self.inputs, self.answer, self.calculate, self.count = inputs, answer, calculate, 0

    def replay(self) -> None:
        self.count += 1
        for to, x in zip(self.answer[1:], self.calculate(*self.inputs)[1:], strict=True):
            if to is not None:
                to.copy_(x)


class _Arrived:
    """An event that has happened."""

    def record(self, _: Any) -> None: ...

    def synchronize(self) -> None: ...


@pytest.fixture
def recorded(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Objective], int]:
    """How many graphs an objective has; on a CPU they are stood in for."""
    if "device" in request.fixturenames and request.getfixturevalue("device") == "cpu":
        stream = types.SimpleNamespace(cuda_stream=0)

        def record(_: Objective, given: replayed.Given, calculate: Any) -> Any:
            images, texts, scale, bias = given
            inputs = torch.cat((images, texts)), replayed._own(scale), replayed._own(bias)
            answer = calculate(inputs[0].clone(), *inputs[1:])
            graph: Any = _AnswersAgain(inputs, answer, calculate)
            total, arrived = torch.empty((), dtype=torch.float64), _Arrived()
            more: Any = stream, total, arrived, threading.Lock()
            return replayed._Recorded(graph, inputs, answer, *more)

        own = replayed.suits
        monkeypatch.setattr(replayed, "_record", record)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: stream)
        monkeypatch.setattr(replayed, "suits", lambda o, x, *more: own(o, _OnGpu(x), *more))
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)

    def count(o: Objective) -> int:
        known = replayed._known.get(o, {})
        return sum(isinstance(x, replayed._Recorded) for x in known.values())

    return count


class _OnGpu:
    """A tensor that says it is on a GPU."""

    is_cuda = True

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __getattr__(self, name: str) -> Any:
        return getattr(self.x, name)

    def __len__(self) -> int:
        return len(self.x)


def _batch(seed: int, device: str, dtype: torch.dtype = torch.float32, size: int = 24) -> Any:
    generator = torch.Generator().manual_seed(seed)
    pair = (torch.randn(size, 16, generator=generator, dtype=torch.float64) for _ in range(2))
    return [x.to(device, dtype).requires_grad_() for x in pair]


def _gradients(o: Objective, images: Tensor, texts: Tensor) -> list[Tensor]:
    loss = o(images, texts)
    learned = [p for p in o.parameters() if p.requires_grad]
    return [loss.detach(), *torch.autograd.grad(loss, [images, texts, *learned])]


def _like(o: Objective, device: str) -> tuple[Objective, Objective]:
    """Twice the same objective: recorded, and not."""
    one, other = (objective(str(o)).to(device) for _ in range(2))
    other.replays = False
    return one, other


# Factors are multiplied in another order: the last bit may differ.
_ROUNDED = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def _equal(got: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=_ROUNDED.get(one.dtype, 1e-5), atol=1e-6)


@anywhere
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@each_objective
def test_the_same_as_before(o: Objective, device: str, dtype: torch.dtype, recorded: Any) -> None:
    ours, plain = _like(o, device)
    for seed in range(5):
        pair = _batch(seed, device, dtype)
        _equal(_gradients(ours, *pair), _gradients(plain, *pair))
    assert (recorded(ours), recorded(plain)) == (1, 0)


@anywhere
def test_backward_passes_after_all_forward_passes(device: str, recorded: Any) -> None:
    ours, plain = _like(objective("nt-xent(learned=true)"), device)
    for _ in range(3):
        _gradients(ours, *_batch(0, device))
    pairs = [_batch(seed, device) for seed in range(3)]
    losses = [ours(*pair) for pair in pairs]
    for pair, loss in zip(pairs, losses, strict=True):
        got = torch.autograd.grad(3 * loss, [*pair, ours.log_scale])
        _equal([x / 3 for x in got], _gradients(plain, *pair)[1:])
    assert recorded(ours) == 1


@anywhere
@pytest.mark.parametrize("spec", ["nt-xent(learned=true)", "siglip"])
def test_what_is_learned_is_read_anew(spec: str, device: str, recorded: Any) -> None:
    both = _like(objective(spec), device)
    trained = [torch.optim.SGD(o.parameters(), lr=0.5) for o in both]
    for seed in range(6):
        for o, optimiser in zip(both, trained, strict=True):
            optimiser.zero_grad()
            o(*_batch(seed, device)).backward()
            optimiser.step()
    start = objective(spec).to(device)
    for one, other, first in zip(*(o.parameters() for o in (*both, start)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
        assert not torch.equal(one, first)
    assert recorded(both[0]) == 1


@anywhere
def test_a_parameter_that_is_changed_counts(device: str, recorded: Any) -> None:
    ours, plain = _like(objective("triplet"), device)
    pair = _batch(0, device)
    for margin in (0.1, 0.7):
        for o in (ours, plain):
            o.margin = margin  # type: ignore[assignment]
        for _ in range(4):
            _equal(_gradients(ours, *pair), _gradients(plain, *pair))
    assert recorded(ours) == 2


@anywhere
def test_shapes_of_all_kinds_keep_few_graphs(device: str, recorded: Any) -> None:
    ours, plain = _like(objective("goal"), device)
    for size in range(4, 12):
        for seed in range(4):
            pair = _batch(seed, device, size=size)
            _equal(_gradients(ours, *pair), _gradients(plain, *pair))
    assert recorded(ours) == 4


@anywhere
def test_what_is_not_finite_is_named(device: str, recorded: Any) -> None:
    ours, plain = _like(objective("nt-xent"), device)
    for seed in range(4):
        ours(*_batch(seed, device))
    images, texts = _batch(0, device)
    with torch.no_grad():
        texts[3, 2] = torch.nan
    with pytest.raises(InputError, match="texts"):
        ours(images, texts)
    pair = _batch(1, device)
    _equal(_gradients(ours, *pair), _gradients(plain, *pair))
    assert recorded(ours) == 1


@anywhere
def test_half_precision_that_sums_to_more_than_it_holds(device: str, recorded: Any) -> None:
    ours = objective("triplet").to(device)
    images, texts = (torch.full((8, 16), 6e4, dtype=torch.float16, device=device) for _ in range(2))
    assert len({float(ours(images, texts)) for _ in range(4)}) == 1
    assert recorded(ours) == 1


@anywhere
def test_only_what_is_known_to_depend_on_nothing_else(device: str, recorded: Any) -> None:
    """Rules from elsewhere, several positives, blocks, and those who do not want it."""

    class Mine(TripletSH):
        """Who knows what it reads."""

    mine, unwanted, several = Mine(), objective("triplet"), objective("goal")
    unwanted.replays = False
    pair = _batch(0, device)
    for _ in range(4):
        mine(*pair)
        unwanted(*pair)
        several(*pair, torch.arange(24, device=device))
        several(*pair, block=64)
    assert [recorded(o) for o in (mine, unwanted, several)] == [0, 0, 0]


@anywhere
def test_functions_and_tensors_as_parameters_are_not_recorded(device: str, recorded: Any) -> None:
    """Nobody knows what a function reads; a tensor changes and stays the same object."""
    state = {"weight": 1.0}

    def weigh(s_pos: Tensor, s_neg: Tensor) -> Tensor:
        return torch.full_like(s_pos, state["weight"])

    pair, goal = _batch(0, device), Goal(triplet=weigh)
    before = [_gradients(goal, *pair)[1] for _ in range(4)][-1]
    state["weight"] = 2.0
    torch.testing.assert_close(_gradients(goal, *pair)[1], 2 * before)
    assert recorded(goal) == 0
    triplet = objective("triplet")
    triplet.margin = torch.tensor(0.1)  # type: ignore[assignment]
    for _ in range(4):
        triplet(*pair)
    assert recorded(triplet) == 0


@anywhere
def test_recorded_in_inference_mode_then_trained(device: str, recorded: Any) -> None:
    ours, plain = _like(objective("nt-xent"), device)
    pair = _batch(0, device)
    for _ in range(4):
        with torch.inference_mode():
            ours(*pair)
    assert recorded(ours) == 1
    for _ in range(4):
        _equal(_gradients(ours, *pair), _gradients(plain, *pair))


@anywhere
def test_what_is_learned_in_another_precision(device: str, recorded: Any) -> None:
    ours, plain = _like(objective("nt-xent(learned=true, tau=0.07)"), device)
    pair = _batch(0, device, torch.float64)
    for kind in (torch.float16, torch.float32, torch.float64):
        for o in (ours, plain):
            o.to(kind)
            with torch.no_grad():
                o.log_scale.fill_(2.659260036932778)
        for _ in range(4):
            got, expected = (_gradients(o, *pair) for o in (ours, plain))
            torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-14)


@anywhere
def test_what_never_comes_again_is_forgotten(device: str, recorded: Any) -> None:
    """A temperature that is lowered with each step."""
    ours = objective("nt-xent").to(device)
    pair = _batch(0, device)
    for _ in range(4):
        ours(*pair)
    for step in range(200):
        ours.tau = 0.1 - 1e-4 * (step + 1)  # type: ignore[assignment]
        ours(*pair)
    assert len(replayed._known[ours]) < 100
    assert recorded(ours) == 1


def test_autocast_is_asked_before_it_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It decides the precision of products; the rest has none of it."""
    asked: list[bool] = []

    def product_type(x: Tensor) -> torch.dtype:
        asked.append(torch.is_autocast_enabled("cpu"))
        return x.dtype

    monkeypatch.setattr(embeddings, "product_type", product_type)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        objective("triplet")(*_batch(0, "cpu"))
    assert asked == [True]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
class TestOnAGpu:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @each_objective
    def test_a_large_batch(self, o: Objective, dtype: torch.dtype, recorded: Any) -> None:
        """With fused kernels, where there are some."""
        ours, plain = _like(o, "cuda")
        torch.set_float32_matmul_precision("high")
        try:
            for seed in range(4):
                pair = _batch(seed, "cuda", dtype, 8192)
                got, expected = _gradients(ours, *pair), _gradients(plain, *pair)
                for one, other in zip(got, expected, strict=True):
                    most = float(other.abs().max())
                    torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3 * most)
        finally:
            torch.set_float32_matmul_precision("highest")

    def test_under_autocast(self, recorded: Any) -> None:
        ours, plain = _like(objective("nt-xent"), "cuda")
        for seed in range(4):
            pair = _batch(seed, "cuda")
            exact = _gradients(plain, *pair)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                rounded = _gradients(plain, *pair)
                _equal(_gradients(ours, *pair), rounded)
            _equal(_gradients(ours, *pair), exact)
        assert recorded(ours) == 2

    def test_in_somebody_elses_graph(self, recorded: Any) -> None:
        ours, plain = _like(objective("triplet"), "cuda")
        pair = _batch(0, "cuda")
        for _ in range(4):
            _gradients(ours, *pair)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = _gradients(ours, *pair)
        graph.replay()
        _equal(result, _gradients(plain, *pair))

    def test_streams_do_not_share_a_graph(self, recorded: Any) -> None:
        ours, plain = _like(objective("nt-xent"), "cuda")
        streams = [torch.cuda.Stream() for _ in range(2)]  # type: ignore[no-untyped-call]
        for seed in range(4):
            pair = _batch(seed, "cuda")
            expected = _gradients(plain, *pair)
            torch.cuda.synchronize()
            for stream in streams:
                with torch.cuda.stream(stream):
                    got = _gradients(ours, *pair)
                stream.synchronize()
                _equal(got, expected)
        assert recorded(ours) == 2

    def test_threads_that_record_at_once(self, recorded: Any) -> None:
        """While another one asks for memory and gives it back."""
        found: list[Any] = []
        done = threading.Event()

        def train(seed: int) -> None:
            ours, plain = _like(objective("goal"), "cuda")
            with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
                for step in range(20):
                    pair = _batch(100 * seed + step, "cuda")
                    found.append((_gradients(ours, *pair), _gradients(plain, *pair)))
                torch.cuda.current_stream().synchronize()

        def allocate() -> None:
            while not done.is_set():
                torch.empty(2**22, device="cuda").fill_(1.0)

        threads = [threading.Thread(target=train, args=(seed,)) for seed in range(3)]
        beside = threading.Thread(target=allocate)
        for thread in (beside, *threads):
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        beside.join()
        assert len(found) == 60
        for got, expected in found:
            _equal(got, expected)

    def test_a_capture_that_fails_is_said_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ours, plain = _like(objective("triplet"), "cuda")
        pair = _batch(0, "cuda")
        expected = _gradients(plain, *pair)
        original = replayed._record

        def failing(o: Objective, given: Any, calculate: Any) -> Any:
            def waits(*inputs: Any) -> Any:
                answer = calculate(*inputs)
                answer.value.item()
                return answer

            return original(o, given, waits)

        monkeypatch.setattr(replayed, "_record", failing)
        for _ in range(2):
            _gradients(ours, *pair)
        with pytest.warns(UserWarning, match="cannot be recorded"):
            _equal(_gradients(ours, *pair), expected)
        for _ in range(2):
            _equal(_gradients(ours, *pair), expected)

    def test_a_graph_goes_with_its_objective(self) -> None:
        before = len(replayed._known)
        ours, _ = _like(objective("triplet"), "cuda")
        for _ in range(4):
            ours(*_batch(0, "cuda"))
        assert len(replayed._known) == before + 1
        del ours
        assert len(replayed._known) == before
