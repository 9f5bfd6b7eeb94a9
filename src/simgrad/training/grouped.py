"""Runs of one process that take their steps together: one batched computation for all models.

A study trains many models of one shape. Each run works in a thread of its own, by the loop that it
would have alone, with its own seed, batches, settings, records and checkpoints. Only a step is
common: a run that has come to one waits until all others have, and then
1. all models encode their batches (grouped products, see models/networks/many.py);
2. their objectives weigh the similarities, those of one form in one call;
3. all weights are updated (stacked.py).
Runs that begin at about the same time wait for each other, so that they also validate and end
together. A run that ends or fails leaves, and the others go on; a batch of another size is an
ordinary step of that run alone. What a run computes depends on which others are there by rounding
alone.
"""

import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from simgrad.data.batches import Source
from simgrad.data.sampling import IndexBatch
from simgrad.objectives import Objective
from simgrad.training.common_step import CommonStep, Recording, Repeated, Wanted
from simgrad.training.graph import Captured, OwnedStream, can_repeat, padded
from simgrad.training.stacked import Learner, trained

_GATHERING = 1.0  # seconds that a new group waits for another run to join
_EMPTY = 400  # steps for which free places are kept, because a next run often comes soon
_here = threading.local()
_KNOWN = (  # warnings that tell nobody anything here
    "RNN module weights are not part",  # evaluated alone, a GRU copies its weights from the stack
    "There is a performance drop because",  # some operations of an objective are not batched
)


@contextmanager
def together(groups: "RunGroups") -> Iterator[None]:
    """Runs of this thread take their steps with others of their kind, where they can."""
    _here.groups, _here.member = groups, None
    try:
        yield
    finally:
        leave()
        _here.groups = None


def leave() -> None:
    """This thread's run takes no more steps: the others need not wait for it."""
    member = getattr(_here, "member", None)
    if member is not None:
        _here.member = None
        member.group.leave(member)


def member_of(step: Learner, source: Source, drawn: int) -> "GroupedRun | None":
    """This thread's run as one of a group; None where there is no group, or it does not fit in."""
    groups: RunGroups | None = getattr(_here, "groups", None)
    if groups is None:
        return None
    if _here.member is not None and _here.member.run is not step:
        leave()  # a run before this one
    if _here.member is None and can_group(step, source, drawn):
        _here.member = groups.join(step, source)
    found: GroupedRun | None = _here.member
    return found


def can_group(step: Learner, source: Source, drawn: int) -> bool:
    """Whether a run's steps can be taken together with others like it."""
    return (
        not drawn
        and len(source.image_shape) == 1
        and step.model.together(half=False) is not None
        and can_repeat(step.model, source, step.recipe, step.objectives.values())
    )


class GroupedRun(Captured):
    """One run of a group: its steps are taken as captured ones are."""

    def __init__(self, group: "RunGroup", run: Learner, source: Source) -> None:
        super().__init__(run.update, source, run.recipe)
        self.group, self.run, self.done = group, run, 10  # no plain steps before
        self.names = {rule: name for name, rule in run.objectives.items()}
        self.place: int | None = None  # in the group's stack
        self.now: Wanted | None = None  # the step it has come to
        self.value: Tensor | None = None
        self.error: BaseException | None = None
        self.parts: dict[Objective, Repeated] = {}
        self.captures: Recording | None = None
        gpu = source.device.type == "cuda"
        self.stream = torch.cuda.current_stream(source.device) if gpu else None

    def kind(self) -> tuple[Any, ...]:
        """What all members of a group have in common."""
        recipe, model = self.recipe, self.run.model
        shapes = tuple(p.shape for _, p in trained(model))
        common = recipe.precision, padded(recipe), recipe.other_captions_are_negatives
        return id(self.source), self.layout, str(model.config), shapes, *common

    def _replay(self, row: Tensor, index: IndexBatch, objective: Objective) -> Tensor:
        return self.group.step(self, Wanted(row, self.source.lengths(index.captions), objective))


