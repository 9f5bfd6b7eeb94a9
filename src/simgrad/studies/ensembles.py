"""Rows that are not trained: the mean similarities of other rows' models, as VSRN, SCAN and BFAN
are published.

Each is tested once its members are finished, and again when one of them has changed. A folder
STUDY/ensembles/NAME-sN holds what a run keeps of its test.
"""

from pathlib import Path

from simgrad.core.errors import InputError
from simgrad.core.threads import threads
from simgrad.retriever.opening import open_folder
from simgrad.retriever.similarities import average
from simgrad.runs.data import what_is_tested
from simgrad.runs.run import Run, write_info, write_test
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
        opened = open_folder(run, device=device)
        asked = what_is_tested(run.recipe, opened.dataset)
        if asked is None:
            raise InputError(f"{run.path}: its data have no test split.")
        systems.append((opened.similarities(asked.split), asked))
    _, asked = systems[0]
    try:
        if any(theirs.protocol != asked.protocol for _, theirs in systems):
            raise InputError("other protocols")
        together = average([system for system, _ in systems])
    except InputError:
        names = ", ".join(run.name for run in members)
        raise InputError(f"{names}: not tested on the same images and captions.") from None
    folder.mkdir(parents=True, exist_ok=True)
    write_test(folder, together.measure(asked.protocol))
    write_info(folder, {"status": "finished", "members": told, "tested": asked.to_dict()})
