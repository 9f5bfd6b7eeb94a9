"""`simgrad import`: a published checkpoint becomes one of ours."""

from pathlib import Path
from typing import Annotated

import tyro

from simgrad.core.console import print_table
from simgrad.models.checkpoint import save
from simgrad.models.published.checkpoints import convert, read_published_checkpoint


def import_checkpoint(
    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")],
    to: Annotated[Path, tyro.conf.arg(aliases=["--output"])],
    vocabulary: Path | None = None,
    model: str | None = None,
) -> dict[str, str]:
    """Read a published checkpoint of VSE++, VSRN, VSE-infinity, SCAN, BFAN or X-VLM.

    Nothing in the file is executed: it is read as tensors and plain data, or refused.

    Args:
        file: the published file, such as model_best.pth.tar or checkpoint_best.pth
        to: the folder to write, for `simgrad evaluate` and `simgrad search`
        vocabulary: the vocabulary it was trained with: JSON, pickle, or BERT's vocab.txt
        model: the model, if the file does not say which it is, with any settings that the file
            lacks, e.g. "x-vlm(size=384)"
    """
    imported = convert(read_published_checkpoint(file), model, vocabulary)
    save(to, imported.model, imported.tokenizer, {"imported": imported.facts})
    inputs = imported.model.inputs
    rows = [
        ("model", str(imported.model.config)),
        ("images", f"{inputs.images} {tuple(inputs.image_shape)}"),
        ("words", f"{inputs.vocabulary_size:,}"),
        ("written to", str(to)),
    ]
    if imported.left_out:
        rows.append(("not imported", imported.left_out))
    if imported.tokenizer is None:
        rows.append(("no vocabulary", "it cannot read captions; import again with --vocabulary"))
    print_table(("imported", file.name), rows)
    return dict(rows)
