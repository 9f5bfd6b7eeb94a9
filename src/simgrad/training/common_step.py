"""One step of several runs: encode, weigh, update, each for all of them together.

Each of the three is work that is done a few times, then captured, on a GPU, and replayed. Runs are
weighed in one call where their objectives differ in numbers alone; an objective that learns, or
that cannot be worked out for several batches at once, weighs its run by itself.
"""

import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from simgrad.core.gpu import NothingFromHost
from simgrad.data.base import Rows
from simgrad.data.batches import Source
from simgrad.models.networks.many import ManyVse, StepRows
from simgrad.objectives import Objective, Positives
from simgrad.objectives.engine.several import Parameters, form_of, weigh_several
from simgrad.training.graph import BatchLayout, captured_work, padded, padded_length, wait_for_all
from simgrad.training.stacked import Learner, Stack

_PLAIN = 2  # times that work is done before it is captured
_ROWS = 16  # captions: products of other numbers of rows take as long


@dataclass
class Recording:
    """Whether work is captured, and the memory pool of its graphs.

    Graphs and pool are dropped together: once all graphs of a pool are gone, torch captures nothing
    more in it.
    """

    wanted: bool
    pool: Any = None

    def __post_init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle() if self.wanted else None


@dataclass
class Repeated:
    """Work that is done a few times, then captured, then replayed."""

    work: Callable[[], Any]
    captures: Recording
    then: Callable[[], None] = lambda: None  # when it has been captured
    done: int = 0
    graph: torch.cuda.CUDAGraph | None = None
    made: Any = None  # what the work returns

    def __call__(self) -> Any:
        if self.graph is None:
            self.done += 1
            if self.captures.wanted and self.done > _PLAIN:
                self._capture()
        if self.graph is not None:
            self.graph.replay()
        else:
            self.made = self.work()
        return self.made

    def _capture(self) -> None:
        """Capture the work, which does not run it. If that fails, the work is done uncaptured.

        If memory was short, the run fails instead: a study tries it again when others have ended.
        """
        try:
            self.graph, self.made = captured_work(self.captures.pool, self.work)
            self.then()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            # Later work reads what this makes: without this graph it is not captured either.
            self.captures.wanted = False
            warnings.warn(
                f"steps of runs that train together could not be captured ({str(error)[:200]}); "
                "they are taken plainly, more slowly.",
                stacklevel=2,
            )


class Wanted(NamedTuple):
    """A step that a run has come to."""

    numbers: Tensor  # of its batch, see `BatchLayout`
    lengths: Rows  # of its captions, in tokens
    objective: Objective


class Taker(Protocol):
    """A run that takes part."""

    run: Learner
    source: Source
    layout: BatchLayout
    names: dict[Objective, str]  # of its objectives, as its recipe has them
    place: int | None  # in the stack
    now: Wanted | None  # the step it has come to
    value: Tensor | None  # its loss
    error: BaseException | None
    parts: dict[Objective, Repeated]
    captures: Recording | None
    stream: Any


def counts_of(lengths: Rows, steps: int) -> Rows:
    """(..., steps) how many captions (..., captions) have a t-th token."""
    found: Rows = (lengths[..., None] > np.arange(steps)).sum(-2)
    return found


def usual_counts(lengths: Rows, captions: int) -> Rows:
    """(longest,) a bound, rarely exceeded, on how many captions of a batch have a t-th token.

    It is five standard deviations above the mean for captions drawn from these lengths. In a batch
    that exceeds it, all captions are treated as long.
    """
    share = counts_of(lengths, max(1, int(lengths.max(initial=1)))) / max(1, len(lengths))
    most = captions * share + 5 * np.sqrt(captions * share * (1 - share)) + 1
    rounded = np.ceil(most / _ROWS) * _ROWS
    found: Rows = np.minimum(rounded, captions).astype(np.int64)
    return found


