"""Whether a run's COCOS may be compared with a row of Bleeker & de Rijke's tables 2 to 4."""

from simgrad.analysis.published import PublishedRow
from simgrad.core.spec import print_value
from simgrad.retriever.counting import RunCounts
from simgrad.studies.settings import departures

_EPSILON = 0.01  # the paper's


def unlike(run: RunCounts, row: PublishedRow) -> dict[str, str]:
    """What is not as in the published row, in words; empty: both count the same thing.

    Data, model, objective and every setting of training (published/settings.csv), and what was
    counted: the whole training set, with the paper's epsilon.
    """
    found = {}
    if run.dataset != row.dataset:
        found["data"] = f"{run.dataset or 'other'} (paper {row.dataset})"
    source = f"bleeker-{row.method.lower()}"
    for field, (value, known) in departures(source, row.dataset, run.recipe, varied=False).items():
        paper = "not set" if known is None else print_value(known.value)
        found[field] = f"{print_value(value)} (paper {paper})"
    if run.epsilon != _EPSILON:
        found["counted"] = f"above {run.epsilon:g} (paper {_EPSILON:g})"
    if not run.whole:
        found["counted on"] = "a part (paper: the training set)"
    return found
