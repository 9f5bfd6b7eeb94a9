"""What a comparison of two systems found, metric by metric."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from simgrad.core.tables import TableFile, frame, html_table, plain_text
from simgrad.evaluation.declared import UnknownMetric, metric_of
from simgrad.evaluation.metrics import interval_text, p_text


@dataclass(frozen=True)
class Difference:
    """One metric of two systems: `difference` is the second minus the first.

    Examples:
        >>> first = simgrad.evaluate_similarities(torch.eye(20).flip(0))
        >>> second = simgrad.evaluate_similarities(torch.eye(20))
        >>> one = simgrad.compare(first, second)["i2t_r1"]
        >>> one.first, one.second, one.difference
        (0.0, 100.0, 100.0)
    """

    metric: str
    first: float
    second: float
    difference: float
    low: float
    high: float
    p: float
    image_error: float  # standard error due to the images alone: more seeds do not lower it
    p_holm: float | None = None  # after Holm's correction, where it was one of several comparisons

    @property
    def corrected(self) -> float:
        """The p to go by."""
        return self.p if self.p_holm is None else self.p_holm

    def __str__(self) -> str:
        """+4.1 [1.2, 7.0] p=0.003"""
        p = p_text(self.corrected)
        return f"{signed(self)} {interval_text(metric_of(self.metric), (self.low, self.high))} " + (
            f"p{p}" if p.startswith("<") else f"p={p}"
        )


def signed(difference: Difference) -> str:
    """+4.1, with a digit more where the metric has none."""
    return f"{difference.difference:+.{max(1, metric_of(difference.metric).digits)}f}"


class Comparison(Mapping[str, Difference]):
    """Two systems on the same queries: `comparison["rsum"].p`; printed, a table.

    Examples:
        >>> first, second = (simgrad.evaluate_similarities(torch.rand(20, 20)) for _ in range(2))
        >>> comparison = simgrad.compare(first, second)
        >>> 0 <= comparison["rsum"].p <= 1
        True
    """

    def __init__(
        self,
        found: Mapping[str, Difference],
        names: tuple[str, str] = ("A", "B"),
        *,
        level: float = 0.95,
        seeds: tuple[int, int] = (1, 1),
    ) -> None:
        self.found, self.names, self.level, self.seeds = dict(found), names, level, seeds

    def __getitem__(self, metric: str) -> Difference:
        if metric not in self.found:
            raise UnknownMetric(metric, self.found)
        return self.found[metric]

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    @property
    def method(self) -> str:
        """How it was tested, in words."""
        if self.seeds == (1, 1):
            return "p and intervals: over images, paired; what other seeds would find is not known."
        first, second = self.seeds
        return f"p and intervals: over seeds ({first} and {second}) and images, paired over images."

    def table(self) -> TableFile:
        """A row for each metric: both systems, the difference, its interval, p."""
        first, second = self.names
        holm = any(d.p_holm is not None for d in self.found.values())
        columns = ["", first, second, f"{second} - {first}", f"{100 * self.level:g}%", "p"]
        rows = []
        for name, d in self.found.items():
            record = metric_of(name)
            if record.shown not in ("headline", "compared"):
                continue
            interval = interval_text(record, (d.low, d.high))
            row = [record.heading, record.format(d.first), record.format(d.second), signed(d)]
            row += [interval, p_text(d.p), *([p_text(d.corrected)] if holm else [])]
            rows.append(tuple(row))
        columns += ["p (Holm)"] if holm else []
        return TableFile(tuple(columns), tuple(rows), notes=(self.method,))

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Everything by metric."""
        return {name: dict(vars(d)) for name, d in self.found.items()}

    def to_frame(self) -> Any:
        """A pandas DataFrame: a row for each metric."""
        return frame([dict(vars(d)) for d in self.found.values()], index="metric")

    def __repr__(self) -> str:
        d = self.found["rsum"]
        return f"Comparison(rsum {d.first:.1f} -> {d.second:.1f}: {d})"

    def __str__(self) -> str:
        return plain_text(self.table())

    def _repr_html_(self) -> str:
        return html_table(self.table())
