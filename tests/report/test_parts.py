"""The parts of a report one by one: numbers, intervals, labels, charts, choices."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simgrad.evaluation import Ranks, estimates, evaluate_similarities, metrics_of, wording
from simgrad.pages.blocks import (
    BodyRow,
    Callout,
    Cell,
    Code,
    Column,
    Details,
    Figures,
    Key,
    Paragraph,
    Section,
    Table,
    Term,
)
from simgrad.pages.svg import LIGHT
from simgrad.report.build import build_report
from simgrad.report.examples import most_different
from simgrad.report.headline import headline
from simgrad.report.material import Material, System, collect
from simgrad.report.page import Report, page, write_markdown
from simgrad.report.standings import GroupStanding
from simgrad.report.training import pushed
from simgrad.runs.run import Run, write_info
from tests.report.reading import Page


def _ranks(seed: int, noise: float, images: int = 60) -> Ranks:
    random = np.random.default_rng(seed)
    owner = np.repeat(np.arange(images), 5)
    S = np.eye(images)[:, owner] + noise * random.normal(size=(images, len(owner)))
    return evaluate_similarities(S.astype(np.float32), owner).ranks


class _Fake(System):
    """A system with numbers of its own, without a folder."""

    def __init__(self, label: str, ranks: list[Ranks], baseline: bool = False) -> None:
        super().__init__(label, "", (), len(ranks), baseline)
        self.__dict__["ranks"] = ranks

    def values(self, split: str) -> list[dict[str, float]]:
        return [metrics_of(ranks).to_dict() for ranks in self.ranks]


def _standing(*systems: _Fake) -> GroupStanding:
    ranks = {s.label: [[run] for run in s.ranks] for s in systems}
    numbers = {k: estimates(ranks=some) for k, some in ranks.items()}
    return GroupStanding("", systems, numbers, ranks, {})


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Many draws of images from one world: the 95% interval of R@1 should hold its mean."""
    images = 80
    whole = [_ranks(seed, 0.4, images) for seed in range(60)]
    found = [estimates(ranks=[ranks])["t2i_r1"] for ranks in whole]
    truth = np.mean([estimate.mean for estimate in found])
    inside = [e.low is not None and e.low <= truth <= (e.high or 0) for e in found]
    assert 0.85 < np.mean(inside) <= 1.0
    widths = [(e.high or 0) - (e.low or 0) for e in found]
    assert 2 < np.mean(widths) < 40


def test_the_best_leads() -> None:
    good = _Fake("good", [_ranks(s, 0.35) for s in (0, 1)])
    fair = _Fake("fair", [_ranks(s, 0.45) for s in (2, 3)])
    poor = _Fake("poor", [_ranks(s, 0.9) for s in (4, 5)], baseline=True)
    standing = _standing(poor, fair, good)
    assert [s.label for s in standing.order] == ["good", "fair", "poor"]
    assert standing.baseline is poor
    found = standing.standing
    assert found is not None
    assert found.leader == "good"
    fair_one, poor_one = found.rivals
    assert (fair_one.label, poor_one.word) == ("fair", "behind")
    assert fair_one.low < fair_one.behind < fair_one.high
    assert set(standing.against_baseline) == {"good", "fair"}


def test_without_a_declared_baseline_it_is_the_leader_and_a_pair_has_one_p() -> None:
    good = _Fake("good", [_ranks(s, 0.35) for s in (0, 1)])
    fair = _Fake("fair", [_ranks(s, 0.45) for s in (2, 3)])
    poor = _Fake("poor", [_ranks(s, 0.9) for s in (4, 5)])
    lucky = _Fake("one run, the best", [_ranks(6, 0.1)])
    standing = _standing(poor, fair, good, lucky)
    assert standing.baseline is good
    assert standing.standing is not None
    told = {rival.label: (rival.p, -rival.behind) for rival in standing.standing.rivals}
    shown = standing.against_baseline
    assert told == {label: (one.corrected, one.difference) for label, one in shown.items()}


def test_a_system_with_one_run_leaves_the_others_theirs() -> None:
    one = _Fake("one", [_ranks(0, 0.4)])
    two, three = (_Fake(f"{n}", [_ranks(s, 0.8) for s in (n, n + 2)]) for n in (2, 3))
    with_it, without = _standing(one, two, three), _standing(two, three)
    assert with_it.against_baseline == without.against_baseline
    assert len(with_it.against_baseline) == 1


