"""Rows that are not trained: the mean similarities of other rows' models, as VSRN, SCAN and BFAN
are published.

Each is tested once its members are finished, and again when one of them has changed. A folder
STUDY/ensembles/NAME-sN holds what a run keeps of its test.
"""

from pathlib import Path

from simgrad.core.errors import InputError
from simgrad.core.threads import threads
from simgrad.retriever.systems import model_system
from simgrad.retriever.testing import measure_together
from simgrad.retriever.trained import open_trained
from simgrad.runs.run import Run, write_info, write_test
from simgrad.runs.tested import what_is_tested
from simgrad.studies.belonging import made_from
from simgrad.studies.study import Study


def complete_ensembles(study: Study, device: str = "auto") -> list[tuple[str, str]]:
    """Test every ensemble whose members are finished; (name, reason) of those that cannot be."""
    problems = []
    for row in study.plan.rows:
        if not row.ensemble:
            continue
        for folder, members in zip(study.folders(row), study.members(row), strict=True):
            waiting = [run.name for run in members if not run.finished]
            if waiting:
                problems.append((folder.name, f"waits for {', '.join(waiting)}"))
                continue
            try:
                with threads(study.plan.base.threads):
                    _test(folder, members, device)
            except InputError as error:
                problems.append((folder.name, str(error)))
    return problems


def _test(folder: Path, members: list[Run], device: str) -> None:
    told = made_from(members)
    if Run(folder).finished and Run(folder).info.get("members") == told:
        return
    systems = []
    for run in members:
        trained = open_trained(run, device=device)
        asked = what_is_tested(run.recipe, trained.dataset)
        if asked is None:
            raise InputError(f"{run.path}: its data have no test split.")
        systems.append((model_system(trained, asked.split.name), asked))
    first, asked = systems[0]
    for other, theirs in systems[1:]:
        same = (other.image_ids, other.caption_ids) == (first.image_ids, first.caption_ids)
        if not same or theirs.protocol != asked.protocol:
            names = ", ".join(run.name for run in members)
            raise InputError(f"{names}: not tested on the same images and captions.")
    scores = [system.scores for system, _ in systems if system.scores is not None]
    folder.mkdir(parents=True, exist_ok=True)
    write_test(folder, measure_together(scores, asked))
    write_info(folder, {"status": "finished", "members": told, "tested": asked.to_dict()})
