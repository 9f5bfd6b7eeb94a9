"""Runs that take their steps together train as each does alone."""

import os
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from simgrad.core.errors import InputError
from simgrad.data import Sampler
from simgrad.objectives import Triplet
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.training import train
from simgrad.training.common_step import Wanted, counts_of, usual_counts
from simgrad.training.grouped import GroupedRun, RunGroup, RunGroups, together
from simgrad.training.stacked import Stack, adam_by_kernel, adam_plain
from tests.training.test_step import VSE, make

KINDS: list[dict[str, Any]] = [
    {"objective": "nt-xent(tau=0.07)", "seed": 1, "clip": 0.05},
    {"objective": "triplet-sh", "seed": 2, "lr": 3e-3, "weight_decay": 0.1},
    {"objective": "goal(triplet=cir, pair=sig-ms)", "optimizer": "adamw", "weight_decay": 0.1},
    {"objective": "siglip", "seed": 4, "betas": (0.8, 0.9), "epsilon": 1e-6, "warmup": 0.3},
    {"objective": "triplet-sh", "first_objective": "triplet", "first_epochs": 1, "seed": 5},
    {"objective": "nt-xent(tau=0.07)", "seed": 6},
]


def side_by_side(
    recipes: list[Recipe], folders: list[Path], groups: RunGroups | None = None, **options: Any
) -> list[Exception | None]:
    """Train runs in threads of one process; what went wrong with each."""
    groups = groups or RunGroups(len(recipes))
    shared: dict[Any, Any] = {}
    problems: list[Exception | None] = [None] * len(recipes)

    def one(place: int) -> None:
        try:
            with together(groups):
                train(recipes[place], folders[place], quiet=True, shared=shared, **options)
        except Exception as error:
            problems[place] = error

    threads = [threading.Thread(target=one, args=(k,)) for k in range(len(recipes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    return problems


def test_usual_counts_are_hardly_ever_too_few() -> None:
    random = np.random.default_rng(0)
    lengths = np.minimum(4 + random.poisson(7, 6000), 30)
    usual = usual_counts(lengths, 128)
    assert len(usual) == lengths.max()
    assert (np.diff(usual) <= 0).all()
    assert usual.sum() < 0.75 * 128 * len(usual)  # this is what is gained
    batches = random.choice(lengths, (5000, 128))
    slow = [[(batch > t).sum() for t in range(len(usual))] for batch in batches[:3]]
    assert (counts_of(batches[:3], len(usual)) == slow).all()
    assert ((counts_of(batches, len(usual)) > usual).any(1)).mean() < 0.001


@pytest.mark.parametrize("words", [1, 12])
def test_a_batch_of_unusual_lengths_is_worked_whole(
    words: int, small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from simgrad.training import common_step

    monkeypatch.setattr(common_step, "usual_counts", lambda lengths, _: 0 * lengths[:30] + words)
    recipes = [small(seed=k) for k in range(2)]
    folders = [tmp_path / str(k) for k in range(2)]
    assert side_by_side(recipes, folders) == [None] * 2
    alone = train(recipes[1], tmp_path / "alone", quiet=True)
    for mine, theirs in zip(alone.history, Run(folders[1]).history, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-3)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many runs took each common step."""
    from simgrad.training import common_step

    plain, seen = common_step.CommonStep.step, []

    def step(self: Any, members: list[GroupedRun]) -> None:
        seen.append(len(members))
        plain(self, members)

    monkeypatch.setattr(common_step.CommonStep, "step", step)
    return seen


@pytest.mark.parametrize("positives", ["images", "pairs"])
def test_the_gradients_and_weights_are_those_of_plain_steps(positives: str) -> None:
    recipes = [
        Recipe(**{"batch": 32, "positives": positives, "lr": 1e-3, **kind}) for kind in KINDS
    ]
    alone, source = zip(*(make(VSE, recipe) for recipe in recipes), strict=True)
    members, group = [], RunGroup(len(recipes))
    for recipe in recipes:
        step, _ = make(VSE, recipe)
        members.append(GroupedRun(group, step, source[0]))
    plans = [Sampler("pairs", 32, drop_last=True).epoch(source[0].split, k) for k in range(6)]
    group.members = members
    for turn in range(4):
        for plain, member, plan in zip(alone, members, plans, strict=True):
            index = plan[turn]
            row = torch.from_numpy(member.layout.row(index))
            objective = member.run.objectives[plain.recipe.objective]
            member.now = Wanted(row, source[0].lengths(index.captions), objective)
        with group.changed:
            group._go()
        for plain, member, plan in zip(alone, members, plans, strict=True):
            loss = plain.update(
                source[0].fetch(plan[turn]), plain.objectives[plain.recipe.objective]
            )
            assert member.error is None
            assert member.value is not None
            assert torch.allclose(loss, member.value, rtol=1e-4)
            for (name, mine), theirs in zip(
                plain.model.named_parameters(), member.run.model.parameters(), strict=True
            ):
                own, other = (s.optimizer.inner.state[p] for s, p in
                              ((plain, mine), (member.run, theirs)))  # fmt: skip
                assert own["step"] == other["step"] == turn + 1
                for key in ("exp_avg", "exp_avg_sq"):  # all gradients so far, clipped
                    far = (own[key] - other[key]).abs().max() / own[key].abs().max()
                    assert far < 1e-4, (name, key)
                # Adam divides the smallest gradients, which are rounding, by their own size.
                assert (mine - theirs).abs().mean() < 1e-3 * plain.recipe.lr, name
            for mine, theirs in zip(
                plain.learned.parameters(), member.run.learned.parameters(), strict=True
            ):
                assert torch.allclose(mine, theirs, rtol=1e-5)


def test_what_an_objective_learns_is_learned_in_a_group_where_it_is_zero() -> None:
    """A temperature of 1 is kept as its logarithm."""
    spec = "nt-xent(tau=1, learned=true)"
    group, recipe = RunGroup(2), Recipe(batch=32, objective=spec)
    (one, source), (other, _) = make(VSE, recipe), make(VSE, recipe)
    group.members = [GroupedRun(group, step, source) for step in (one, other)]
    index = Sampler("pairs", 32).epoch(source.split, 0)[0]
    for member in group.members:
        row, lengths = torch.from_numpy(member.layout.row(index)), source.lengths(index.captions)
        member.now = Wanted(row, lengths, member.run.objectives[spec])
    with group.changed:
        group._go()
    for member in group.members:
        (learned,) = member.run.learned.parameters()
        assert member.error is None
        assert learned.item() != 0


@pytest.mark.long
def test_a_group_of_runs_trains_as_each_alone(
    small: Any, weights: Any, tmp_path: Path, counted: list[int]
) -> None:
    recipes = [small(epochs=3, **kind) for kind in KINDS]
    folders = [tmp_path / f"together{k}" for k in range(len(recipes))]
    assert side_by_side(recipes, folders) == [None] * len(recipes)
    assert max(counted) == len(recipes)  # and not one after the other
    for number, (recipe, folder) in enumerate(zip(recipes, folders, strict=True)):
        alone = train(recipe, tmp_path / f"alone{number}", quiet=True)
        found = Run(folder)
        assert found.info["status"] == "finished"
        assert [e["step"] for e in found.history] == [e["step"] for e in alone.history]
        for mine, theirs in zip(alone.history, found.history, strict=True):
            assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
            assert mine["val"]["rsum"] == pytest.approx(theirs["val"]["rsum"], abs=6)
        assert alone.test["rsum"] == pytest.approx(found.test["rsum"], abs=6)
        if found.info["best"]["step"] == alone.info["best"]["step"]:
            for name, value in weights(alone.path).items():
                assert (weights(folder)[name] - value).abs().mean() < 0.02 * recipe.lr, name


def test_one_that_diverges_leaves_the_others_alone(small: Any, tmp_path: Path) -> None:
    recipes = [small(epochs=2, seed=k) for k in range(3)]
    recipes[1] = recipes[1].replace(lr=1e38)
    folders = [tmp_path / str(k) for k in range(3)]
    problems = side_by_side(recipes, folders)
    with pytest.raises(InputError) as alone_too:
        train(recipes[1], tmp_path / "diverges", quiet=True)
    assert type(problems[1]) is type(alone_too.value)
    assert problems[0] is None
    assert problems[2] is None
    alone = train(recipes[2], tmp_path / "alone", quiet=True)
    for mine, theirs in zip(alone.history, Run(folders[2]).history, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)


@pytest.mark.long
def test_a_group_that_was_stopped_resumes_each_run(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each from its own last checkpoint, or from its start; with others than before."""

    class After:
        """So many steps, instead of seconds."""

        def __init__(self, stop_after: float | None) -> None:
            self.left = stop_after

        def __call__(self) -> bool:
            self.left = None if self.left is None else self.left - 1
            return self.left is not None and self.left < 0

    monkeypatch.setattr("simgrad.training.sitting.Stopping", After)
    recipes = [small(epochs=4, seed=k) for k in range(3)]
    folders = [tmp_path / str(k) for k in range(3)]
    side_by_side(recipes[:1], folders[:1], stop_after=3)
    side_by_side(recipes[1:2], folders[1:2], stop_after=12)
    assert all(Run(folder).info["status"] == "stopped" for folder in folders[:2])
    assert side_by_side(recipes, folders) == [None] * 3
    for recipe, folder in zip(recipes, folders, strict=True):
        alone = train(recipe, tmp_path / f"alone{recipe.seed}", quiet=True)
        assert [e["step"] for e in alone.history] == [e["step"] for e in Run(folder).history]
        for mine, theirs in zip(alone.history, Run(folder).history, strict=True):
            assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-3)


def test_a_run_that_does_not_fit_in_trains_as_before(
    small: Any, tmp_path: Path, counted: list[int]
) -> None:
    other = "vse++(dimension=16, word_dimension=8, gru_layers=2)"
    recipes = [small(), small(model=other), small(graphs=False), small(batch=16)]
    folders = [tmp_path / str(k) for k in range(4)]
    assert side_by_side(recipes, folders) == [None] * 4
    assert counted
    assert set(counted) == {1}
    assert all(Run(folder).finished for folder in folders)


def test_each_kind_of_run_has_a_group(small: Any, tmp_path: Path, counted: list[int]) -> None:
    groups = RunGroups(4)
    recipes = [small(batch=batch, epochs=3, seed=batch + k) for k in range(2) for batch in (16, 32)]
    folders = [tmp_path / str(k) for k in range(4)]
    assert side_by_side(recipes, folders, groups) == [None] * 4
    assert max(counted) == 2
    assert len(groups.made) == 2
    assert not any(group.members for group in groups.made)
    assert side_by_side(recipes[:1], [tmp_path / "later"], groups) == [None]
    assert len(groups.made) == 2  # one that is empty is taken again
    for recipe, folder in zip(recipes, folders, strict=True):
        alone = train(recipe, tmp_path / f"alone{recipe.seed}", quiet=True)
        for mine, theirs in zip(alone.history, Run(folder).history, strict=True):
            assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-3)


def test_places_are_taken_again_and_given_up(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from simgrad.training import grouped

    monkeypatch.setattr(grouped, "_EMPTY", 5)
    groups = RunGroups(2)
    recipes = [small(epochs=1 + 3 * (k == 1), seed=k) for k in range(3)]
    assert side_by_side(recipes, [tmp_path / str(k) for k in range(3)], groups) == [None] * 3
    (group,) = groups.made
    assert group.members == []
    assert group.made is not None
    assert group.made.places == 1  # the longest run was alone at its end


def test_an_error_of_one_objective_is_its_own(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("broken")

    monkeypatch.setattr(Triplet, "judge", broken)
    recipes = [small(), small(objective="triplet"), small(seed=1)]
    problems = side_by_side(recipes, [tmp_path / str(k) for k in range(3)])
    assert [type(problem) for problem in problems] == [type(None), ValueError, type(None)]


@pytest.mark.parametrize("positives", ["pairs", "images"])
def test_runs_of_one_form_are_weighed_in_one_call(
    positives: str, small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from simgrad.training import common_step

    plain, seen = common_step.weigh_several, set()

    def counted(parameters: Any, images: torch.Tensor, *others: Any) -> Any:
        seen.add((parameters.rule.name, len(images)))
        return plain(parameters, images, *others)

    monkeypatch.setattr(common_step, "weigh_several", counted)
    specs = ["triplet", "siglip", "nt-xent", "nt-xent(tau=0.05)", "nt-xent(tau=0.2)"]
    recipes = [small(positives=positives, objective=spec, seed=k) for k, spec in enumerate(specs)]
    folders = [tmp_path / str(k) for k in range(5)]
    assert side_by_side(recipes, folders) == [None] * 5
    assert ("nt-xent", 3) in seen
    assert {name for name, _ in seen} == {"nt-xent"}  # the others are of other forms
    alone = train(recipes[3], tmp_path / "alone", quiet=True)
    for mine, theirs in zip(alone.history, Run(folders[3]).history, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)


def test_an_objective_that_cannot_be_weighed_for_several_is_weighed_alone(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from simgrad.training import common_step

    def cannot(*_: Any) -> Any:
        raise RuntimeError("vmap: it asks for a number")

    monkeypatch.setattr(common_step, "weigh_several", cannot)
    recipes = [small(seed=k) for k in range(2)]
    assert side_by_side(recipes, [tmp_path / str(k) for k in range(2)]) == [None] * 2


def test_where_a_capture_fails_the_work_is_done_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    from simgrad.training import common_step

    def fails(*_: Any) -> Any:
        raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(common_step, "captured_work", fails)
    captures = common_step.Recording(False)
    captures.wanted = True
    done: list[str] = []
    first, then = (
        common_step.Repeated(partial(done.append, k), captures) for k in ("first", "then")
    )
    for turn in range(4):
        with pytest.warns(UserWarning, match="captured") if turn == 2 else nullcontext():
            first()
        then()
    assert done == ["first", "then"] * 4  # each once a step
    assert not captures.wanted
    assert first.graph is None
    assert then.graph is None


@pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton, and TRITON_INTERPRET=1"
)
def test_the_kernel_of_adam_is_the_plain_one() -> None:
    torch.manual_seed(0)
    shape = (3, 40, 70)
    first = [torch.randn(shape), torch.randn(shape).half(), torch.randn(shape), torch.rand(shape)]
    second = [each.clone() for each in first]
    values = torch.rand(7, 3, dtype=torch.float64) + 0.1
    adam_plain(*first, torch.rand(3) * 0 + 0.3, values)
    adam_by_kernel(*second, torch.rand(3) * 0 + 0.3, values)
    for mine, theirs in zip(first, second, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_weights_go_to_a_place_and_come_back() -> None:
    step, source = make(VSE, Recipe(batch=32, objective="siglip"))
    plan = Sampler("pairs", 32).epoch(source.split, 0)
    step.update(source.fetch(plan[0]), step.objectives["siglip"])
    before = [p.detach().clone() for p in step.model.parameters()]
    stack = Stack(step, 2)
    stack.bind(1, step)
    step.update(
        source.fetch(plan[1]), step.objectives["siglip"]
    )  # a batch of another size: a plain step
    stack.release(step)
    assert all(count == 2 for count in stack.counts[:, 1])
    for was, p, place in zip(before, step.model.parameters(), stack.weights.values(), strict=True):
        assert torch.equal(p, place[1])
        assert not torch.equal(p, was)
        assert p.data_ptr() != place[1].data_ptr()


def test_runs_that_wait_go_on_when_others_leave_before_a_step() -> None:
    """Nobody would look again when the time for gathering is over."""
    group = RunGroup(8)
    taken: list[int] = []
    group._make = lambda: SimpleNamespace(  # type: ignore[method-assign, assignment]
        step=lambda members: taken.append(len(members)) or [setattr(m, "value", 1) for m in members]
    )
    a, b, c, d = (SimpleNamespace(now=None, error=None, value=None, place=None) for _ in range(4))
    for member in (a, b, d):
        group.join(member)  # type: ignore[arg-type]
    group.until = 0.0  # the others have come; d prepares itself for long
    threads = [
        threading.Thread(target=group.step, args=(member, object()), daemon=True)
        for member in (a, b)
    ]
    for thread in threads:
        thread.start()
    while any(member.now is None for member in (a, b)):
        time.sleep(0.01)
    group.join(c)  # type: ignore[arg-type]
    group.leave(c)  # type: ignore[arg-type]
    group.leave(d)  # type: ignore[arg-type]
    for thread in threads:
        thread.join(5)
    assert taken == [2]


on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize(("precision", "near"), [("float32", 2e-3), ("bf16", 3e-2)])
@pytest.mark.parametrize("capture", [False, True])
def test_on_a_gpu_a_group_trains_as_each_alone(
    small: Any, tmp_path: Path, counted: list[int], precision: str, near: float, capture: bool
) -> None:
    recipes = [small(epochs=4, device="cuda", precision=precision, **kind) for kind in KINDS]
    folders = [tmp_path / f"together{k}" for k in range(len(recipes))]
    groups = RunGroups(len(recipes), capture=capture)
    assert side_by_side(recipes, folders, groups) == [None] * len(recipes)
    assert max(counted) == len(recipes)
    for number, (recipe, folder) in enumerate(zip(recipes, folders, strict=True)):
        alone = train(recipe, tmp_path / f"alone{number}", quiet=True)
        for mine, theirs in zip(alone.history, Run(folder).history, strict=True):
            assert mine["loss"] == pytest.approx(theirs["loss"], rel=near), recipe.objective


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("positives", ["images", "pairs"])
def test_on_a_gpu_runs_that_come_and_go_are_captured_again(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, positives: str
) -> None:
    from simgrad.training import grouped

    monkeypatch.setattr(grouped, "_EMPTY", 5)
    groups, recipes = RunGroups(2), []
    for k in range(6):
        kind = {"objective": "nt-xent", "positives": positives, "device": "cuda"}
        recipes.append(small(epochs=1 + 2 * k, seed=k, **kind))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="steps of runs")  # that could not be captured
        problems = side_by_side(recipes, [tmp_path / str(k) for k in range(6)], groups)
    assert problems == [None] * 6


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("half", [False, True])
def test_on_a_gpu_kernels_compute_what_plain_operations_do(half: bool) -> None:
    from simgrad.models.networks.many import ManyVse

    torch.manual_seed(0)
    shapes = {
        "fc.weight": (64, 40), "fc.bias": (64,), "text.embed.weight": (50, 30),
        "text.rnn.weight_ih_l0": (192, 30), "text.rnn.weight_hh_l0": (192, 64),
        "text.rnn.bias_ih_l0": (192,), "text.rnn.bias_hh_l0": (192,),
    }  # fmt: skip
    weights = {n: 0.2 * torch.randn(3, *shape, device="cuda") for n, shape in shapes.items()}
    lengths = torch.randint(1, 10, (3, 16), device="cuda")
    tokens = torch.randint(0, 50, (3, 16, 9), device="cuda")
    images, above = torch.randn(3, 16, 40, device="cuda"), torch.randn(2, 3, 16, 64, device="cuda")
    found = []
    for fused in (False, True):
        many = ManyVse(half=half, feature_norm=True, fused=fused)
        vectors = many.forward(weights, images, tokens, lengths)
        gradients = many.backward(*above)
        sized = [v.float() * (1 if s is None else s.view(-1, *(1,) * (v.dim() - 1)))
                 for v, s in gradients.values()]  # fmt: skip
        found.append([*vectors, *sized])
    for plain, kernel in zip(*found, strict=True):
        far = (plain - kernel).abs().max() / plain.abs().max()
        assert far < (2e-2 if half else 1e-4)


@pytest.mark.cuda
@on_a_gpu
def test_on_a_gpu_a_graph_that_became_garbage_does_not_end_a_capture() -> None:
    from simgrad.training.graph import captured_work, own_stream

    x = torch.ones(3, device="cuda")
    with own_stream(x.device):
        pool = torch.cuda.graph_pool_handle()
        garbage: list[Any] = [captured_work(pool, lambda: x + 1)[0]]
        garbage.append(garbage)
        del garbage

        def work() -> torch.Tensor:
            for _ in range(20_000):  # enough to start a collection, were it not held back
                [].append([{}])  # type: ignore[arg-type]
            return x + 2

        graph, made = captured_work(pool, work)
        graph.replay()
        assert made.tolist() == [3.0, 3.0, 3.0]


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.filterwarnings("ignore:steps of runs")
def test_on_a_gpu_failed_captures_change_nothing(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from simgrad.training import common_step

    plain, count = common_step.captured_work, iter(range(1000))

    def sometimes(pool: Any, work: Callable[[], Any]) -> Any:
        if next(count) % 2:
            raise RuntimeError("operation failed due to a previous error during capture")
        return plain(pool, work)

    monkeypatch.setattr(common_step, "captured_work", sometimes)
    recipes = [small(epochs=3, device="cuda", **kind) for kind in KINDS]
    folders = [tmp_path / f"together{k}" for k in range(len(recipes))]
    assert side_by_side(recipes, folders) == [None] * len(recipes)
    for number, (recipe, folder) in enumerate(zip(recipes, folders, strict=True)):
        alone = train(recipe, tmp_path / f"alone{number}", quiet=True)
        for mine, theirs in zip(alone.history, Run(folder).history, strict=True):
            assert mine["loss"] == pytest.approx(theirs["loss"], rel=2e-3), recipe.objective
