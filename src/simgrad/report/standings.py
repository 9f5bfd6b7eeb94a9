"""How sure the numbers are: an interval for every cell, and the standing of each group.

All of it comes from `simgrad.evaluation`: `estimates` for intervals, `against` for differences
from the baseline, `stand` for who leads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from simgrad.core.errors import InputError
from simgrad.evaluation import Difference, Estimate, Ranks, against
from simgrad.evaluation import estimates as estimates_of
from simgrad.evaluation.comparison import with_spread
from simgrad.evaluation.standing import Draw, Outcome, Standing, stand
from simgrad.report.material import Material, System
from simgrad.runs.outcome import ended_draws, outcomes_of, tested_metrics

Kept = Sequence[Sequence[Ranks]]  # by draw


def estimates(system: System, split: str, ranks: Kept = ()) -> Mapping[str, Estimate]:
    """Every metric of a system, with an interval where one can be had; failed runs count."""
    if split != "test":
        return estimates_of(system.values(split))
    like, tables = [run for draw in ranks for run in draw], []
    for draw in system.draws:
        metrics = tested_metrics(draw, like)
        found = [{**one, **system.timed.get(run.path, {})} for run, one in metrics]
        names = dict.fromkeys(name for one in found for name in one)
        if found:
            tables.append({n: fmean(one[n] for one in found if n in one) for n in names})
    return estimates_of(tables, () if system.new_images else ranks)


@dataclass(frozen=True)
class GroupStanding:
    """One group of comparable systems."""

    group: str
    systems: tuple[System, ...]
    numbers: Mapping[str, Mapping[str, Estimate]]  # label -> metric -> estimate
    ranks: Mapping[str, Kept]  # label -> of each run that has ended
    outcomes: Mapping[str, Sequence[Outcome]]  # label -> of each of these runs

    @cached_property
    def order(self) -> list[System]:
        """Systems with numbers, best first."""
        known = [s for s in self.systems if "rsum" in self.numbers[s.label]]
        return sorted(known, key=lambda s: -self.numbers[s.label]["rsum"].mean)

    @cached_property
    def baseline(self) -> System | None:
        """What the others are compared with: the declared one; else the leader."""
        declared = [s for s in self.order if s.baseline]
        first = self.standing.leader if self.standing else ""
        leading = [s for s in self.order if s.label == first] or self.order[:1]
        return (declared or leading)[0] if len(self.order) > 1 or declared else None

    @property
    def new_images(self) -> bool:
        return any(system.new_images for system in self.systems)

    @property
    def short(self) -> bool:
        """Whether training was too short to say who is ahead."""
        return any(system.shortened for system in self.systems)

    @cached_property
    def standing(self) -> Standing | None:
        """Who leads, and how sure that is; None: it cannot be told, for want of ranks."""
        searched = any(system.replicates for system in self.systems)
        draws: dict[str, Sequence[Draw]] = {}
        for system in self.order:
            if kept := self.ranks[system.label]:
                draws[system.label] = kept if searched else [run for draw in kept for run in draw]
        if len(draws) < 2:
            return None
        try:
            return stand(
                draws,
                self.outcomes,
                new_images=self.new_images,
                short=self.short,
                looked=next((s.looked for s in self.systems if s.looked), ()),
            )
        except InputError:  # ranked on different queries, or nothing trained
            return None

    @cached_property
    def against_baseline(self) -> dict[str, Difference]:
        """Without those that failed with every seed: nothing is fair about them."""
        trained = [
            s.label for s in self.order if "trained" in self.outcomes.get(s.label, ("trained",))
        ]
        ranked = with_spread({label: self.ranks[label] for label in trained})
        one = self.baseline
        if self.short or one is None or one.label not in ranked or len(ranked) < 2:
            return {}
        try:
            return against(ranked, one.label, new_images=self.new_images)
        except InputError:  # ranked on different queries
            return {}


def standings(material: Material) -> list[GroupStanding]:
    """Each group of the material."""
    found = []
    for name, systems in material.groups.items():
        apart = any(system.new_images for system in systems)
        runs, ranks = ended_draws({s.label: s.draws for s in systems}, apart=apart)
        outcomes = {
            x: outcomes_of([r for draw in draws for r in draw]) for x, draws in runs.items()
        }
        numbers = {s.label: estimates(s, material.split, ranks[s.label]) for s in systems}
        found.append(GroupStanding(name, tuple(systems), numbers, ranks, outcomes))
    return found


def signed(value: float) -> str:
    """+3.1, −0.4"""
    return f"{value:+.1f}".replace("-", "−")


def printed_p(p: float) -> str:
    """p = 0.012"""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
