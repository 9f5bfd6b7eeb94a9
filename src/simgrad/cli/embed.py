"""`simgrad embed`: vectors of pictures or sentences by any model, for other programs."""

from pathlib import Path
from typing import Annotated

import tyro

from simgrad.core.console import say
from simgrad.retriever.opening import open
from simgrad.retriever.vector_files import write_pairs, write_vectors


def embed(
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    items: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER|FILE|DATA")],
    *,
    output: Path,
    device: str = "auto",
) -> None:
    """Write vectors of pictures or sentences, with what made them, to one file.

    Args:
        model: a run, a checkpoint, a folder of a SentenceTransformer, of a dual encoder of
            transformers or of an ONNX pair, or a spec: "clip(source=FOLDER_OR_HUB_NAME)",
            "sentence-transformers(source=FOLDER_OR_HUB_NAME)", "python(file=FILE.py)"
        items: a folder of pictures, or a text file with a sentence a line; for .npz, a data set
        output: the file to write: .parquet (id, text, embedding) or .npy; or .npz, the pictures
            and captions of a data set with their pairing, which `simgrad choose` takes
        device: auto, cpu, cuda, cuda:N or mps
    """
    if output.suffix == ".npz":
        told = write_pairs(open(model, data=items, device=device), output)
        counts = f"{told['images']:,} pictures, {told['texts']:,} captions"
        say(f"{output}: {counts} x {told['dimension']}.")
        return
    made = write_vectors(open(model, device=device), Path(items).expanduser(), output)
    say(f"{output}: {len(made.ids):,} {made.provenance['kind']} x {made.vectors.shape[1]}.")
