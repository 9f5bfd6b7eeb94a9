"""The page "from your loss to ours": every row runs, and the page has every row."""

from itertools import groupby
from pathlib import Path

import pytest
import torch

import simgrad
from simgrad.core.errors import InputError
from simgrad.objectives import objectives

from .peer_losses import ROWS, Row

PAGE = Path(__file__).parents[2] / "docs" / "losses.md"
PACKAGES = {"pytorch-metric-learning": "pytorch_metric_learning", "transformers": "transformers"}
PACKAGES["sentence-transformers"] = "sentence_transformers"


@pytest.mark.parametrize("row", ROWS, ids=[f"{r.library}: {r.theirs}" for r in ROWS])
def test_theirs_is_ours(row: Row) -> None:
    if row.library in PACKAGES:
        pytest.importorskip(PACKAGES[row.library])
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(10, 8, generator=generator).double().requires_grad_() for _ in range(2))
    theirs, ours = row.check(x, y)
    tolerance = 10.0**-row.digits
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    wanted, found = (
        torch.autograd.grad(loss, [x, y], allow_unused=True) for loss in (theirs, ours)
    )
    for one, other in zip(found, wanted, strict=True):
        if other is not None:
            assert one is not None
            size = max(1.0, float(other.abs().max()))
            torch.testing.assert_close(one, other, rtol=0, atol=tolerance * size)
    assert any(g is not None and g.abs().max() > 1e-3 for g in wanted)


def test_the_page_has_every_row() -> None:
    text = PAGE.read_text("utf-8")
    listed = text[text.index("## Line by line") : text.index("### What to know")]
    table = [line for line in listed.splitlines() if line.startswith(("### ", "- "))]
    expected = []
    for library, rows in groupby(ROWS, lambda row: row.library):
        expected += [f"### {library}", *(f"- `{r.theirs}` → `{r.ours}`" for r in rows)]
    assert table == expected
    assert {row.digits for row in ROWS} == {12}, "the page says 12"
    assert len(table) >= 25


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("clip", "nt-xent(learned=true)"),
        ("InfoNCE", "nt-xent"),
        ("mnrl", "nt-xent(tau=0.05, direction=i2t)"),
        ("SupConLoss", "nt-xent"),
        ("MultipleNegativesRankingLoss", "nt-xent(tau=0.05, direction=i2t)"),
        ("vse++", "triplet-sh"),
        ("mil_nce", "nca-loss"),
        ("sigmoid", "siglip"),
        ("SigLipLoss", "siglip"),
        ("NCALoss", "nca-loss"),
        ("nt_xent", "nt-xent"),
    ],
)
def test_names_that_others_use_are_answered(name: str, spec: str) -> None:
    with pytest.raises(InputError) as caught:
        simgrad.objective(name)
    assert f"What others call so is '{spec}' here." in str(caught.value)


def test_every_answer_is_a_spec() -> None:
    for spec in objectives.elsewhere.values():
        assert str(simgrad.objective(spec)) == spec
