"""How sure the numbers are: an interval for every cell, and each system against two others.

Both come from `simgrad.evaluation`: `estimates` for intervals, `compare_many` for differences,
paired over the same images and corrected by Holm.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from simgrad.core.errors import InputError
from simgrad.evaluation import Difference, Estimate, Ranks, compare_many
from simgrad.evaluation import estimates as estimates_of
from simgrad.evaluation.comparing import with_spread
from simgrad.report.material import Material, System
from simgrad.runs.outcome import tested_metrics, tested_ranks


def estimates(system: System, split: str, ranks: Sequence[Ranks] = ()) -> Mapping[str, Estimate]:
    """Every metric of a system, with an interval where one can be had; failed runs count."""
    if split != "test":
        return estimates_of(system.values(split))
    found = tested_metrics(system.ended, ranks)
    return estimates_of([{**one, **system.timed.get(run.path, {})} for run, one in found], ranks)


@dataclass(frozen=True)
class Standing:
    """One group of comparable systems."""

    group: str
    systems: tuple[System, ...]
    numbers: Mapping[str, Mapping[str, Estimate]]  # label -> metric -> estimate
    ranks: Mapping[str, list[Ranks]]  # label -> of each run that has ended

    @cached_property
    def order(self) -> list[System]:
        """Systems with numbers, best first."""
        known = [s for s in self.systems if "rsum" in self.numbers[s.label]]
        return sorted(known, key=lambda s: -self.numbers[s.label]["rsum"].mean)

    @cached_property
    def baseline(self) -> System | None:
        """What the others are compared with: the declared one; else the weakest."""
        declared = [s for s in self.order if s.baseline]
        return declared[0] if declared else self.order[-1] if len(self.order) > 1 else None

    @cached_property
    def against_baseline(self) -> dict[str, Difference]:
        return self._against(self.baseline)

    @cached_property
    def against_best(self) -> dict[str, Difference]:
        """Every other system minus the best."""
        return self._against(self.order[0] if self.order else None)

    def lead(self) -> Difference | None:
        """The best minus the second."""
        if len(self.order) < 2:
            return None
        best, second = self.order[:2]
        if second is self.baseline:  # the very numbers that the table shows
            return self.against_baseline.get(best.label)
        gap = self.against_best.get(second.label)
        if gap is None:
            return None
        turned = replace(gap, first=gap.second, second=gap.first, difference=-gap.difference)
        return replace(turned, low=-gap.high, high=-gap.low)

    def _against(self, one: System | None) -> dict[str, Difference]:
        ranked = with_spread({s.label: self.ranks[s.label] for s in self.order})
        if one is None or one.label not in ranked or len(ranked) < 2:
            return {}
        try:
            return compare_many(ranked, one.label, "rsum")
        except InputError:  # ranked on different queries
            return {}


def standings(material: Material) -> list[Standing]:
    """Each group of the material."""
    found = []
    for name, systems in material.groups.items():
        ranks = tested_ranks({s.label: s.ended for s in systems})
        numbers = {s.label: estimates(s, material.split, ranks[s.label]) for s in systems}
        found.append(Standing(name, tuple(systems), numbers, ranks))
    return found


def signed(value: float) -> str:
    """+3.1, −0.4"""
    return f"{value:+.1f}".replace("-", "−")


def printed_p(p: float) -> str:
    """p = 0.012"""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