@dataclass
class RunGroup:
    """Up to `places` runs at a time; more where more come."""

    places: int
    capture: bool = True  # on a GPU
    fused: bool | None = None  # by kernels; None: where they run
    members: list[GroupedRun] = field(default_factory=list)

    def __post_init__(self) -> None:
        for message in _KNOWN:
            warnings.filterwarnings("ignore", message=message)
        self.changed = threading.Condition()
        self.made: CommonStep | None = None
        self.owned: OwnedStream | None = None  # all common work of the group is done there
        self.begun, self.until = False, 0.0  # steps begin then, or when all places are taken
        self.empty = 0  # steps with free places
        self.kind: tuple[Any, ...] = ()

    def join(self, member: GroupedRun) -> None:
        """Where there are others, they are of its kind."""
        with self.changed:
            self.until = time.monotonic() + _GATHERING
            self.members.append(member)

    def leave(self, member: GroupedRun) -> None:
        with self.changed:
            self.members.remove(member)
            self.begun = self.begun and bool(self.members)
            self.until = 0.0  # all that are left may be waiting: then nobody else would wake them
            if self.made is not None and member.place is not None:
                self.made.release(member)
            self._go()

    def step(self, member: GroupedRun, now: Wanted) -> Tensor:
        """One step of this member, when all have come to one; its loss."""
        with self.changed:
            member.now, member.error = now, None
            self._go()
            while not self.begun and (left := self.until - time.monotonic()) > 0:
                self.changed.wait(left)
            if not self.begun:  # nobody else has come
                self._go()
            self.changed.wait_for(lambda: member.now is None)
        if member.error is not None:
            raise member.error
        assert member.value is not None
        return member.value

    def _go(self) -> None:
        """Take the step, if all are here."""
        if not self.members or any(member.now is None for member in self.members):
            return
        if not self.begun and len(self.members) < self.places and time.monotonic() < self.until:
            return
        self.begun = True
        try:
            self._make().step(self.members)
        except BaseException as error:
            self.made = None
            for member in self.members:
                member.error, member.place = error, None
        for member in self.members:
            member.now = None
        self.changed.notify_all()

    def _make(self) -> "CommonStep":
        """Places for all members."""
        count, made = len(self.members), self.made
        kind = self.members[0].kind()
        free = 0 if made is None else made.places - count
        self.empty = self.empty + 1 if free > 0 else 0
        if made is None or self.kind != kind or free < 0 or self.empty > _EMPTY:
            given_up = self.empty > _EMPTY and self.kind == kind
            places = count if given_up else max(count, self.places)
            for member in self.members:
                member.place = None
            if made is not None:
                made.end()
            self.made, self.empty = None, 0
            self.kind = kind
            first = self.members[0]
            if first.stream is not None and self.owned is None:
                self.owned = OwnedStream(first.source.device)
            stream = None if self.owned is None else self.owned.stream
            made = self.made = CommonStep(first, places, self.capture, self.fused, stream)
        taken = {member.place for member in self.members}
        left = [place for place in range(made.places) if place not in taken]
        for member in self.members:
            if member.place is None:
                made.take(member, left.pop(0))
        return made


class RunGroups:
    """The groups of a process, one for each kind of run; each has up to `places` runs at a time."""

    def __init__(self, places: int, **options: Any) -> None:
        self.made, self.lock = [RunGroup(places, **options)], threading.Lock()

    def join(self, step: Learner, source: Source) -> GroupedRun:
        """A run as a member of the group of its kind: one that is there, or was, or a new one."""
        with self.lock:
            first = self.made[0]
            member = GroupedRun(first, step, source)
            kind = member.kind()
            # While the lock is held, runs may leave a group, but none joins one.
            now = [(group, list(group.members)) for group in self.made]
            alike = [group for group, runs in now if runs and runs[0].kind() == kind]
            empty = [group for group, runs in now if not runs]
            empty.sort(key=lambda group: group.kind != kind)
            if not (alike or empty):
                self.made.append(RunGroup(first.places, first.capture, first.fused))
            member.group = (alike or empty or self.made[-1:])[0]
            member.group.join(member)
            return member
