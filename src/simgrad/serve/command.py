"""`simgrad search` and `simgrad serve`."""

import sys
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from simgrad.console import console, progress
from simgrad.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

    from simgrad.serve.search import Hit, Results, Searcher


def search(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    query: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SENTENCE|PICTURE")],
    *,
    folder: Path | None = None,
    split: str = "test",
    top: int = 10,
    exact: bool = False,
    thumbnails: bool = True,
    device: str = "auto",
    json: bool = False,
) -> None:
    """Find pictures by a sentence, or captions by a picture.

    Args:
        run: a run folder, or a checkpoint that `simgrad import` wrote
        query: a sentence; or a picture: its file, or its name in the split
        folder: search the pictures below this folder instead of the run's own
        split: the split of the run's data to search
        top: how many results
        exact: no FAISS, however many items there are
        thumbnails: show pictures, in a terminal
        device: auto, cpu, cuda
        json: print JSON
    """
    from simgrad.serve.embedder import Embedder
    from simgrad.serve.search import Searcher

    embedder = Embedder.open(run, device)
    with progress() as bar:
        task = bar.add_task("embedding pictures", total=None, visible=folder is not None)

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        searcher = Searcher(embedder, split, folder, exact=exact, report=report)
    results = _ask(searcher, query, top)
    if json:
        print(dumps(asdict(results), indent=1, ensure_ascii=False))
        return
    _print(searcher, results, thumbnails)


def _ask(searcher: "Searcher", query: str, top: int) -> "Results":
    from simgrad.data.cutting import open_picture
    from simgrad.data.pictures import SUFFIXES
    from simgrad.serve.search import row_named

    path = Path(query)
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # too long for a name, or a NUL in it: a sentence
        is_file = False
    if is_file:
        return searcher.picture(open_picture(path, str(path), least=512), path.name, top)
    row = row_named(searcher.split.image_names, query) if searcher.split is not None else None
    if row is not None:
        return searcher.row(row, top)
    if path.suffix.lower() in SUFFIXES and " " not in query:
        raise InputError(f"{query}: there is no such picture.")
    return searcher.sentence(query, top)


def _print(searcher: "Searcher", results: "Results", thumbnails: bool) -> None:
    from simgrad.serve.thumbnails import protocol

    out = console()
    how = protocol(sys.stdout) if thumbnails else None
    if results.kind == "sentence":
        what, hits = f"{results.searched_images:,} pictures", results.images
    else:
        what, hits = f"{results.searched_captions:,} captions", results.captions
        hits = hits or results.images
    head = f"{results.query}: best of {what}, {1000 * results.seconds:.1f} ms"
    out.print(head, style="bold", markup=False)
    for note in results.notes:
        out.print(f"({note})", style="dim", markup=False)
    if searcher.folder is not None and searcher.folder.skipped:
        names = ", ".join(list(searcher.folder.skipped)[:3])
        out.print(f"({len(searcher.folder.skipped)} unreadable pictures left out: {names})")
    for hit in hits:
        _print_hit(searcher, hit, how if results.kind == "sentence" else None)
    if results.kind == "picture" and results.captions and results.images:
        out.print(f"\nlike it, of {results.searched_images:,} pictures", style="bold")
        for hit in results.images:
            _print_hit(searcher, hit, how)


def _print_hit(searcher: "Searcher", hit: "Hit", how: str | None) -> None:
    from simgrad.serve.thumbnails import show

    mark = {True: " ✓", False: "", None: ""}[hit.right]
    console().print(
        f"{hit.rank:>3}  {hit.score:.3f}  {_plain(hit.name)}{mark}", markup=False, soft_wrap=True
    )
    if hit.captions:
        console().print(f"            {_plain(hit.captions[0])}", style="dim", markup=False)
    if how is not None:
        picture = _picture(searcher, hit.row)
        if picture is not None:
            show(picture, how, sys.stdout)


def _picture(searcher: "Searcher", row: int) -> "Image | None":
    from simgrad.data.cutting import open_picture

    try:
        if searcher.folder is not None:
            path = searcher.folder.root / searcher.folder.names[row]
            return open_picture(path, str(path), least=256)
        assert searcher.split is not None
        pictures = searcher.split.pictures
        return None if pictures is None else pictures.picture(row)
    except InputError:
        return None


def _plain(text: str) -> str:
    """Names and captions come from files: control characters stay out of the terminal."""
    return "".join(c if c.isprintable() else "�" for c in text)


def serve(
    paths: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[STUDY|RUN ...]", help_behavior_hint=""),
    ] = (),
    *,
    port: int = 8000,
    host: str = "127.0.0.1",
    token: str | None = None,
    device: str = "auto",
) -> None:
    """The lab page: runs and studies as they go, search, and the objective bench, in a browser.

    Args:
        paths: run and study folders; runs/ and studies/ here if left out
        port: where to listen; 0 takes a free one
        host: another address than this machine's own needs a token
        token: what visitors must know; made up and printed where one is needed
        device: auto, cpu, cuda
    """
    try:
        import uvicorn

        from simgrad.serve.app import create_app
    except ImportError as error:
        raise InputError(
            f"the lab page needs {error.name}: `pip install simgrad[serve]`."
        ) from None
    from simgrad.serve.lab import Lab, find_paths
    from simgrad.serve.safety import Access

    if not 0 <= port <= 65535:
        raise InputError(f"--port is 0 to 65535, not {port}.")
    access = Access.for_host(host, token)
    lab = Lab(paths or find_paths(Path()), device=device)
    listening = _listen(host, port)
    place = access.url(host, listening.getsockname()[1])
    console(stderr=True).print(f"simgrad lab page: {place}\nCtrl-C stops it.", markup=False)
    settings: dict[str, Any] = {"log_level": "warning", "server_header": False}
    # Clients often give up an idle connection after 5 seconds; a server that does so at the same
    # moment cuts a request off now and then.
    settings |= {"timeout_keep_alive": 30, "timeout_graceful_shutdown": 3}
    server = uvicorn.Server(uvicorn.Config(create_app(lab, access), **settings))
    server.run(sockets=[listening])


def _listen(host: str, port: int) -> Any:
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)  # from here on the address that is printed can be reached
    except (OSError, UnicodeError, OverflowError) as error:
        listening.close()
        raise InputError(f"cannot listen on {host} port {port}: {error}.") from None
    return listening
