"""What people call the general counts of `counting.py`, and what they mean."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CountLabel:
    """How a count is shown."""

    label: str
    meaning: str
    share: bool  # 0 to 1, printed in percent

    def printed(self, value: float) -> str:
        """3.4, or 12.5%"""
        return f"{100 * value:.1f}%" if self.share else f"{value:.1f}"


COUNT_LABELS = {
    "contributing": CountLabel(
        "negatives that count",
        "negatives pushed with more than 1% of the query's largest push, mean per query",
        False,
    ),
    "effective": CountLabel(
        "effective number",
        "how many negatives share the push: 1 if one takes it all, n if n take equal parts",
        False,
    ),
    "hardest_share": CountLabel(
        "push on the hardest",
        "share of a query's push that falls on the negative it pushes hardest",
        True,
    ),
    "zero_share": CountLabel(
        "queries without push", "share of queries that the objective does not push", True
    ),
    "faint_share": CountLabel(
        "with a faint push", "share of queries with less than 1% of the batch's mean push", True
    ),
    "false_share": CountLabel(
        "push on false negatives",
        "share of all push that falls on items that are right answers without a label",
        True,
    ),
}
