"""`simgrad choose`: which objective for these data? Parsed, called, printed."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import tyro

from simgrad.choosing.procedure import choose as compare
from simgrad.core.console import say, say_wrapped


def choose(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    *,
    minutes: float = 30.0,
    objectives: tuple[str, ...] = (),
    model: str | None = None,
    features: str | None = None,
    epochs: int | None = None,
    short: bool = False,
    skip: str | None = None,
    output: Path | None = None,
    device: str = "auto",
    strict: bool = False,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Compare objectives on your data and recommend one. To resume, run it again.

    The command looks at the data, computes features if the data are pictures, times a few steps of
    each objective, and trains a pilot to see how long a full training is. From that it makes a
    plan: which objectives, how many settings to try for each, how many seeds. Every objective gets
    the same budget, and at least half of a full training. If time is short, the last objectives
    are left out. Settings are chosen on the validation split, and each chosen setting is tested
    once per seed.

    The output folder then holds an answer that says how sure it is, a report, a recipe for a
    full-length training (full-run.yaml) and the best model (model/): `simgrad search OUTPUT "..."`
    finds your photos with it.
    If there is no time to compare two objectives, the command says how long two need, and trains
    one by default.

    You may stop at any time. The same command resumes and ends with the same table. The plan is
    kept in choose.json; --minutes is used only when the plan is made.

    Args:
        data: a folder or file in a known layout, or a spec such as 'scenes(train=1000)'; or the
            output folder of an earlier `simgrad choose`, to resume it
        minutes: about how long it may take, computing features included
        objectives: two or more objectives to compare, the last are left out first; by default
            focused-deviance, nt-xent, a cell of goal, triplet-sh and siglip, as many as fit
        model: the model to train; by default vse++, or light on a machine without a GPU
        features: a folder written by `simgrad features`; by default features of pictures are
            computed into the output folder
        epochs: how long you will train in the end; by default a pilot finds when validation stops
            improving
        short: allow trainings shorter than half of that; then nobody is called ahead or behind
        skip: a list written by `simgrad datasets --fix`
        output: the folder to write (default: choose/DATA)
        device: auto, cpu, cuda, cuda:N or mps
        strict: refuse missing or broken pictures; by default up to 2 % are left out, and the
            answer says which
        dry_run: print what would be done, estimated from stated rates, and stop; nothing is
            computed or written
    """
    wish: dict[str, Any] = {
        "objectives": objectives,
        "model": model,
        "features": features,
        "epochs": epochs,
        "short": short,
        "skip": skip,
        "output": output,
        "device": device,
        "strict": strict,
    }
    if dry_run:
        plan = compare(data, minutes, dry_run=True, **wish)
        say_wrapped(plan)
        return {"plan": plan.splitlines()}
    found = compare(data, minutes, **wish)
    say_wrapped(f"\n{found.text}\n")
    use = f'search:       simgrad search {found.folder} "a sentence"'
    if found.on_vectors:
        use = f"its heads:    simgrad export {found.model} --to heads"
    say(f"report:       {found.report}", f"full length:  simgrad train {found.recipe}", use)
    standing = found.standing
    return {
        "answer": found.text.splitlines(),
        "standing": None if standing is None else asdict(standing),
        **{key: str(getattr(found, key)) for key in ("folder", "report", "recipe", "model")},
    }
