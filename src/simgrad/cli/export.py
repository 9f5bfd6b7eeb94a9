"""`simgrad export`: a trained model for another program."""

from pathlib import Path
from typing import Annotated, Any

import tyro

from simgrad.core.console import print_table, say
from simgrad.core.errors import InputError
from simgrad.core.files import atomic_write
from simgrad.report.card import model_card
from simgrad.retriever.opening import open_folder


def export(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    to: Annotated[Path, tyro.conf.arg(aliases=["--output"])],
    *,
    format: Annotated[str | None, tyro.conf.arg(metavar="FORMAT")] = None,
    adapter: bool = False,
    push: Annotated[str | None, tyro.conf.arg(metavar="OWNER/NAME")] = None,
    private: bool = True,
    licence: str | None = None,
) -> dict[str, Any]:
    """Write a trained model in another program's format, with a model card.

    Args:
        run: a run folder, or a checkpoint
        to: the folder to write
        format: transformers, sentence-transformers, open_clip, onnx, or heads (of a model on
            vectors that were there: two matrices); by default the most usual one for the model. If
            a model has no such format, the error lists those it has
        adapter: write only the LoRA adapter, in peft's format; by default it is merged into the
            weights
        push: also upload it to the Hugging Face hub under this name, with huggingface_hub's login
        licence: what the model card says, e.g. mit or cc-by-4.0
        private: make a newly created hub repository private
    """
    opened = open_folder(run, device="cpu")
    written = opened.export(to, format, adapter=adapter)
    with atomic_write(to / "README.md") as file:
        file.write(model_card(written, opened.run, push or str(to), licence))
    files = sorted(path for path in to.rglob("*") if path.is_file())
    rows = [(str(path.relative_to(to)), f"{-(-path.stat().st_size // 2**10):,}") for path in files]
    print_table((f"{written.format}, in {to}", "KiB"), rows)
    if push is not None:
        say(f"uploaded to {_upload(to, push, private)}")
    return {
        "format": written.format,
        "folder": str(to),
        "bytes": {str(path.relative_to(to)): path.stat().st_size for path in files},
    }


def _upload(folder: Path, name: str, private: bool) -> str:
    from huggingface_hub import HfApi

    hub = HfApi()
    try:
        address = str(hub.create_repo(name, private=private, exist_ok=True))
        hub.upload_folder(folder_path=folder, repo_id=name)
    except Exception as error:  # no login, no network, no right to that name: one answer serves all
        reason = str(error).strip().splitlines()[0][:160]
        raise InputError(
            f"--push {name}: the hub did not take it ({reason}). Log in with `hf auth login`; what "
            f"was written is in {folder}."
        ) from None
    return address
