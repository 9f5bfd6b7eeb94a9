"""What a search found."""

from dataclasses import dataclass, field

from simgrad.core.text import plain

# A cut-off that turns away no more of the questions without an answer says nothing: of those with
# one it turns away 5%.
_WORTHLESS = 0.1


@dataclass(frozen=True)
class Hit:
    """One result."""

    rank: int
    row: int
    score: float
    name: str  # of the picture; of a caption's picture
    captions: tuple[str, ...]  # of the picture; the caption itself
    right: bool | None = None  # known to belong to the query; None: not known
    probability: float | None = None  # of being right; None: not known
    path: str | None = None  # of the picture's file, where it has one of its own

    @property
    def told(self) -> str:
        """How probably it is right; where that is not known, how similar it is."""
        return f"{self.score:.3f}" if self.probability is None else percent(self.probability)


@dataclass(frozen=True)
class Results:
    """What a query found."""

    query: str
    kind: str  # "sentence" or "picture"
    images: list[Hit] = field(default_factory=list)
    captions: list[Hit] = field(default_factory=list)
    searched_images: int = 0
    searched_captions: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    cut_off: float | None = None  # below this probability nothing fits; None: not known
    refused: float | None = None  # share of the queries without an answer that it turns away

    def __str__(self) -> str:
        """The query, then a line for each hit, and the first caption of its picture."""
        lines = [f"{self.query}: {self.verdict() or 'found'}"]
        for hit in self.asked or self.images:
            lines.append(f"{hit.rank:>3}  {hit.told:>5}  {hit.name}{' ✓' if hit.right else ''}")
            lines += [f"            {hit.captions[0]}"] if hit.captions else []
        return plain("\n".join([*lines, *(f"({note})" for note in self.notes)]))

    __repr__ = __str__  # what a prompt shows

    @property
    def asked(self) -> list[Hit]:
        """What was asked for: pictures of a sentence, captions of a picture."""
        return self.images if self.kind == "sentence" else self.captions

    @property
    def _right(self) -> str:
        """What belongs together in the data; others that fit as well do not count."""
        if self.kind == "sentence":
            return "the very picture that is meant"
        return "a caption of this very picture"

    def told(self, sure: float | None = None) -> str:
        """The verdict in one short line."""
        known = [hit.probability for hit in self.asked if hit.probability is not None]
        if not known or self.cut_off is None or self.refused is None:
            return ""
        best, cut = max(known), self.cut_off if sure is None else sure
        told = f"he best hit is {self._right} with a probability of {percent(best)}"
        if sure is None and self.refused <= _WORTHLESS:
            return f"T{told}; others may fit as well. See for yourself: numbers do not tell here."
        if best < cut:
            return f"Nothing fits: t{told}, and {percent(cut)} is needed."
        return f"T{told}; below {percent(cut)} nothing fits."

    def verdict(self, sure: float | None = None) -> str:
        """In words whether anything fits, by the cut-off that was learned, or by `sure`."""
        known = [hit.probability for hit in self.asked if hit.probability is not None]
        if not known or self.cut_off is None or self.refused is None:
            return ""
        best, cut = percent(max(known)), self.cut_off if sure is None else sure
        if sure is None and self.refused <= _WORTHLESS:
            return (
                f"The best hit is {self._right} with a probability of {best}. Whether anything "
                f"fits, see for yourself, because numbers do not tell: on validation, "
                f"{percent(1 - self.refused)} of the questions without an answer look as good as "
                "those with one."
            )
        told = f"The cut-off is {percent(cut)}"
        if sure is None:
            told += (
                ": on validation, 95% of the questions with an answer reach it, and "
                f"{percent(1 - self.refused)} of those without"
            )
        what = "Nothing fits: the best hit is" if max(known) < cut else "The best hit is"
        return f"{what} {self._right} with a probability of {best}. {told}."


def percent(probability: float) -> str:
    """37%, and never quite 0 or 100."""
    if 0 < probability < 0.01:
        return "<1%"
    return ">99%" if 0.99 < probability < 1 else f"{100 * probability:.0f}%"
