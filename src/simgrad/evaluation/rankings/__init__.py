"""Rankings that somebody else made: read, measured as trec_eval measures them, and compared.

`evaluate_rankings` is all of it: files (or dicts) of any number of systems on any number of tasks
in, one standing for each task and one over tasks out.
"""

from simgrad.evaluation.rankings.comparing import evaluate_rankings
from simgrad.evaluation.rankings.measures import Measure
from simgrad.evaluation.rankings.results import RankedTask, Rankings
from simgrad.evaluation.rankings.writing import write_qrels, write_run

__all__ = [
    "Measure",
    "RankedTask",
    "Rankings",
    "evaluate_rankings",
    "write_qrels",
    "write_run",
]