class CommonStep:
    """The stack of a group, and the parts of its step."""

    def __init__(
        self, like: Taker, places: int, capture: bool, fused: bool | None, stream: Any = None
    ) -> None:
        """`stream`: of a GPU, which nobody else works on."""
        self.places, self.source, self.layout = places, like.source, like.layout
        self.device = like.source.device
        self.gpu = self.device.type == "cuda"
        self.captures = Recording(self.gpu and capture)
        self.stack = Stack(like.run, places, fused)
        self.half, self.model, self.fused = (
            like.run.recipe.precision == "bf16",
            like.run.model,
            fused,
        )
        self.rows = torch.zeros(
            places, sum(like.layout.parts()), dtype=torch.int64, device=self.device
        )
        # Where a caption's only positive is its pair, it brings its image: none is looked up later.
        self.pairs = like.run.recipe.other_captions_are_negatives
        captions, dimension = like.layout.captions, like.run.model.config.dimension  # type: ignore[attr-defined]
        # What is encoded, and the gradient that comes back: images, captions.
        images = captions if self.pairs else like.layout.images
        shapes = [(places, n, dimension) for n in (images, captions)]
        self.vectors = [torch.zeros(shape, device=self.device) for shape in shapes]
        self.above = [torch.zeros_like(each) for each in self.vectors]
        every = like.source.lengths(np.arange(like.source.split.num_captions))
        self.usual = usual_counts(every, captions)
        # By length, and whether captions are as many as usual at each step.
        self.parts: dict[tuple[int, bool], tuple[Repeated, Repeated]] = {}
        # By places and objectives: none is replaced, so that their pool never stands empty.
        self.weighings: dict[Hashable, Repeated] = {}
        self.forms: dict[Objective, Hashable] = {}  # None: it weighs its run by itself
        self.apart: set[str] = set()  # objectives that cannot be weighed for several at once
        self.padded = padded(like.run.recipe)
        self.weighed = Recording(self.captures.wanted)
        self.stream = stream
        if self.gpu:
            wait_for_all(self.device)

    def end(self) -> None:
        """Free the memory of captured work, which refers to this object, as this does to it."""
        self.parts.clear()
        self.weighings.clear()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Work on the group's stream: first wait for all streams, in the end for this one."""
        if self.stream is None:
            yield
            return
        wait_for_all(self.device)
        with torch.cuda.stream(self.stream):
            yield
        self.stream.synchronize()

    def take(self, member: Taker, place: int) -> None:
        with self.alone():
            self.stack.bind(place, member.run)
            self._forget(member)
        member.place = place

    def release(self, member: Taker) -> None:
        with self.alone():
            self.stack.release(member.run)
            self._forget(member)
        member.place = None

    def _forget(self, member: Taker) -> None:
        """Drop what was captured for another place, or with other members."""
        member.parts, member.captures = {}, None
        self.weighings, self.weighed = {}, Recording(self.captures.wanted)
        self.forms = {}

    def step(self, members: Sequence[Taker]) -> None:
        lengths = []
        with torch.cuda.stream(self.stream) if self.stream else nullcontext():
            for member in members:
                assert member.now is not None
                assert member.place is not None
                self._after(member.stream)
                self.rows[member.place].copy_(member.now.numbers)
                self.stack.set_rate(member.place, member.run)
                lengths.append(member.now.lengths)
            encode, update = self._parts(np.stack(lengths))
            encode()
            encoded = self.stream.record_event() if self.stream else None
            for some in self._alike(members):
                if len(some) > 1 and self._weigh_together(some):
                    continue
                for member in some:
                    with torch.cuda.stream(member.stream) if member.stream else nullcontext():
                        if member.stream is not None and encoded is not None:
                            member.stream.wait_event(encoded)
                        self._weigh(member)
                    self._after(member.stream)
            update()
            done = self.stream.record_event() if self.stream else None
            for member in members:
                if member.stream is not None and done is not None:
                    member.stream.wait_event(done)

    def _after(self, stream: Any) -> None:
        """The group's work waits for what a member has begun."""
        if self.stream is not None:
            self.stream.wait_event(stream.record_event())

    def _parts(self, lengths: Rows) -> tuple[Repeated, Repeated]:
        """For captions (members, captions) of these lengths."""
        longest = padded_length(int(lengths.max(initial=1)), len(self.usual))
        counts = self.usual[:longest]
        usual = bool((counts_of(lengths, longest) <= counts).all())
        if (longest, usual) not in self.parts:
            many = self.model.together(half=self.half)
            assert many is not None
            many.fused = self.fused
            some = counts.tolist() if usual else [lengths.shape[1]] * longest
            rows = StepRows.of(some, self.device)
            self.parts[longest, usual] = (
                Repeated(lambda: self._encode(many, rows), self.captures),
                Repeated(lambda: self._update(many), self.captures, then=many.forget),
            )
        return self.parts[longest, usual]

    @torch.no_grad()
    def _encode(self, many: ManyVse, rows: StepRows) -> None:
        image, caption, position = torch.split(self.rows, self.layout.parts(), dim=1)[:3]
        if self.pairs:
            image = image.gather(1, position)
        found = self.source.gather(image.flatten(), caption.flatten(), len(rows.counts))
        images, tokens, lengths = (x.view(self.places, -1, *x.shape[1:]) for x in found)
        encoded = many.forward(self.stack.weights, images, tokens, lengths, rows)
        for vectors, new in zip(self.vectors, encoded, strict=True):
            vectors.copy_(new)

    @torch.no_grad()
    def _update(self, many: ManyVse) -> None:
        self.stack.update(many.backward(*self.above))

    def _alike(self, members: Sequence[Taker]) -> list[list[Taker]]:
        """Members that one call can weigh: their objectives differ in numbers alone."""
        sets: dict[Hashable, list[Taker]] = {}
        for number, member in enumerate(members):
            assert member.now is not None
            rule = member.now.objective
            if rule not in self.forms:
                learns = any(True for _ in rule.parameters())  # whatever their values
                alone = member.names[rule] in self.apart or learns
                self.forms[rule] = None if alone else form_of(rule)
            sets.setdefault(self.forms[rule] or number, []).append(member)
        return list(sets.values())

    def _weigh_together(self, members: list[Taker]) -> bool:
        """Weigh them in one call. False: impossible, as when a user's objective calls `.item()`."""
        rules = [member.now.objective for member in members if member.now is not None]
        if self.forms[rules[0]] is None:
            return False
        key = tuple(member.place for member in members), tuple(rules)
        if key not in self.weighings:
            index = torch.tensor(key[0], device=self.device)
            work = partial(self._weighed, members, index, Parameters.of(rules, self.device))
            self.weighings[key] = Repeated(work, self.weighed)
        try:
            values = self.weighings[key]()
        except torch.OutOfMemoryError:
            raise
        except Exception:  # then each is weighed alone, and raises its own error, if there is one
            self.apart.update(member.names[r] for member, r in zip(members, rules, strict=True))
            self.forms.update(dict.fromkeys(rules))
            return False
        for member, value in zip(members, values.unbind(), strict=True):
            member.value = value
        return True

    @torch.no_grad()
    def _weighed(self, members: list[Taker], index: Tensor, parameters: Parameters) -> Tensor:
        """(members,) their losses; what goes back to their vectors is written."""
        images, captions = (each.index_select(0, index) for each in self.vectors)
        rows = self.rows.index_select(0, index)
        _, _, position, present, _ = torch.split(rows, self.layout.parts(), dim=1)
        with NothingFromHost() if self.captures.wanted else nullcontext():
            found = weigh_several(
                parameters,
                images,
                captions,
                None if self.pairs else position,
                present.bool() if self.padded else None,
            )
        factors = torch.stack([member.run.optimizer.loss_factor for member in members])
        for above, gradient in zip(self.above, (found.images, found.texts), strict=True):
            above.index_copy_(0, index, gradient * factors[:, None, None])
        return found.values

    def _weigh(self, member: Taker) -> None:
        """The member's objective, and what it learns."""
        assert member.now is not None
        rule = member.now.objective
        if rule not in member.parts:
            member.captures = member.captures or Recording(self.captures.wanted)
            member.parts[rule] = Repeated(Weighing(self, member, rule), member.captures)
        try:
            member.value = member.parts[rule]()
        except Exception as error:  # one broken objective must not take the others with it
            member.error = error


@dataclass
class Weighing:
    """From a member's vectors to the gradient of its loss."""

    made: CommonStep
    member: Taker
    objective: Objective

    def __call__(self) -> Tensor:
        made, run, place = self.made, self.member.run, self.member.place
        images, captions = (each[place].detach().requires_grad_() for each in made.vectors)
        _, _, position, present, _ = torch.split(made.rows[place], made.layout.parts())
        positives: Tensor | Positives | None = None if made.pairs else position
        if made.padded:
            positives = Positives.of_captions(position, len(images), present.bool())
        run.optimizer.clear()
        with torch.autocast(made.device.type, enabled=False):
            loss = self.objective(images, captions, positives)
        run.optimizer.scaled(loss).backward()  # type: ignore[no-untyped-call]
        for above, leaf in zip(made.above, (images, captions), strict=True):
            if leaf.grad is None:
                above[place].zero_()
            else:
                above[place].copy_(leaf.grad)
        if any(p.requires_grad for p in run.learned.parameters()):
            run.optimizer.update()  # the model's own parameters have no gradient here
        return loss.detach()
