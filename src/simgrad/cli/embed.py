"""`simgrad embed`: vectors of pictures or sentences by any model, for other programs."""

from pathlib import Path
from typing import Annotated

import tyro

from simgrad.core.console import say
from simgrad.retriever.opening import open
from simgrad.retriever.vector_files import write_vectors


def embed(
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    items: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER|FILE")],
    *,
    output: Path,
    device: str = "auto",
) -> None:
    """Write vectors of pictures or sentences, with what made them, to one file.

    Args:
        model: a run, a checkpoint, a folder of a SentenceTransformer, of a dual encoder of
            transformers or of an ONNX pair, or a spec: "clip(source=FOLDER_OR_HUB_NAME)",
            "sentence-transformers(source=FOLDER_OR_HUB_NAME)", "python(file=FILE.py)"
        items: a folder of pictures, or a text file with a sentence a line
        output: the file to write: .parquet (id, text, embedding) or .npy
        device: auto, cpu, cuda, cuda:N or mps
    """
    made = write_vectors(open(model, device=device), items.expanduser(), output)
    say(f"{output}: {len(made.ids):,} {made.provenance['kind']} x {made.vectors.shape[1]}.")