def test_a_batch_without_push_is_no_point_and_no_number(study: Path, tmp_path: Path) -> None:
    copy = tmp_path / "study"
    shutil.copytree(study, copy)

    def silence(kept: int) -> Section:
        """Nothing is pushed by triplet after that many evaluations."""
        for run in copy.glob("runs/triplet-s*"):
            entries = Run(run).history
            for entry in entries[kept:]:
                zero = dict.fromkeys(("contributing", "effective", "hardest_share"), 0.0)
                entry["attention"] = {d: {**zero, "zero_share": 1.0} for d in ("i2t", "t2i")}
            (run / "metrics.jsonl").write_text("".join(json.dumps(e) + "\n" for e in entries))
            write_info(run, Run(run).info)  # as if it had written that
        found = pushed(collect([copy]))
        assert found is not None
        return found

    def figures(section: Section) -> dict[str, str]:
        shown = next(block for block in section.blocks if isinstance(block, Figures))
        return {figure.name: figure.description for figure in shown.figures}

    once = silence(1)
    assert "triplet ends at 0" not in figures(once)["push-hardest_share"]
    folded = next(block for block in once.blocks if isinstance(block, Details))
    table = next(block for block in folded.blocks if isinstance(block, Table))
    columns = [column.label for column in table.columns]
    row = next(row for row in table.rows if row.cells[0].text == "triplet")
    told = dict(zip(columns, (cell.text for cell in row.cells), strict=True))
    assert told["push on the hardest"] == told["effective number"] == "–"
    assert told["queries without push"] == "100.0%"
    never = figures(silence(0))["push-hardest_share"]
    assert "triplet ends" not in never
    assert "nt-xent ends" in never


def test_the_answer_of_a_choice_stands_near_the_top(study: Path, tmp_path: Path) -> None:
    copy = tmp_path / "study"
    shutil.copytree(study, copy)

    def told() -> list[str]:
        head = build_report([copy], batches=0, pictures=False).head[:2]
        return [line for block in head if isinstance(block, Callout) for line in block.lines]

    lines = ["a and b are not told apart.", "This is about 38 of 375 epochs."]
    assert not set(lines) & set(told())
    (copy / "answer.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert told() == lines


def test_an_answer_does_not_repeat_the_headline() -> None:
    systems = tuple(_Fake(label, [_ranks(i, 0.3, 20) for i in range(2)]) for label in "ab")
    standing = _standing(*systems)
    assert standing.standing is not None
    said = [wording.lead(standing.standing), wording.basis(standing.standing)]
    answer = (said[0], "This is about 38 of 375 epochs.", said[1])
    material = Material("t", "", systems, ("rsum",), (), answer=answer)
    material.__dict__["split"] = "test"
    (box, _missing) = [b for b in headline(material, [standing]) if isinstance(b, Callout)]
    assert (box.title, box.lines) == ("What simgrad choose also answered", [answer[1]])


def test_disagreements_are_the_largest_and_of_both_signs(study: Path) -> None:
    split = Run.open(study / "runs" / "triplet-s0").dataset().split("test")
    material = collect([study])
    first, second = (s.ranks for s in material.systems[:2])
    chosen = most_different([first, second], split)
    gap = sum(np.log(r.t2i) for r in first) - sum(np.log(r.t2i) for r in second)
    assert gap[chosen[0]] == gap.min()
    assert gap.max() in gap[chosen]
    images = split.image_of_caption[chosen]
    assert len(images) == len(set(images.tolist()))
    assert most_different([first, first], split) == []


def test_more_systems_than_colours_leaves_the_rest_grey() -> None:
    systems = tuple(
        _Fake(f"s{i}", [_ranks(i, 0.2 + 0.1 * i, 20)], baseline=i == 11) for i in range(12)
    )
    material = Material("t", "", systems, ("rsum",), ())
    material.__dict__["split"] = "test"
    coloured = [s.label for s in systems if material.colour(s) is not None]
    assert len(coloured) == len(LIGHT)
    assert {"s0", "s1", "s11"} <= set(coloured)
    assert len(set(material.colours.values())) == len(LIGHT)
    assert _standing(*systems).baseline is systems[11]


def _page_of(text: str) -> Page:
    row = BodyRow([Cell(text), Cell(text, f"note {text}")])
    table = Table(text, [Column("", False), Column("x")], [row], f"caption {text}")
    words = Paragraph([text, Key(text, 0), Code(text), Term(text, f"meaning {text}")])
    section = Section("a", text, text, [words, table])
    return Page(page(Report(text, text, [words], [section], text)))


@given(st.text(max_size=60))
@settings(deadline=None)  # a busy machine is no mistake
def test_no_text_becomes_markup(text: str) -> None:
    assert [tag for tag, _ in _page_of(text).tags] == [tag for tag, _ in _page_of("").tags]


def test_markdown_table_cells_stay_in_their_columns(tmp_path: Path) -> None:
    table = Table(
        "t", [Column("a|b", False), Column("x")], [BodyRow([Cell("p|q\nr"), Cell("<b>")])]
    )
    report = Report("t", "", [], [Section("a", "A", "A", [table])], "")
    text = write_markdown(report, tmp_path / "r.md")[0].read_text()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in lines] == [3, 3, 3]
    assert "<b>" not in text
